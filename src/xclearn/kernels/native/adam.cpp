// Adam on the rows of a table that a batch touched: gradients of the same row are summed and applied in one pass.
#include <cmath>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t ROWS_AT_ONCE = 256;

XCLEARN_CLONES void add(const float* from, int64_t n, float* to) {
    for (int64_t j = 0; j < n; ++j) to[j] += from[j];
}

XCLEARN_CLONES void move(const float* gradient, int64_t n, const AdamStep& step, float* row, float* first,
                         float* second) {
    for (int64_t j = 0; j < n; ++j) {
        first[j] += (gradient[j] - first[j]) * step.first_share;
        second[j] += (gradient[j] * gradient[j] - second[j]) * step.second_share;
        row[j] -= step.size * (first[j] / (std::sqrt(second[j]) + step.epsilon));
    }
}

}  // namespace

void adam_rows(const AdamTable& table, const int64_t* ids, const float* gradients, int64_t n, const AdamStep& step,
               int n_threads) {
    std::vector<int64_t> begin(table.n_rows + 1, 0), touched;
    for (int64_t i = 0; i < n; ++i) ++begin[ids[i] + 1];
    for (int64_t row = 0; row < table.n_rows; ++row) {
        if (begin[row + 1] > 0) touched.push_back(row);
        begin[row + 1] += begin[row];
    }
    std::vector<int64_t> order(n), next(begin.begin(), begin.end() - 1);
    for (int64_t i = 0; i < n; ++i) order[next[ids[i]]++] = i;  // gradients of a row in the order they came
    const auto n_touched = static_cast<int64_t>(touched.size());
    parallel_for((n_touched + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, n_threads, [&](int64_t part, int) {
        std::vector<float> sum(table.width);
        const int64_t end = std::min(n_touched, (part + 1) * ROWS_AT_ONCE);
        for (int64_t place = part * ROWS_AT_ONCE; place < end; ++place) {
            const int64_t row = touched[place], start = row * table.width;
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (int64_t i = begin[row]; i < begin[row + 1]; ++i)
                add(gradients + order[i] * table.width, table.width, sum.data());
            move(sum.data(), table.width, step, table.values + start, table.first + start, table.second + start);
        }
    });
}

}  // namespace xclearn

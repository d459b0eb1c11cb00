// The rows of a table that a batch touched: their gradients summed, and Adam's step with the sum.
#include <cmath>
#include <utility>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t ROWS_AT_ONCE = 256;

XCLEARN_CLONES void add(const float* from, float weight, int64_t n, float* to) {
    for (int64_t j = 0; j < n; ++j) to[j] += weight * from[j];
}

XCLEARN_CLONES void move(const float* gradient, int64_t n, const AdamStep& step, float* row, float* first,
                         float* second) {
    for (int64_t j = 0; j < n; ++j) {
        first[j] += (gradient[j] - first[j]) * step.first_share;
        second[j] += (gradient[j] * gradient[j] - second[j]) * step.second_share;
        row[j] -= step.size * (first[j] / (std::sqrt(second[j]) + step.epsilon));
    }
}

// Which of the entries fall on each row, row after row and in the order they came.
struct Grouped {
    std::vector<int64_t> begin, touched, order;

    Grouped(const int64_t* ids, int64_t n, int64_t n_rows) : begin(n_rows + 1, 0), order(n) {
        for (int64_t i = 0; i < n; ++i) ++begin[ids[i] + 1];
        for (int64_t row = 0; row < n_rows; ++row) {
            if (begin[row + 1] > 0) touched.push_back(row);
            begin[row + 1] += begin[row];
        }
        std::vector<int64_t> next(begin.begin(), begin.end() - 1);
        for (int64_t i = 0; i < n; ++i) order[next[ids[i]]++] = i;
    }

    // Calls task(place, row) for each row that was touched.
    template <class Task>
    void for_rows(int n_threads, const Task& task) const {
        const auto n = static_cast<int64_t>(touched.size());
        parallel_for((n + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, n_threads, [&](int64_t part, int) {
            const int64_t end = std::min(n, (part + 1) * ROWS_AT_ONCE);
            for (int64_t place = part * ROWS_AT_ONCE; place < end; ++place) task(place, touched[place]);
        });
    }
};

}  // namespace

void adam_rows(const AdamTable& table, const int64_t* ids, const float* gradients, int64_t n, const AdamStep& step,
               int n_threads) {
    const Grouped grouped(ids, n, table.n_rows);
    grouped.for_rows(n_threads, [&](int64_t, int64_t row) {
        const int64_t start = row * table.width;
        std::vector<float> sum(table.width, 0.0f);
        for (int64_t i = grouped.begin[row]; i < grouped.begin[row + 1]; ++i)
            add(gradients + grouped.order[i] * table.width, 1.0f, table.width, sum.data());
        move(sum.data(), table.width, step, table.values + start, table.first + start, table.second + start);
    });
}

RowSums bag_gradient(const int64_t* ids, const int64_t* owner, const float* weights, int64_t n, const float* gradients,
                     int64_t width, int64_t n_rows, int n_threads) {
    Grouped grouped(ids, n, n_rows);
    RowSums sums{{}, std::vector<float>(grouped.touched.size() * width, 0.0f)};
    grouped.for_rows(n_threads, [&](int64_t place, int64_t row) {
        for (int64_t i = grouped.begin[row]; i < grouped.begin[row + 1]; ++i) {
            const int64_t entry = grouped.order[i];
            add(gradients + owner[entry] * width, weights[entry], width, sums.values.data() + place * width);
        }
    });
    sums.rows = std::move(grouped.touched);
    return sums;
}

}  // namespace xclearn

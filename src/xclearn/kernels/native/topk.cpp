// Top-k of each row of a sparse matrix.
#include <limits>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t ROWS_PER_TASK = 256;

struct Entry {
    float score;
    int32_t id;
};

bool better(const Entry& a, const Entry& b) { return a.score != b.score ? a.score > b.score : a.id < b.id; }

}  // namespace

void topk_csr(const int64_t* indptr, const int32_t* indices, const float* data, int64_t n_rows, int64_t k,
              int n_threads, int64_t* ids, float* scores) {
    std::fill(ids, ids + n_rows * k, int64_t{-1});
    std::fill(scores, scores + n_rows * k, -std::numeric_limits<float>::infinity());
    const int64_t n_tasks = (n_rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    parallel_for(n_tasks, n_threads, [&](int64_t task, int) {
        std::vector<Entry> entries;
        for (int64_t row = task * ROWS_PER_TASK; row < std::min(n_rows, (task + 1) * ROWS_PER_TASK); ++row) {
            entries.clear();
            for (int64_t j = indptr[row]; j < indptr[row + 1]; ++j) entries.push_back({data[j], indices[j]});
            const int64_t kept = std::min<int64_t>(k, static_cast<int64_t>(entries.size()));
            std::partial_sort(entries.begin(), entries.begin() + kept, entries.end(), better);
            for (int64_t i = 0; i < kept; ++i) {
                ids[row * k + i] = entries[i].id;
                scores[row * k + i] = entries[i].score;
            }
        }
    });
}

}  // namespace xclearn

// The kernels, free of Python. kernels/reference.py says the same in NumPy and is the test oracle of each.
#pragma once

#include <cstdint>

namespace xclearn {

// The k best entries of each row, score descending, then column ascending; the rest is −1 and −infinity.
void topk_csr(const int64_t* indptr, const int32_t* indices, const float* data, int64_t n_rows, int64_t k,
              int n_threads, int64_t* ids, float* scores);

// Recursive balanced 2-means into n_clusters (a power of two).
void balanced_clusters_csr(const int64_t* indptr, const int32_t* indices, const float* data, int64_t n_rows,
                           int64_t n_columns, int64_t n_clusters, uint64_t seed, int n_threads,
                           int32_t* cluster_of_row);
void balanced_clusters_dense(const float* rows, int64_t n_rows, int64_t n_columns, int64_t n_clusters, uint64_t seed,
                             int n_threads, int32_t* cluster_of_row);

}  // namespace xclearn

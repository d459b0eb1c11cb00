// The kernels, free of Python. kernels/reference.py says the same in NumPy and is the test oracle of each.
#pragma once

#include <cstdint>
#include <vector>

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

// Problems whose examples are rows of one sparse matrix; those of a group share its rows and stand together.
struct LinearProblems {
    const int64_t* indptr;  // the matrix
    const int32_t* indices;
    const float* data;
    int64_t n_rows, n_columns;
    const int64_t* group_indptr;  // the rows of each group
    const int32_t* group_rows;
    int64_t n_groups;
    const int64_t* problem_indptr;   // the problems of each group
    const int64_t* positive_indptr;  // the positive rows of each problem
    const int32_t* positive_rows;
};

struct LinearSettings {
    bool logistic;  // else squared hinge
    double cost, tolerance;
    int64_t max_passes;
    double threshold;  // weights up to this are dropped
    double bias;       // where it starts, and where it stays unless learnt
    bool learn_bias;
};

// Some of the classifiers, one after the other.
struct LinearClassifiers {
    std::vector<int64_t> ends;  // of each classifier's weights
    std::vector<int32_t> indices;
    std::vector<float> data, bias;
};

// A classifier for each problem, in parts that stand in the problems' order.
std::vector<LinearClassifiers> train_linear(const LinearProblems& problems, const LinearSettings& settings,
                                            uint64_t seed, int n_threads);

}  // namespace xclearn

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

// A sparse matrix, row after row.
struct Csr {
    const int64_t* indptr;
    const int32_t* indices;
    const float* data;
    int64_t n_rows;
};

// The products of each document with the weights of its own n_listed labels; 0 where an id is negative.
void listed_logits(const Csr& documents, const Csr& weights, int64_t n_columns, const int64_t* ids, int64_t n_listed,
                   int n_threads, double* logits);

// Walks with restart over labels and documents: from a label to one of its documents to one of that document's labels.
struct Walks {
    const int64_t* document_indptr;  // the labels of each document
    const int32_t* document_labels;
    const int64_t* label_indptr;  // the documents of each label
    const int32_t* label_documents;
    int64_t n_labels, steps;
    double restart;
    int64_t top;  // other labels kept for each
};

// How often some labels visited others, label after label.
struct WalkCounts {
    std::vector<int64_t> ends;  // of each label's visits
    std::vector<int32_t> labels;
    std::vector<float> counts;
};

// One walk from each label, in parts that stand in the labels' order.
std::vector<WalkCounts> random_walks(const Walks& walks, uint64_t seed, int n_threads);

// A table of parameters with Adam's two moments, each (n_rows, width).
struct AdamTable {
    float *values, *first, *second;
    int64_t n_rows, width;
};

struct AdamStep {
    float size;                       // the learning rate, corrected for the moments' start at zero
    float first_share, second_share;  // of the gradient in the moments
    float epsilon;
};

// Changes the rows `ids` (n,), which may repeat: their gradients (n, width) are summed first.
void adam_rows(const AdamTable& table, const int64_t* ids, const float* gradients, int64_t n, const AdamStep& step,
               int n_threads);

// Rows that were touched, ascending, and the sum of each.
struct RowSums {
    std::vector<int64_t> rows;
    std::vector<float> values;  // (rows, width)
};

// The gradient of a table of which bags take weighted rows: entry i adds weights[i] · gradients[owner[i]] to ids[i].
RowSums bag_gradient(const int64_t* ids, const int64_t* owner, const float* weights, int64_t n, const float* gradients,
                     int64_t width, int64_t n_rows, int n_threads);

// Documents and rows of a table that meet, row after row.
struct Pairs {
    const float* x;  // (n_documents, width)
    int64_t n_documents, width;
    const int64_t *owner, *row;  // (n,) the document and the row of each pair; rows ascend
    int64_t n;
};

// How a row follows its gradient: SGD, or Adam where there are steps.
struct RowRule {
    float rate, beta_first, beta_second, epsilon;
    float *first, *second, *steps;  // (rows, width) twice, (rows,)
};

// Trains the rows that have pairs on targets of 0 and 1, all but the column `fixed` (−1: none), by the cross-entropy or
// the squared hinge times `scale`. Returns the summed loss; the gradient of x is that before the update.
double train_pairs(const Pairs& pairs, const float* targets, float* table, const RowRule& rule, bool hinge, float scale,
                   int64_t fixed, int n_threads, float* x_gradient);

// x · weight of each pair.
void pair_scores(const Pairs& pairs, const float* weight, int n_threads, float* scores);

// The gradients of both sides of `pair_scores`; that of the weight is added to what is there.
void pair_products(const Pairs& pairs, const float* weight, const float* outer, int n_threads, float* x_gradient,
                   float* weight_gradient);

// Edges from clusters to labels, n_slots of each cluster; a label of −1: none.
struct PathIndex {
    const int32_t* labels;
    const float* strengths;
    int64_t n_slots, n_labels;
};

// The clusters explored for each of n documents, and the labels that are to be found before others.
struct PathQuery {
    const int64_t* starts;
    const int32_t* clusters;
    const float* chances;
    const int64_t* wanted_starts;
    const int32_t* wanted;
    int64_t n;
};

// Labels and the paths that lead to them, ascending by document and label.
struct PathEnds {
    std::vector<int64_t> owners, labels, clusters, slots;
    std::vector<uint8_t> wanted;
};

// The k best labels of each document, in parts that stand in the documents' order.
std::vector<PathEnds> best_paths(const PathIndex& index, const PathQuery& query, int64_t k, int n_threads);

}  // namespace xclearn

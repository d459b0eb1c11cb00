// Rows of an inverted index with the largest products, and what the labels of such rows say (kernels/memory.py says the
// same in NumPy).
#pragma once

#include <cstdint>
#include <vector>

#include "postings.h"

namespace xclearn {

struct Relevance {
    const int64_t* starts;  // where each document's labels start
    const int32_t* labels;
};

// Of each label: the share of the weights that its documents have, and the largest of their similarities.
struct Votes {
    std::vector<int32_t> labels;  // ascending
    std::vector<double> shares, nearest;
};

// The k rows with the largest products above 0, best first, then by number; the rest is −1 and −infinity.
void nearest_rows(const Postings& index, const SparseRow& row, int64_t k, int64_t* ids, float* similarities);
// A document weighs as much as the `power` of its similarity.
Votes votes_of(const Relevance& relevance, const int64_t* ids, const float* similarities, int64_t k, double power);

}  // namespace xclearn

// The best labels ranked anew by sparse classifiers over the bag of words, and calibrated by a decision tree
// (inference/re_ranking.py says the same in NumPy).
#pragma once

#include <cstdint>
#include <vector>

#include "best.h"
#include "postings.h"

namespace xclearn {

// A classifier of each label over [bag ; vector], both of length one.
struct SparseRanker {
    const int64_t* starts = nullptr;    // (L + 1) where each label's weights start; null: there is no ranker
    const int32_t* features = nullptr;  // of the bag, then of the vector
    const float* weights = nullptr;
    const float* bias = nullptr;  // of each label
    int64_t n_bag = 0;            // features of the bag
    bool unit_bag = true;         // the bag is scaled to length one
    int64_t encoder = -1;         // whose vector it is; −1: none
};

// Asks (score now, score before, documents of the label) from the root on; a leaf leads to itself.
struct CalibrationTree {
    const int64_t* columns = nullptr;  // null: there is no tree
    const double* thresholds = nullptr;
    const int64_t* left = nullptr;
    const int64_t* right = nullptr;
    const float* chances = nullptr;
    const float* label_counts = nullptr;
    int64_t depth = 0;
    double weight = 0;
};

struct ReRanking {
    int64_t depth = 0;  // labels ranked anew; 0: there is no such step
    SparseRanker ranker;
    CalibrationTree calibration;
};

// Gives each label its new score. `unit_vector` is that of the ranker's encoder, of length one.
void re_rank(const ReRanking& step, const SparseRow& bag, const std::vector<float>& unit_vector,
             std::vector<Entry>& labels);

// The values of a row (n) scaled to length one, as unit_rows of inference/sparse.py; zeros stay.
std::vector<float> unit_values(const SparseRow& row);

}  // namespace xclearn

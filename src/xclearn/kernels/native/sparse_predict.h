// From a text to its best labels by sparse classifiers, label trees and label texts, in one call. Free of Python;
// inference/sparse.py says the same in NumPy and is the test oracle.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "best.h"
#include "label_tree.h"
#include "postings.h"
#include "predict.h"

namespace xclearn {

// A classifier of each label over sparse features; or the texts of labels, which give cosines.
struct SparseClassifier {
    Postings postings;  // feature -> labels
    const float* bias;  // of each label; null: 0
    bool unit;          // the document's features are scaled to length one
};

// An upper bound of the probability that a logit stands for, from a table.
class ProbabilityBound {
  public:
    void set(Loss loss);
    float at(float logit) const;

  private:
    std::vector<float> table_;
};

class SparseWorkspace;

struct SparseServable {
    SparseServable();
    ~SparseServable();

    Vectoriser vectoriser;
    int64_t n_features = 0, n_labels = 0;
    LabelTrees trees;                              // this,
    bool unit = false;                             // which reads features of length one,
    std::unique_ptr<SparseClassifier> classifier;  // or this is the first scorer
    Loss loss = Loss::log;                         // of the first scorer's logits
    std::unique_ptr<SparseClassifier> text;        // the second scorer, or null
    double text_weight = 0;
    ProbabilityBound bound;

    // One for each thread that predicts at the same time; they are kept.
    std::unique_ptr<SparseWorkspace> take_workspace() const;
    void give_back(std::unique_ptr<SparseWorkspace> workspace) const;

  private:
    mutable std::mutex guard_;
    mutable std::vector<std::unique_ptr<SparseWorkspace>> idle_;
};

// As predict_texts and predict_rows of predict.h. Features out of range throw std::invalid_argument.
void predict_sparse_texts(const SparseServable& servable, const std::vector<Text>& texts, IsWord is_word,
                          const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores);
void predict_sparse_rows(const SparseServable& servable, const int64_t* indptr, const int32_t* indices,
                         const float* data, int64_t n, const Excluded& excluded, int64_t k, int n_threads, int64_t* ids,
                         float* scores);

}  // namespace xclearn

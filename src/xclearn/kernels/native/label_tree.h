// Trees of sparse linear classifiers, searched from the root by a beam (inference/sparse.py says the same in NumPy).
#pragma once

#include <cstdint>
#include <vector>

#include "best.h"
#include "postings.h"

namespace xclearn {

enum class Loss { squared_hinge, logistic, log };  // how a logit becomes a probability; log: it is one's logarithm

double log_probability(double logit, Loss loss);

// The classifiers of a level's nodes.
struct TreeLevel {
    Postings postings;              // feature -> nodes
    std::vector<int64_t> children;  // of each parent: children[i] .. children[i + 1]
    const float* bias;              // of each node
};

struct LabelTree {
    std::vector<TreeLevel> levels;
    const int64_t* labels;  // of each node of the last level
};

struct LabelTrees {
    std::vector<LabelTree> trees;
    Loss loss = Loss::squared_hinge;
    int64_t beam = 1;
};

// Labels that the trees' searches came to, and what each tree says of them.
class ReachedLabels {
  public:
    // Takes what was there before away.
    void start(int64_t n_labels, int64_t n_trees);
    void add(int32_t label, int64_t tree, double log_probability);

    const std::vector<int32_t>& labels() const { return labels_; }
    // No logarithm of the label's mean probability is above it.
    double at_most(size_t i) const { return peaks_[i] + 1e-5; }
    // The logarithm of its mean probability over trees.
    float logit(size_t i) const;

  private:
    int64_t n_trees_ = 0;
    double share_ = 0;            // the logarithm of the number of trees
    std::vector<int32_t> place_;  // of each label in the others, −1: not reached
    std::vector<int32_t> labels_;
    std::vector<double> peaks_, values_;  // the largest of a label, and each tree's
};

// Searches one tree after the other; keeps its memory from one document to the next.
class TreeSearch {
  public:
    void search(const LabelTrees& trees, const SparseRow& row, int64_t n_labels);
    const ReachedLabels& reached() const { return reached_; }

  private:
    void score_children(const TreeLevel& level, const SparseRow& row);
    void keep_best(Loss loss, int64_t beam);
    template <class Visit>
    void each_child(Loss loss, const Visit& visit);

    ReachedLabels reached_;
    std::vector<int64_t> nodes_;                    // parents of what is being scored, best first
    std::vector<double> scores_;                    // of them
    std::vector<int64_t> begins_, ends_, offsets_;  // their children, and where the children's logits start
    std::vector<double> logits_;
    std::vector<int64_t> cursors_;
};

}  // namespace xclearn

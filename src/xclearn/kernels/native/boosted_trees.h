// Sums of decision trees over rows of floats (kernels/boosted.py says the same in NumPy).
//
// After Lucchese et al., "QuickScorer" (SIGIR 2015): every question of a tree is asked, of many rows at once, and a row
// that answers no strikes out the leaves to the left; the first leaf left is where it ends. Nothing is jumped to, so
// the compiler vectorises over rows. Trees with more leaves than bits are walked down.
#pragma once

#include <cstdint>
#include <vector>

namespace xclearn {

class BoostedTrees {
  public:
    // Of each node; a leaf is its own left and right child.
    struct Nodes {
        const int32_t* columns;
        const double* thresholds;  // up to which a value goes left
        const int32_t* left;
        const int32_t* right;
        const bool* missing_left;  // where NaN goes
        const double* values;      // of leaves
        int64_t n;
    };

    // Throws std::invalid_argument where a node leads outside, or to itself by way of others.
    BoostedTrees(const int32_t* roots, int64_t n_trees, const Nodes& nodes);

    int32_t width() const { return width_; }  // columns that a row must have
    // The sum of the leaves' values that each row comes to, tree after tree, from `base` on.
    void sum(const float* rows, int64_t n, int64_t width, double base, int n_threads, double* sums) const;

  private:
    struct Node {
        float threshold;
        int32_t column;  // 2 · column, + 1 where a missing value goes left
        int32_t left, right;
    };
    struct Question {
        float threshold;
        int32_t column;
        uint32_t left;  // the leaves below the left child
    };
    struct Tree {
        int32_t root, depth;
        int64_t questions, n_questions, leaves;  // where they start; no questions: it is walked down
    };

    int32_t depth_below(int32_t root) const;
    bool ask(int32_t node);  // its questions and leaves; false: too many leaves
    double walk(int32_t root, const float* block, int64_t row) const;
    void add_block(const float* block, double* sums) const;

    std::vector<Node> nodes_;
    std::vector<double> values_;
    std::vector<Tree> trees_;
    std::vector<Question> questions_;
    std::vector<double> leaves_;
    int32_t width_ = 1;
};

}  // namespace xclearn

#include "boosted_trees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t ROWS = 32;  // asked at once
constexpr int64_t LEAVES = 32;
constexpr float MOST = std::numeric_limits<float>::max();
constexpr float INFINITE = std::numeric_limits<float>::infinity();

// The largest float up to the threshold: floats compare with both alike. Infinity gives way to what is missing.
float at_most(double threshold) {
    const auto nearest = static_cast<float>(threshold);
    return std::min(nearest > threshold ? std::nextafter(nearest, -INFINITE) : nearest, MOST);
}

// Rows as columns, each twice: a missing value is below every threshold in one, and above in the other.
void transpose(const float* rows, int64_t n, int64_t width, int64_t n_columns, float* block) {
    std::fill(block, block + 2 * n_columns * ROWS, 0.0f);
    for (int64_t row = 0; row < n; ++row)
        for (int64_t column = 0; column < n_columns; ++column) {
            const float value = std::min(rows[row * width + column], MOST);
            block[2 * column * ROWS + row] = std::isnan(value) ? INFINITE : value;
            block[(2 * column + 1) * ROWS + row] = std::isnan(value) ? -INFINITE : value;
        }
}

// Strikes the leaves out to whose right each row goes.
template <class Question>
XCLEARN_CLONES void strike_out(const Question* questions, int64_t n, const float* block, uint32_t* leaves) {
    for (int64_t i = 0; i < n; ++i) {
        const float threshold = questions[i].threshold;
        const float* values = block + questions[i].column * ROWS;
        const uint32_t left = questions[i].left;
        for (int64_t row = 0; row < ROWS; ++row) leaves[row] &= ~(values[row] <= threshold ? 0u : left);
    }
}

}  // namespace

BoostedTrees::BoostedTrees(const int32_t* roots, int64_t n_trees, const Nodes& nodes)
    : nodes_(nodes.n), values_(nodes.values, nodes.values + nodes.n) {
    for (int64_t i = 0; i < nodes.n; ++i) {
        const int32_t left = nodes.left[i], right = nodes.right[i], column = nodes.columns[i];
        const bool half = (left == i) != (right == i);
        if (half || std::min({left, right, column}) < 0 || std::max(left, right) >= nodes.n || column >= 1 << 24)
            throw std::invalid_argument("a tree's node leads nowhere");
        nodes_[i] = {at_most(nodes.thresholds[i]), 2 * column + nodes.missing_left[i], left, right};
        width_ = std::max(width_, column + 1);
    }
    for (int64_t number = 0; number < n_trees; ++number) {
        if (roots[number] < 0 || roots[number] >= nodes.n) throw std::invalid_argument("a tree has no root");
        const auto first = static_cast<int64_t>(questions_.size()), leaves = static_cast<int64_t>(leaves_.size());
        Tree tree{roots[number], depth_below(roots[number]), first, 0, leaves};
        if (ask(tree.root)) tree.n_questions = static_cast<int64_t>(questions_.size()) - first;
        trees_.push_back(tree);
    }
}

// Level after level; more levels than nodes are a circle.
int32_t BoostedTrees::depth_below(int32_t root) const {
    std::vector<int32_t> level{root}, next;
    for (int32_t depth = 0; depth <= static_cast<int32_t>(nodes_.size()); ++depth) {
        next.clear();
        for (const int32_t at : level)
            for (const int32_t child : {nodes_[at].left, nodes_[at].right})
                if (child != at) next.push_back(child);
        if (next.empty()) return depth;
        if (next.size() > nodes_.size()) break;
        level.swap(next);
    }
    throw std::invalid_argument("a tree's node leads nowhere");
}

bool BoostedTrees::ask(int32_t root) {
    struct Step {
        int32_t node;
        int64_t question;  // whose left side ends here; −1: none
    };
    const size_t n_questions = questions_.size(), first = leaves_.size();
    const auto before = [](int64_t n) { return static_cast<uint32_t>((uint64_t{1} << n) - 1); };
    std::vector<Step> steps{{root, -1}};
    while (!steps.empty()) {
        const Step step = steps.back();
        steps.pop_back();
        const auto n_leaves = static_cast<int64_t>(leaves_.size() - first);
        if (step.question >= 0) {
            questions_[step.question].left = before(n_leaves) & ~questions_[step.question].left;
            continue;
        }
        const Node& node = nodes_[step.node];
        if (node.left == step.node) {
            leaves_.push_back(values_[step.node]);
        } else if (n_leaves < LEAVES) {
            const auto question = static_cast<int64_t>(questions_.size());
            questions_.push_back({node.threshold, node.column, before(n_leaves)});
            steps.push_back({node.right, -1});
            steps.push_back({0, question});
            steps.push_back({node.left, -1});
        } else {
            break;
        }
    }
    if (steps.empty() && leaves_.size() - first <= static_cast<size_t>(LEAVES)) return true;
    questions_.resize(n_questions);
    leaves_.resize(first);
    return false;
}

double BoostedTrees::walk(int32_t root, const float* block, int64_t row) const {
    int32_t at = root;
    for (int32_t next; true; at = next) {
        const Node& node = nodes_[at];
        next = block[node.column * ROWS + row] <= node.threshold ? node.left : node.right;
        if (next == at) return values_[at];
    }
}

void BoostedTrees::add_block(const float* block, double* sums) const {
    for (const Tree& tree : trees_) {
        if (!tree.n_questions) {
            for (int64_t row = 0; row < ROWS; ++row) sums[row] += walk(tree.root, block, row);
            continue;
        }
        uint32_t leaves[ROWS];
        std::fill(leaves, leaves + ROWS, ~0u);
        strike_out(questions_.data() + tree.questions, tree.n_questions, block, leaves);
        for (int64_t row = 0; row < ROWS; ++row) sums[row] += leaves_[tree.leaves + std::countr_zero(leaves[row])];
    }
}

void BoostedTrees::sum(const float* rows, int64_t n, int64_t width, double base, int n_threads, double* sums) const {
    parallel_for((n + ROWS - 1) / ROWS, n_threads, [&](int64_t task, int) {
        const int64_t first = task * ROWS, here = std::min(ROWS, n - first);
        std::vector<float> block(2 * width_ * ROWS);
        transpose(rows + first * width, here, width, width_, block.data());
        double found[ROWS];
        std::fill(found, found + ROWS, base);
        add_block(block.data(), found);
        std::copy(found, found + here, sums + first);
    });
}

}  // namespace xclearn

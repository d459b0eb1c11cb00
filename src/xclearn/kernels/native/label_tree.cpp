#include "label_tree.h"

#include <cmath>
#include <limits>

namespace xclearn {

namespace {

constexpr double NEVER = -std::numeric_limits<double>::infinity();
constexpr double LOG_2 = 0.693147180559945309417232121458176568;

double log_of_sum(double x, double y) {  // as numpy.logaddexp
    if (x == y) return x + LOG_2;
    return x > y ? x + std::log1p(std::exp(y - x)) : y + std::log1p(std::exp(x - y));
}

}  // namespace

double log_probability(double logit, Loss loss) {
    if (loss == Loss::log) return logit;
    if (loss == Loss::logistic) return -log_of_sum(0, -logit);
    const double short_of = std::max(1 - logit, 0.0);
    return -(short_of * short_of);
}

void ReachedLabels::start(int64_t n_labels, int64_t n_trees) {
    place_.resize(n_labels, -1);
    for (const int32_t label : labels_) place_[label] = -1;
    labels_.clear();
    peaks_.clear();
    values_.clear();
    n_trees_ = n_trees;
    share_ = std::log(static_cast<double>(n_trees));
}

void ReachedLabels::add(int32_t label, int64_t tree, double log_probability) {
    int32_t& place = place_[label];
    if (place < 0) {
        place = static_cast<int32_t>(labels_.size());
        labels_.push_back(label);
        peaks_.push_back(NEVER);
        values_.resize(values_.size() + n_trees_, NEVER);
    }
    values_[place * n_trees_ + tree] = log_probability;
    peaks_[place] = std::max(peaks_[place], log_probability);
}

float ReachedLabels::logit(size_t i) const {
    auto sum = static_cast<float>(NEVER);
    for (int64_t tree = 0; tree < n_trees_; ++tree) {
        const double own = values_[i * n_trees_ + tree];
        if (own > NEVER) sum = static_cast<float>(sum > NEVER ? log_of_sum(sum, own - share_) : own - share_);
    }
    return sum;
}

void TreeSearch::search(const LabelTrees& trees, const SparseRow& row, int64_t n_labels) {
    const auto n_trees = static_cast<int64_t>(trees.trees.size());
    reached_.start(n_labels, n_trees);
    for (int64_t number = 0; number < n_trees; ++number) {
        const LabelTree& tree = trees.trees[number];
        for (const TreeLevel& level : tree.levels) level.postings.fetch_ahead(row, &level == &tree.levels.front());
        nodes_.assign(1, 0);
        scores_.assign(1, 0);
        for (size_t depth = 0; depth < tree.levels.size(); ++depth) {
            if (depth) keep_best(trees.loss, trees.beam);
            score_children(tree.levels[depth], row);
        }
        each_child(trees.loss, [&](int64_t node, int64_t, double score) {
            reached_.add(static_cast<int32_t>(tree.labels[node]), number, score);
        });
    }
}

void TreeSearch::score_children(const TreeLevel& level, const SparseRow& row) {
    const size_t n = nodes_.size();
    begins_.resize(n);
    ends_.resize(n);
    offsets_.resize(n + 1);
    for (size_t i = 0; i < n; ++i) {
        begins_[i] = level.children[nodes_[i]];
        ends_[i] = level.children[nodes_[i] + 1];
        offsets_[i + 1] = offsets_[i] + ends_[i] - begins_[i];
    }
    logits_.assign(offsets_[n], 0);
    if (level.children.size() == 2) {  // of the root: all there are
        cursors_.clear();
        level.postings.add(row, 0, level.postings.n_numbers(), cursors_, logits_.data());
    } else {
        level.postings.add_ranges(row, begins_, ends_, offsets_, logits_.data());
    }
    for (size_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < ends_[i] - begins_[i]; ++j) logits_[offsets_[i] + j] += level.bias[begins_[i] + j];
}

// Calls visit(node, place, score) for every child that was scored.
template <class Visit>
void TreeSearch::each_child(Loss loss, const Visit& visit) {
    for (size_t i = 0; i < nodes_.size(); ++i)
        for (int64_t place = offsets_[i]; place < offsets_[i + 1]; ++place)
            visit(begins_[i] + place - offsets_[i], place, scores_[i] + log_probability(logits_[place], loss));
}

// The best children become the nodes. Scores of a parent's children rise with their logits, and of equals the first is
// kept: a child up to whose logit one was refused needs no look.
void TreeSearch::keep_best(Loss loss, int64_t beam) {
    Best best(beam, nullptr, nullptr);
    for (size_t i = 0; i < nodes_.size(); ++i) {
        double refused = NEVER;
        for (int64_t place = offsets_[i]; place < offsets_[i + 1]; ++place) {
            if (logits_[place] <= refused) continue;
            const auto score = static_cast<float>(scores_[i] + log_probability(logits_[place], loss));
            if (score <= best.bound()) refused = logits_[place];
            else best.offer({score, static_cast<int32_t>(place)});
        }
    }
    std::vector<int64_t> nodes;
    std::vector<double> scores;
    for (const Entry& entry : best.sorted()) {
        const auto after = std::upper_bound(offsets_.begin(), offsets_.end(), entry.label);
        const size_t parent = after - offsets_.begin() - 1;
        nodes.push_back(begins_[parent] + entry.label - offsets_[parent]);
        scores.push_back(scores_[parent] + log_probability(logits_[entry.label], loss));
    }
    nodes_.swap(nodes);
    scores_.swap(scores);
}

}  // namespace xclearn

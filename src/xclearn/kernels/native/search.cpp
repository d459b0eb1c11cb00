#include "search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sums.h"

namespace xclearn {

namespace {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();

double log_logistic(double logit) { return -(std::max(-logit, 0.0) + std::log1p(std::exp(-std::abs(logit)))); }

double logistic(double logit) { return std::exp(log_logistic(logit)); }

}  // namespace

Search::Search(const Servable& servable, const Bag& bag, Best best)
    : servable_(servable),
      best_(std::move(best)),
      queries_(servable.encoders.size()),
      logits_(servable.scorers.size()) {
    for (size_t i = 0; i < queries_.size(); ++i) queries_[i].set(encode(servable.encoders[i], bag));
    if (servable.re_ranking.depth) bag_ = bag;
}

void Search::descend() {
    const std::vector<Range> ranges = best_clusters();
    const Scorer& first = servable_.scorers.front();
    for (size_t i = 0; i < ranges.size(); ++i) {
        if (i + 1 < ranges.size() && !first.row_of_position)
            fetch_rows(first.rows, ranges[i + 1].begin, ranges[i + 1].end);
        const auto [begin, end, log_chance] = ranges[i];
        offer(begin, nullptr, end - begin, servable_.fusion == Fusion::product ? log_chance : 0);
    }
}

void Search::look_at(const Centres& centres, int64_t begin, int64_t n) {
    if (begin == 0) {
        nearest_ = Best(centres.size, nullptr, nullptr);
        unit_.set(unit(queries_[centres.encoder].values, servable_.encoders[centres.encoder].dim));
        now_ = {LOWEST, centres.labels[0]};
    }
    scores_.resize(n);
    score(centres.rows, unit_, begin, nullptr, n, scores_.data());
    for (int64_t i = 0; i < n; ++i) {
        const int32_t label = centres.labels[begin + i];
        if (label != now_.label) {
            nearest_.offer(now_);
            now_ = {LOWEST, label};
        }
        now_.key = std::max(now_.key, scores_[i]);
    }
    if (begin + n == centres.rows.n) nearest_.offer(now_);
}

void Search::look_below(const Centres& centres) {
    const std::vector<Range> ranges = best_clusters();
    unit_.set(unit(queries_[centres.encoder].values, servable_.encoders[centres.encoder].dim));
    nodes_.clear();
    for (size_t i = 0; i < ranges.size(); ++i) {
        if (i + 1 < ranges.size()) fetch_rows(centres.rows, ranges[i + 1].begin, ranges[i + 1].end);
        const int64_t begin = ranges[i].begin, n = ranges[i].end - begin;
        scores_.resize(n);
        score(centres.rows, unit_, begin, nullptr, n, scores_.data());
        for (int64_t j = 0; j < n; ++j)
            if (!std::isnan(scores_[j])) nodes_.push_back({scores_[j], centres.labels[begin + j]});
    }
    cut(nodes_,
        std::min(centres.size, centres.rows.n) * centres.per_label);  // what is left has as many labels as are wanted
    Sums nearest(static_cast<int64_t>(nodes_.size()), LOWEST);
    for (const Entry& centre : nodes_) nearest.raise(centre.label, centre.key);
    std::vector<Entry> found = nearest.entries();
    cut(found, centres.size);
    offer_similar(found);
}

void Search::follow(const Edges& edges) {
    scores_.resize(edges.rows.n);
    score(edges.rows, queries_[edges.encoder], 0, nullptr, edges.rows.n, scores_.data());
    float peak = LOWEST;
    nodes_.clear();
    for (int64_t i = 0; i < edges.rows.n; ++i) {
        if (std::isnan(scores_[i])) continue;
        nodes_.push_back({scores_[i], static_cast<int32_t>(i)});
        peak = std::max(peak, scores_[i]);
    }
    double total = 0;
    for (const Entry& node : nodes_) total += std::exp(static_cast<double>(node.key - peak));
    cut(nodes_, edges.beam);
    Sums paths(static_cast<int64_t>(nodes_.size()) * edges.per_cluster);
    for (const auto& [logit, node] : nodes_) {
        const auto softmax = std::exp(static_cast<double>(logit - peak)) / total;
        const auto chance = static_cast<float>(std::min(1.0, edges.scale * softmax));
        for (int64_t i = node * edges.per_cluster; i < (node + 1) * edges.per_cluster; ++i)
            if (edges.labels[i] >= 0) paths.raise(edges.labels[i], chance * edges.chances[i]);
    }
    std::vector<Entry> found = paths.entries();
    cut(found, edges.size);
    const auto log_odds = [](double chance) { return std::log(chance) - std::log1p(-chance); };
    offer_candidates(found, log_odds);
}

void Search::offer(int64_t begin, const int32_t* at, int64_t n, double above) {
    for (size_t i = 0; i < logits_.size(); ++i) score_positions(servable_.scorers[i], begin, at, n, logits_[i]);
    const float* logits = logits_.front().data();
    for (int64_t i = 0; i < n; ++i) {
        if (!(logits[i] + above >= best_.bound())) continue;  // no logistic is above its logit's exponential
        const int32_t position = at ? at[i] : static_cast<int32_t>(begin + i);
        const int32_t label = servable_.labels ? servable_.labels[position] : position;
        best_.offer({servable_.fusion == Fusion::product ? log_product(i, above) : logits[i], label});
    }
}

void Search::write(int64_t k, const Excluded& excluded, int64_t row, int64_t* ids, float* scores) {
    std::fill(ids, ids + k, int64_t{-1});
    std::fill(scores, scores + k, NOTHING);
    std::vector<Entry> found = best_.sorted();
    for (Entry& entry : found) entry.key = chance_of(entry.key);
    const int64_t ranked = servable_.re_ranking.depth;
    if (servable_.label_game.offsets) {
        const std::vector<Entry> passed_on = spread(servable_.label_game, found);
        found = best_among(passed_on, ranked ? Best(ranked, nullptr, nullptr) : best_of(k, excluded, row));
    }
    if (ranked) {
        const int64_t encoder = servable_.re_ranking.ranker.encoder;
        re_rank(servable_.re_ranking, {bag_.ids.data(), bag_.weights.data(), static_cast<int64_t>(bag_.ids.size())},
                encoder < 0 ? std::vector<float>() : unit(queries_[encoder].values, servable_.encoders[encoder].dim),
                found);
        found = best_among(found, best_of(k, excluded, row));
    }
    for (const Entry& entry : found) {
        *ids++ = entry.label;
        *scores++ = entry.key;
    }
}

std::vector<Entry> Search::best_among(const std::vector<Entry>& entries, Best best) {
    for (const Entry& entry : entries) best.offer(entry);
    return best.sorted();
}

std::vector<float> Search::unit(std::vector<float> vector, int64_t dim) {
    vector.resize(dim);
    float squares = 0;
    for (const float value : vector) squares += value * value;
    if (squares > 0)
        for (float& value : vector) value /= std::sqrt(squares);
    return vector;
}

std::vector<Range> Search::best_clusters() {
    std::vector<Range> ranges{{0, servable_.levels.front().rows.n, 0}};
    for (const Level& level : servable_.levels) {
        best_nodes(level, ranges);
        if (&level == &servable_.levels.back() && servable_.cluster_game.offsets) pass_on();
        ranges = children(level);
    }
    return ranges;
}

void Search::offer_similar(const std::vector<Entry>& found) {
    offer_candidates(found, [](float cosine) { return static_cast<double>(cosine); });
}

float Search::chance_of(float key) const {
    if (servable_.fusion == Fusion::mix) return key;
    return static_cast<float>(std::exp(servable_.fusion == Fusion::product ? key : log_logistic(key)));
}

template <class LogitOf>
void Search::offer_candidates(const std::vector<Entry>& found, const LogitOf& logit_of) {
    const auto n = static_cast<int64_t>(found.size());
    std::vector<int32_t> at(n);
    std::vector<double> candidate(n);
    for (int64_t i = 0; i < n; ++i) {
        at[i] = found[i].label;
        candidate[i] = logit_of(found[i].key);
    }
    for (size_t i = 0; i < logits_.size(); ++i) score_positions(servable_.scorers[i], 0, at.data(), n, logits_[i]);
    if (servable_.fusion == Fusion::mix) {
        offer_mixed(at, candidate);
        return;
    }
    const bool product = servable_.fusion == Fusion::product;
    for (int64_t i = 0; i < n; ++i)
        best_.offer({product ? log_product(i, log_logistic(candidate[i])) : logits_.front()[i], at[i]});
}

void Search::offer_mixed(const std::vector<int32_t>& at, std::vector<double>& similar) {
    const Mix& mix = servable_.mix;
    std::vector<double> scored(at.size());
    double most_scored = 0, most_similar = 0;
    for (size_t i = 0; i < at.size(); ++i) {
        double sum = 0;
        for (size_t j = 0; j < logits_.size(); ++j) sum += mix.scorer_weights[j] * logits_[j][i];
        most_scored = std::max(most_scored, scored[i] = logistic(sum));
        most_similar = std::max(most_similar, similar[i] = logistic(similar[i]));
    }
    if (!mix.by_row || most_scored == 0) most_scored = 1;
    if (!mix.by_row || most_similar == 0) most_similar = 1;
    for (size_t i = 0; i < at.size(); ++i) {
        const double score = mix.weight * scored[i] / most_scored + (1 - mix.weight) * similar[i] / most_similar;
        best_.offer({static_cast<float>(score), at[i]});
    }
}

void Search::best_nodes(const Level& level, const std::vector<Range>& ranges) {
    nodes_.clear();
    for (size_t i = 0; i < ranges.size(); ++i) {
        const int64_t begin = ranges[i].begin, end = ranges[i].end;
        if (i + 1 < ranges.size()) fetch_rows(level.rows, ranges[i + 1].begin, ranges[i + 1].end);
        scores_.resize(end - begin);
        score(level.rows, queries_[level.encoder], begin, nullptr, end - begin, scores_.data());
        for (int64_t j = begin; j < end; ++j)
            if (!std::isnan(scores_[j - begin])) nodes_.push_back({scores_[j - begin], static_cast<int32_t>(j)});
    }
    cut(nodes_, level.beam);
    for (Entry& node : nodes_) node.key = static_cast<float>(log_logistic(node.key));
}

void Search::pass_on() {
    for (Entry& node : nodes_) node.key = std::exp(node.key);
    nodes_ = spread(servable_.cluster_game, nodes_);
    for (Entry& node : nodes_) node.key = std::log(node.key);
}

std::vector<Range> Search::children(const Level& level) {
    std::sort(nodes_.begin(), nodes_.end(), [](const Entry& a, const Entry& b) { return a.label < b.label; });
    std::vector<Range> found;
    for (const auto& [log_chance, node] : nodes_)
        found.push_back({level.offsets[node], level.offsets[node + 1], log_chance});
    return found;
}

void Search::score_positions(const Scorer& scorer, int64_t begin, const int32_t* at, int64_t n,
                             std::vector<float>& logits) {
    logits.resize(n);
    if (scorer.row_of_position) {
        rows_.resize(n);
        for (int64_t i = 0; i < n; ++i) rows_[i] = scorer.row_of_position[at ? at[i] : begin + i];
        begin = 0;
        at = rows_.data();
    }
    score(scorer.rows, queries_[scorer.encoder], begin, at, n, logits.data());
}

float Search::log_product(int64_t i, double sum) const {
    for (const auto& logits : logits_) sum += log_logistic(logits[i]);
    return static_cast<float>(sum);
}

}  // namespace xclearn

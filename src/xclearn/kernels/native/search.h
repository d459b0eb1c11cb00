// The search for the labels of one text: candidates, their scores, the k best.
#pragma once

#include <cstdint>
#include <vector>

#include "best.h"
#include "servable.h"

namespace xclearn {

// Consecutive children of a node, or label positions, and the logarithm of the node's chance.
struct Range {
    int64_t begin, end;
    double log_chance;
};

// Of one text. Which method finds the candidates depends on the servable; `write` comes last.
class Search {
  public:
    Search(const Servable& servable, const Bag& bag, Best best);

    // The labels of the best clusters.
    void descend();

    // n centres from `begin` on; those of a label stand together.
    void look_at(const Centres& centres, int64_t begin, int64_t n);

    // The labels that were found nearest; their cosines stand as logits.
    void offer_nearest() { offer_similar(nearest_.sorted()); }

    // The labels that have the nearest centres in the best clusters.
    void look_below(const Centres& centres);

    // The labels at the end of the best paths.
    void follow(const Edges& edges);

    // The n labels at positions from `begin` on, or at those in `at`; `above` is what their cluster adds to the key.
    void offer(int64_t begin, const int32_t* at, int64_t n, double above);

    // The best labels, from the game over labels where there is one.
    void write(int64_t k, const Excluded& excluded, int64_t row, int64_t* ids, float* scores);

  private:
    static std::vector<Entry> best_among(const std::vector<Entry>& entries, Best best);

    static std::vector<float> unit(std::vector<float> vector, int64_t dim);

    // What stands below the best nodes of the last level.
    std::vector<Range> best_clusters();

    void offer_similar(const std::vector<Entry>& found);

    float chance_of(float key) const;

    // Labels, each with a value from which `logit_of` makes its logit as a candidate; their positions are their ids.
    template <class LogitOf>
    void offer_candidates(const std::vector<Entry>& found, const LogitOf& logit_of);

    void offer_mixed(const std::vector<int32_t>& at, std::vector<double>& similar);

    void best_nodes(const Level& level, const std::vector<Range>& ranges);

    // The game over clusters; a node's key is the logarithm of its chance.
    void pass_on();

    std::vector<Range> children(const Level& level);

    void score_positions(const Scorer& scorer, int64_t begin, const int32_t* at, int64_t n, std::vector<float>& logits);

    float log_product(int64_t i, double sum) const;

    const Servable& servable_;
    Best best_;
    std::vector<Query> queries_;              // one an encoder
    std::vector<std::vector<float>> logits_;  // one a scorer
    std::vector<Entry> nodes_;
    std::vector<float> scores_;
    std::vector<int32_t> rows_;
    Bag bag_;     // for the re-ranking
    Query unit_;  // what centres are compared with
    Best nearest_{0, nullptr, nullptr};
    Entry now_{};  // the label whose centres are being looked at
};

}  // namespace xclearn

#include "re_ranking.h"

#include <cmath>

namespace xclearn {

namespace {

// The values of a document's features: a small open hash table, as nearly every feature that is asked for is not there.
class FeatureTable {
  public:
    FeatureTable(const SparseRow& row, const float* values) {
        size_t size = 16;
        while (size < 4 * static_cast<size_t>(row.n)) size *= 2;
        slots_.assign(size, {-1, 0});
        for (int64_t i = 0; i < row.n; ++i) {
            Slot& slot = slots_[place_of(row.features[i])];
            slot.feature = row.features[i];
            slot.value += values[i];
        }
    }

    float at(int32_t feature) const { return slots_[place_of(feature)].value; }

  private:
    struct Slot {
        int32_t feature;
        float value;
    };

    size_t place_of(int32_t feature) const {
        const size_t mask = slots_.size() - 1;
        size_t place = (static_cast<uint32_t>(feature) * 0x9E3779B1u >> 7) & mask;
        while (slots_[place].feature >= 0 && slots_[place].feature != feature) place = (place + 1) & mask;
        return place;
    }

    std::vector<Slot> slots_;
};

double logit_of(const SparseRanker& ranker, const FeatureTable& bag, const std::vector<float>& vector, int32_t label) {
    double sum = 0;
    for (int64_t i = ranker.starts[label]; i < ranker.starts[label + 1]; ++i) {
        const int64_t column = ranker.features[i] - ranker.n_bag;
        const float value = column < 0 ? bag.at(ranker.features[i]) : vector[column];
        sum += static_cast<double>(ranker.weights[i]) * value;
    }
    return sum + ranker.bias[label];
}

// What becomes of the score; `exact` says whether it is more than a float.
float calibrated(const CalibrationTree& tree, int32_t label, double now, float before, bool exact) {
    const float asked[] = {static_cast<float>(now), before, tree.label_counts[label]};
    int64_t node = 0;
    for (int64_t depth = 0; depth < tree.depth; ++depth)
        node = asked[tree.columns[node]] <= tree.thresholds[node] ? tree.left[node] : tree.right[node];
    const float chance = static_cast<float>(tree.weight) * tree.chances[node];
    if (exact) return static_cast<float>(chance + (1 - tree.weight) * now);
    return chance + static_cast<float>(1 - tree.weight) * static_cast<float>(now);
}

}  // namespace

std::vector<float> unit_values(const SparseRow& row) {
    double squares = 0;
    for (int64_t i = 0; i < row.n; ++i) squares += static_cast<double>(row.values[i]) * row.values[i];
    const double norm = squares > 0 ? std::sqrt(squares) : 1;
    std::vector<float> scaled(row.n);
    for (int64_t i = 0; i < row.n; ++i) scaled[i] = static_cast<float>(row.values[i] / norm);
    return scaled;
}

void re_rank(const ReRanking& step, const SparseRow& bag, const std::vector<float>& unit_vector,
             std::vector<Entry>& labels) {
    const SparseRanker& ranker = step.ranker;
    const std::vector<float> unit_bag = unit_values(bag);
    const FeatureTable values(bag, ranker.unit_bag ? unit_bag.data() : bag.values);
    for (auto& [score, label] : labels) {
        double now = score;
        if (ranker.starts) {
            const double short_of = std::max(1 - logit_of(ranker, values, unit_vector, label), 0.0);
            now = score * std::exp(-(short_of * short_of * short_of));
        }
        score = step.calibration.columns ? calibrated(step.calibration, label, now, score, ranker.starts)
                                         : static_cast<float>(now);
    }
}

}  // namespace xclearn

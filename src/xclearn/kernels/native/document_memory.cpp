#include "document_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "best.h"
#include "ranges.h"

namespace xclearn {

namespace {

constexpr double LEAST_WEIGHT = 1e-12;  // of all documents together

}  // namespace

void nearest_rows(const Postings& index, const SparseRow& row, int64_t k, int64_t* ids, float* similarities) {
    Best best(k, nullptr, nullptr);
    best.raise(std::numeric_limits<float>::denorm_min());
    std::vector<int64_t> cursors;
    std::vector<float> sums(RANGE);
    float maxima[GROUPS];
    index.fetch_ahead(row);
    for (int64_t begin = 0; begin < index.n_numbers(); begin += RANGE) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        index.add(row, begin, std::min(begin + RANGE, index.n_numbers()), cursors, sums.data());
        group_maxima(sums.data(), maxima);
        for (int64_t group = 0; group < GROUPS; ++group)
            for (int64_t i = group; maxima[group] >= best.bound() && i < RANGE; i += GROUPS)
                if (sums[i] >= best.bound()) best.offer({sums[i], static_cast<int32_t>(begin + i)});
    }
    std::fill(ids, ids + k, int64_t{-1});
    std::fill(similarities, similarities + k, -std::numeric_limits<float>::infinity());
    for (const Entry& entry : best.sorted()) {
        *ids++ = entry.label;
        *similarities++ = entry.key;
    }
}

Votes votes_of(const Relevance& relevance, const int64_t* ids, const float* similarities, int64_t k, double power) {
    struct Vote {
        int32_t label;
        double weight, similarity;
    };
    std::vector<Vote> votes;
    double total = 0;
    for (int64_t i = 0; i < k && ids[i] >= 0; ++i) {
        const double similarity = similarities[i], weight = std::pow(similarity, power);
        total += weight;
        for (int64_t j = relevance.starts[ids[i]]; j < relevance.starts[ids[i] + 1]; ++j)
            votes.push_back({relevance.labels[j], weight, similarity});
    }
    std::stable_sort(votes.begin(), votes.end(), [](const Vote& a, const Vote& b) { return a.label < b.label; });
    Votes found;
    for (size_t i = 0, end; i < votes.size(); i = end) {
        double share = 0, nearest = 0;
        for (end = i; end < votes.size() && votes[end].label == votes[i].label; ++end) {
            share += votes[end].weight / std::max(total, LEAST_WEIGHT);
            nearest = std::max(nearest, votes[end].similarity);
        }
        found.labels.push_back(votes[i].label);
        found.shares.push_back(share);
        found.nearest.push_back(nearest);
    }
    return found;
}

}  // namespace xclearn

#include "token_index.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fetch.h"
#include "sums.h"

namespace xclearn {

namespace {

// The tokens of a text that are looked up: the heaviest, in the order of the bag.
std::vector<int32_t> heaviest(const Bag& bag, int64_t most) {
    std::vector<int32_t> places(bag.ids.size());
    std::iota(places.begin(), places.end(), 0);
    if (static_cast<int64_t>(places.size()) <= most) return places;
    std::nth_element(places.begin(), places.begin() + most, places.end(),
                     [&](int32_t a, int32_t b) { return better({bag.weights[a], a}, {bag.weights[b], b}); });
    places.resize(most);
    std::sort(places.begin(), places.end());
    return places;
}

}  // namespace

std::vector<int32_t> shortlist(const TokenIndex& index, const Bag& bag) {
    const std::vector<int32_t> places = heaviest(bag, index.tokens);
    const auto n_postings = [&](int32_t token) {
        return std::min(index.postings, index.offsets[token + 1] - index.offsets[token]);
    };
    int64_t most = index.n_always;
    for (const int32_t place : places) {
        const int32_t token = bag.ids[place];
        most += n_postings(token);
        fetch(index.labels + index.offsets[token], n_postings(token) * sizeof(int32_t));
        fetch(index.weights + index.offsets[token], n_postings(token) * sizeof(float));
    }
    Sums sums(most);
    for (int64_t i = 0; i < index.n_always; ++i) sums.add(index.always[i], std::numeric_limits<float>::infinity());
    for (const int32_t place : places) {
        const int32_t token = bag.ids[place];
        const int64_t first = index.offsets[token], last = first + n_postings(token);
        for (int64_t i = first; i < last; ++i) sums.add(index.labels[i], bag.weights[place] * index.weights[i]);
    }
    return sums.largest(index.shortlist);
}

}  // namespace xclearn

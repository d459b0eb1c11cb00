#include "predict.h"

#include <algorithm>

#include "parallel.h"
#include "search.h"

namespace xclearn {

namespace {

constexpr int64_t TEXTS_AT_ONCE = 16;      // share each block of rows when every label is scored
constexpr int64_t BLOCK_BYTES = 16 << 10;  // of rows that stay in the first-level cache meanwhile

void scan_all(const Servable& servable, std::vector<Search>& searches) {
    const int64_t step = std::max<int64_t>(1, BLOCK_BYTES / row_bytes(servable.scorers.front().rows));
    for (int64_t begin = 0; begin < servable.n_labels; begin += step)
        for (Search& search : searches) search.offer(begin, nullptr, std::min(servable.n_labels - begin, step), 0);
}

void scan_centres(const Centres& centres, std::vector<Search>& searches) {
    const int64_t step = std::max<int64_t>(1, BLOCK_BYTES / row_bytes(centres.rows));
    for (int64_t begin = 0; begin < centres.rows.n; begin += step)
        for (Search& search : searches) search.look_at(centres, begin, std::min(centres.rows.n - begin, step));
    for (Search& search : searches) search.offer_nearest();
}

template <class BagOf>
void predict(const Servable& servable, const BagOf& bag, int64_t n, const Excluded& excluded, int64_t k, int n_threads,
             int64_t* ids, float* scores) {
    const int64_t share = std::clamp<int64_t>((n + n_threads - 1) / n_threads, 1, TEXTS_AT_ONCE);
    parallel_for((n + share - 1) / share, n_threads, [&](int64_t task, int) {
        const int64_t first = task * share, last = std::min(n, first + share);
        std::vector<Search> searches;
        searches.reserve(last - first);
        const int64_t depth = servable.label_game.offsets ? servable.game_depth : servable.re_ranking.depth;
        for (int64_t i = first; i < last; ++i) {
            const Bag own = bag(i);
            // excluded labels take part in what follows, and k is not its matter
            const Best best = depth ? Best(depth, nullptr, nullptr) : best_of(k, excluded, i);
            searches.emplace_back(servable, own, best);
            if (servable.index.offsets) {
                const std::vector<int32_t> found = shortlist(servable.index, own);
                searches.back().offer(0, found.data(), static_cast<int64_t>(found.size()), 0);
            } else if (servable.edges.labels) {
                searches.back().follow(servable.edges);
            } else if (!servable.levels.empty() && servable.centres.labels) {
                searches.back().look_below(servable.centres);
            } else if (!servable.levels.empty()) {
                searches.back().descend();
            }
        }
        if (!servable.index.offsets && !servable.edges.labels && servable.levels.empty()) {
            if (servable.centres.labels) scan_centres(servable.centres, searches);
            else scan_all(servable, searches);
        }
        for (int64_t i = first; i < last; ++i) searches[i - first].write(k, excluded, i, ids + i * k, scores + i * k);
    });
}

}  // namespace

void predict_texts(const Servable& servable, const std::vector<Text>& texts, IsWord is_word, const Excluded& excluded,
                   int64_t k, int n_threads, int64_t* ids, float* scores) {
    const auto bag = [&](int64_t i) { return bag_of(servable.vectoriser, texts[i], is_word); };
    predict(servable, bag, static_cast<int64_t>(texts.size()), excluded, k, n_threads, ids, scores);
}

void predict_rows(const Servable& servable, const int64_t* indptr, const int32_t* indices, const float* data, int64_t n,
                  const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores) {
    const auto bag = [&](int64_t i) {
        return Bag{{indices + indptr[i], indices + indptr[i + 1]}, {data + indptr[i], data + indptr[i + 1]}};
    };
    predict(servable, bag, n, excluded, k, n_threads, ids, scores);
}

}  // namespace xclearn

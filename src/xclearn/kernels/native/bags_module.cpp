// TF-IDF bags of many texts at once. text/vectorisers.py is the only caller.
#include <algorithm>

#include "parallel.h"
#include "python_texts.h"

namespace {

constexpr int64_t AT_ONCE = 1024;  // texts of a task

// The bags of some texts, one after another.
struct Bags {
    std::vector<int64_t> lengths;
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Bags bags_of(const xclearn::Vectoriser& vectoriser, const xclearn::Text* first, const xclearn::Text* last) {
    Bags bags;
    for (const xclearn::Text* text = first; text < last; ++text) {
        const xclearn::Bag bag = xclearn::bag_of(vectoriser, *text, word_rule(vectoriser));
        bags.lengths.push_back(static_cast<int64_t>(bag.ids.size()));
        bags.ids.insert(bags.ids.end(), bag.ids.begin(), bag.ids.end());
        bags.weights.insert(bags.weights.end(), bag.weights.begin(), bag.weights.end());
    }
    return bags;
}

// Where each text begins, and the end; ids and weights of its tokens, ids ascending.
nb::tuple text_bags(const nb::list& tokens, bool pieces, bool prepared, const In<double, 1>& idf,
                    const In<double, 1>& damped, bool normalise, const nb::list& texts, int n_threads) {
    xclearn::Vectoriser vectoriser;
    learn_vocabulary(vectoriser, tokens, pieces, normalise);
    require(vectoriser.vocabulary.size() == length(idf), "tokens and their weights differ in number");
    vectoriser.idf = idf.data();
    vectoriser.n_damped = length(damped);
    vectoriser.damped = length(damped) ? damped.data() : nullptr;
    vectoriser.prepared = prepared;
    const Texts given(texts);
    const auto n = static_cast<int64_t>(given.views.size());
    const int64_t n_parts = (n + AT_ONCE - 1) / AT_ONCE;
    std::vector<Bags> parts(n_parts);
    {
        const nb::gil_scoped_release released;
        xclearn::parallel_for(n_parts, n_threads, [&](int64_t part, int) {
            const xclearn::Text* first = given.views.data() + part * AT_ONCE;
            parts[part] = bags_of(vectoriser, first, first + std::min(AT_ONCE, n - part * AT_ONCE));
        });
    }
    size_t size = 0;
    for (const Bags& part : parts) size += part.ids.size();
    auto starts = new_array<int64_t, 1>({static_cast<size_t>(n) + 1});
    auto ids = new_array<int32_t, 1>({size});
    auto weights = new_array<float, 1>({size});
    int64_t* start = starts.data();
    int64_t filled = *start++ = 0;
    for (Bags& part : parts) {
        std::copy(part.ids.begin(), part.ids.end(), ids.data() + filled);
        std::copy(part.weights.begin(), part.weights.end(), weights.data() + filled);
        for (const int64_t bag : part.lengths) *start++ = filled += bag;
        part = {};  // both copies of all would be there otherwise
    }
    return nb::make_tuple(starts, ids, weights);
}

}  // namespace

void bind_bags(nb::module_& module) { module.def("text_bags", &text_bags); }

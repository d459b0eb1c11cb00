// Labels are looked at range by range, so that what is summed for a range stays in the first-level cache. A label whose
// score cannot reach the k-th best so far, by a bound that costs a table's entry, is passed over; the others are scored
// exactly as in NumPy.
#include "sparse_predict.h"

#include <cmath>
#include <stdexcept>

#include "parallel.h"
#include "ranges.h"
#include "re_ranking.h"

namespace xclearn {

namespace {

constexpr float LEAST = -8, STEP = 1.0f / 32;
constexpr int64_t STEPS = 512;      // of the table, from LEAST on
constexpr float MARGIN = 1.00001f;  // for rounding
constexpr float NOTHING = -std::numeric_limits<float>::infinity();

XCLEARN_CLONES void add_bias(const float* bias, int64_t n, float* values) {
    for (int64_t i = 0; i < n; ++i) values[i] += bias[i];
}

}  // namespace

void ProbabilityBound::set(Loss loss) {
    table_.resize(STEPS);
    for (int64_t i = 0; i < STEPS; ++i)
        table_[i] =
            MARGIN * static_cast<float>(std::exp(log_probability(LEAST + STEP * static_cast<float>(i + 1), loss)));
    table_.back() = std::numeric_limits<float>::infinity();
}

float ProbabilityBound::at(float logit) const {
    const float place = (logit - LEAST) / STEP;
    if (!(place > 0)) return std::isnan(logit) ? table_.back() : table_.front();
    return table_[static_cast<size_t>(std::min(place, static_cast<float>(STEPS - 1)))];
}

// One document on its way.
class SparseWorkspace {
  public:
    void predict(const SparseServable& servable, const SparseRow& row, Best best, int64_t k, int64_t* ids,
                 float* scores) {
        const std::vector<float> unit = unit_values(row);
        const SparseRow scaled{row.features, unit.data(), row.n};
        first_row_ = (servable.classifier ? servable.classifier->unit : servable.unit) ? scaled : row;
        text_row_ = servable.text && servable.text->unit ? scaled : row;
        if (servable.text) {
            servable.text->postings.fetch_ahead(text_row_);
            weight_ = static_cast<float>(servable.text_weight / (1 + servable.text_weight));
        }
        if (servable.classifier) {
            scan(servable, best);
        } else {
            trees_.search(servable.trees, first_row_, servable.n_labels);
            if (servable.text) scan(servable, best);
            else offer_reached(best);
        }
        write(servable, best, k, ids, scores);
    }

  private:
    void scan(const SparseServable& servable, Best& best) {
        first_cursors_.clear();
        text_cursors_.clear();
        if (!servable.classifier) {
            sort_reached(servable.n_labels);
            raise_bound(servable, best);
        }
        for (int64_t begin = 0; begin < servable.n_labels; begin += RANGE) {
            const int64_t end = std::min(begin + RANGE, servable.n_labels);
            if (servable.text) sum(*servable.text, text_row_, begin, end, text_cursors_, text_sums_);
            if (servable.classifier) {
                sum(*servable.classifier, first_row_, begin, end, first_cursors_, first_sums_);
                offer_all(servable, begin, end, best);
            } else {
                offer_reached(servable, begin, best);
                offer_texts(begin, best);
            }
        }
    }

    static void sum(const SparseClassifier& classifier, const SparseRow& row, int64_t begin, int64_t end,
                    std::vector<int64_t>& cursors, std::vector<float>& sums) {
        sums.assign(RANGE, 0);
        std::fill(sums.begin() + (end - begin), sums.end(), NOTHING);
        classifier.postings.add(row, begin, end, cursors, sums.data());
        if (classifier.bias) add_bias(classifier.bias + begin, end - begin, sums.data());
    }

    // Trees without label texts: ranked by their logits.
    void offer_reached(Best& best) {
        const ReachedLabels& reached = trees_.reached();
        for (size_t i = 0; i < reached.labels().size(); ++i)
            if (reached.at_most(i) >= best.bound()) best.offer({reached.logit(i), reached.labels()[i]});
    }

    // The labels that trees reached, range by range.
    void sort_reached(int64_t n_labels) {
        const std::vector<int32_t>& labels = trees_.reached().labels();
        range_starts_.assign((n_labels + RANGE - 1) / RANGE + 1, 0);
        for (const int32_t label : labels) ++range_starts_[label / RANGE + 1];
        for (size_t i = 1; i < range_starts_.size(); ++i) range_starts_[i] += range_starts_[i - 1];
        next_.assign(range_starts_.begin(), range_starts_.end() - 1);
        by_range_.resize(labels.size());
        for (size_t i = 0; i < labels.size(); ++i) by_range_[next_[labels[i] / RANGE]++] = static_cast<int32_t>(i);
    }

    // Label texts only add to what trees give: their k-th best probability is a bound before any text is read.
    void raise_bound(const SparseServable& servable, Best& best) const {
        const ReachedLabels& reached = trees_.reached();
        Best first = best;
        for (size_t i = 0; i < reached.labels().size(); ++i)
            if (reached.at_most(i) >= first.bound()) first.offer({reached.logit(i), reached.labels()[i]});
        if (first.full()) best.raise(fused(servable, first.bound(), 0) / MARGIN);
    }

    void offer_reached(const SparseServable& servable, int64_t begin, Best& best) {
        const ReachedLabels& reached = trees_.reached();
        for (int32_t place = range_starts_[begin / RANGE]; place < range_starts_[begin / RANGE + 1]; ++place) {
            const int32_t i = by_range_[place], label = reached.labels()[i];
            float& text = text_sums_[label - begin];
            const float share = std::max(text, 0.0f) * weight_;
            if (reaches(servable, static_cast<float>(reached.at_most(i)), share, best))
                best.offer({fused(servable, reached.logit(i), share), label});
            text = NOTHING;  // it has been looked at
        }
    }

    // Labels that no tree came to.
    void offer_texts(int64_t begin, Best& best) {
        group_maxima(text_sums_.data(), text_maxima_);
        for (int64_t group = 0; group < GROUPS; ++group) {
            if (!(std::max(text_maxima_[group], 0.0f) * weight_ >= best.bound())) continue;
            for (int64_t i = group; i < RANGE; i += GROUPS)
                if (text_sums_[i] > NOTHING)
                    best.offer({std::max(text_sums_[i], 0.0f) * weight_, static_cast<int32_t>(begin + i)});
        }
    }

    void offer_all(const SparseServable& servable, int64_t begin, int64_t end, Best& best) {
        group_maxima(first_sums_.data(), first_maxima_);
        if (servable.text) group_maxima(text_sums_.data(), text_maxima_);
        const auto share = [&](float text) { return servable.text ? std::max(text, 0.0f) * weight_ : 0; };
        for (int64_t group = 0; group < GROUPS; ++group) {
            if (!reaches(servable, first_maxima_[group], share(text_maxima_[group]), best)) continue;
            for (int64_t i = group; i < end - begin; i += GROUPS) {
                const float logit = first_sums_[i], own = servable.text ? share(text_sums_[i]) : 0;
                if (!reaches(servable, logit, own, best)) continue;
                best.offer({servable.text ? fused(servable, logit, own) : logit, static_cast<int32_t>(begin + i)});
            }
        }
    }

    // Whether a label with at most this logit and this share of its text could be among the best.
    static bool reaches(const SparseServable& servable, float logit, float share, const Best& best) {
        if (!servable.text) return logit >= best.bound();
        const double most = share + servable.bound.at(logit) / (1 + servable.text_weight);
        return most * MARGIN >= best.bound();
    }

    // As TextMix of inference/sparse.py.
    static float fused(const SparseServable& servable, float logit, float share) {
        if (logit == NOTHING) return share;
        const double probability = std::exp(log_probability(logit, servable.loss));
        return static_cast<float>(share + probability / (1 + servable.text_weight));
    }

    static void write(const SparseServable& servable, Best& best, int64_t k, int64_t* ids, float* scores) {
        std::fill(ids, ids + k, int64_t{-1});
        std::fill(scores, scores + k, NOTHING);
        for (const Entry& entry : best.sorted()) {
            *ids++ = entry.label;
            *scores++ =
                servable.text ? entry.key : static_cast<float>(std::exp(log_probability(entry.key, servable.loss)));
        }
    }

    SparseRow first_row_{}, text_row_{};
    float weight_ = 0;  // of a cosine
    TreeSearch trees_;
    std::vector<int64_t> first_cursors_, text_cursors_;
    std::vector<float> first_sums_, text_sums_;           // of the range that is looked at
    float first_maxima_[GROUPS], text_maxima_[GROUPS]{};  // of its groups
    std::vector<int32_t> range_starts_, next_, by_range_;
};

SparseServable::SparseServable() = default;
SparseServable::~SparseServable() = default;

std::unique_ptr<SparseWorkspace> SparseServable::take_workspace() const {
    const std::lock_guard<std::mutex> lock(guard_);
    if (idle_.empty()) return std::make_unique<SparseWorkspace>();
    auto taken = std::move(idle_.back());
    idle_.pop_back();
    return taken;
}

void SparseServable::give_back(std::unique_ptr<SparseWorkspace> workspace) const {
    const std::lock_guard<std::mutex> lock(guard_);
    idle_.push_back(std::move(workspace));
}

namespace {

constexpr int64_t TEXTS_AT_ONCE = 16;  // of a task

template <class RowOf>
void predict(const SparseServable& servable, const RowOf& row_of, int64_t n, const Excluded& excluded, int64_t k,
             int n_threads, int64_t* ids, float* scores) {
    const int64_t share = std::clamp<int64_t>((n + n_threads - 1) / n_threads, 1, TEXTS_AT_ONCE);
    parallel_for((n + share - 1) / share, n_threads, [&](int64_t task, int) {
        auto workspace = servable.take_workspace();
        for (int64_t i = task * share; i < std::min(n, (task + 1) * share); ++i)
            row_of(i, [&](const SparseRow& row) {
                workspace->predict(servable, row, best_of(k, excluded, i), k, ids + i * k, scores + i * k);
            });
        servable.give_back(std::move(workspace));
    });
}

}  // namespace

void predict_sparse_texts(const SparseServable& servable, const std::vector<Text>& texts, IsWord is_word,
                          const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores) {
    const auto row_of = [&](int64_t i, const auto& visit) {
        const Bag bag = bag_of(servable.vectoriser, texts[i], is_word);
        visit(SparseRow{bag.ids.data(), bag.weights.data(), static_cast<int64_t>(bag.ids.size())});
    };
    predict(servable, row_of, static_cast<int64_t>(texts.size()), excluded, k, n_threads, ids, scores);
}

void predict_sparse_rows(const SparseServable& servable, const int64_t* indptr, const int32_t* indices,
                         const float* data, int64_t n, const Excluded& excluded, int64_t k, int n_threads, int64_t* ids,
                         float* scores) {
    for (int64_t i = indptr[0]; i < indptr[n]; ++i)
        if (indices[i] < 0 || indices[i] >= servable.n_features) throw std::invalid_argument("features out of range");
    const auto row_of = [&](int64_t i, const auto& visit) {
        visit(SparseRow{indices + indptr[i], data + indptr[i], indptr[i + 1] - indptr[i]});
    };
    predict(servable, row_of, n, excluded, k, n_threads, ids, scores);
}

}  // namespace xclearn

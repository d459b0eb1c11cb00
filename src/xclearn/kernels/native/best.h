// The k best labels, and the pairs that are not to be among them. Knows nothing about how labels are scored.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace xclearn {

constexpr float LOWEST = std::numeric_limits<float>::lowest();

// (document, label) pairs that are not to be predicted, the labels of a document ascending.
struct Excluded {
    const int64_t* offsets;  // null: none
    const int32_t* labels;
};

struct Entry {
    float key;  // orders as the score does
    int32_t label;
};

inline bool better(const Entry& a, const Entry& b) { return a.key != b.key ? a.key > b.key : a.label < b.label; }

// The k best entries that were offered, less the excluded labels.
class Best {
  public:
    Best(int64_t k, const int32_t* excluded, const int32_t* excluded_end)
        : k_(k), excluded_(excluded), excluded_end_(excluded_end) {}

    float bound() const { return bound_; }  // a key below it changes nothing
    bool full() const { return static_cast<int64_t>(heap_.size()) == k_; }
    void raise(float bound) { bound_ = std::max(bound_, bound); }  // where k keys from here on are known to come

    void offer(const Entry& entry) {
        if (!(entry.key >= bound_) || (full() && !better(entry, heap_.front()))) return;
        if (std::binary_search(excluded_, excluded_end_, entry.label)) return;
        if (full()) {
            std::pop_heap(heap_.begin(), heap_.end(), better);
            heap_.back() = entry;
        } else {
            heap_.push_back(entry);
        }
        std::push_heap(heap_.begin(), heap_.end(), better);
        if (full()) bound_ = std::max(bound_, heap_.front().key);
    }

    const std::vector<Entry>& sorted() {
        std::sort_heap(heap_.begin(), heap_.end(), better);
        return heap_;
    }

  private:
    int64_t k_;
    const int32_t* excluded_;
    const int32_t* excluded_end_;
    float bound_ = LOWEST;
    std::vector<Entry> heap_;  // the worst in front
};

// For the labels of a document that are not excluded.
inline Best best_of(int64_t k, const Excluded& excluded, int64_t document) {
    if (!excluded.offsets) return Best(k, nullptr, nullptr);
    const int64_t* offsets = excluded.offsets + document;
    return Best(k, excluded.labels + offsets[0], excluded.labels + offsets[1]);
}

// The best `most` entries, in any order.
inline void cut(std::vector<Entry>& entries, int64_t most) {
    if (static_cast<int64_t>(entries.size()) <= most) return;
    std::nth_element(entries.begin(), entries.begin() + most, entries.end(), better);
    entries.resize(most);
}

}  // namespace xclearn

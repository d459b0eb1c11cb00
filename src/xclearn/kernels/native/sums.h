// Labels and the sum of what is added to each.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "best.h"

namespace xclearn {

// An integer that orders as the float does; a value that is not a number comes last.
inline uint32_t ordered_bits(float value) {
    if (std::isnan(value)) return 0;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// An open hash table.
class Sums {
  public:
    explicit Sums(int64_t most, float start = 0) : used_(most + 1) {
        size_t size = 16;
        while (size < 2 * static_cast<size_t>(most)) size *= 2;
        table_.resize(size, {start, 0});
    }

    void add(int32_t label, float value) { slot_of(label).sum += value; }

    void raise(int32_t label, float value) {  // to at least this value
        Slot& slot = slot_of(label);
        slot.sum = std::max(slot.sum, value);
    }

    // Without sums that are not a number, which no order holds: overflow makes them, of finite weights too.
    std::vector<Entry> entries() const {
        std::vector<Entry> found;
        found.reserve(n_used_);
        for (size_t i = 0; i < n_used_; ++i) {
            const auto [sum, number] = table_[used_[i]];
            if (!std::isnan(sum)) found.push_back({sum, number - 1});
        }
        return found;
    }

    // The labels of the `most` largest sums, ties by label. The upper bits of the sums are counted; only the sums that
    // share those of the smallest one kept are compared.
    std::vector<int32_t> largest(int64_t most) {
        const auto upper = [](float sum) { return ordered_bits(sum) >> 20; };
        std::vector<int32_t> counts(1 << 12), labels;
        for (size_t i = 0; i < n_used_; ++i) ++counts[upper(table_[used_[i]].sum)];
        uint32_t last = (1 << 12) - 1;
        int64_t room = most - counts[last];
        while (room > 0 && last > 0) room -= counts[--last];
        std::vector<Entry> between;
        labels.reserve(std::min(most, static_cast<int64_t>(n_used_)));
        for (size_t i = 0; i < n_used_; ++i) {
            const auto [sum, number] = table_[used_[i]];
            if (upper(sum) > last) labels.push_back(number - 1);
            else if (upper(sum) == last) between.push_back({sum, number - 1});
        }
        if (room < 0) {
            std::nth_element(between.begin(), between.end() + room, between.end(), better);
            between.resize(between.size() + room);
        }
        for (const Entry& entry : between) labels.push_back(entry.label);
        return labels;
    }

  private:
    struct Slot {
        float sum;
        int32_t number;  // of the label, counted from 1; 0: free
    };

    Slot& slot_of(int32_t label) {
        const size_t mask = table_.size() - 1;
        size_t place = (static_cast<uint32_t>(label) * 0x9E3779B1u >> 7) & mask;
        while (table_[place].number && table_[place].number != label + 1) place = (place + 1) & mask;
        Slot& slot = table_[place];
        used_[n_used_] = static_cast<uint32_t>(place);
        n_used_ += !slot.number;  // no branch: whether a label is new cannot be predicted
        slot.number = label + 1;
        return slot;
    }

    std::vector<Slot> table_;
    std::vector<uint32_t> used_;
    size_t n_used_ = 0;
};

}  // namespace xclearn

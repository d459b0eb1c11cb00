// Probabilities passed one step over a graph between labels or clusters.
#pragma once

#include <cstdint>
#include <vector>

#include "best.h"

namespace xclearn {

// Probabilities passed one step over a graph: (1 − share) · p + share · (the `kept` best of what is passed on).
struct Game {
    const int64_t* offsets = nullptr;  // where the edges of a node start; null: there is no graph
    const int32_t* targets = nullptr;
    const float* weights = nullptr;
    float share = 0;
    int64_t kept = 0;
};

// The probabilities after the step; nodes that were not there come in, and none exceeds 1.
std::vector<Entry> spread(const Game& game, const std::vector<Entry>& first);

}  // namespace xclearn

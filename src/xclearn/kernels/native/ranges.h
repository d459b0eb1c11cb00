// Sums of many numbers are looked at range by range; those that cannot matter are passed over in groups.
#pragma once

#include <cstdint>

namespace xclearn {

constexpr int64_t RANGE = 4096;  // numbers looked at at a time: 16 KB of sums, in the first-level cache
constexpr int64_t GROUPS = 64;   // of the numbers of a range: those that stand so far apart

// The largest of each group of RANGE values.
void group_maxima(const float* values, float* maxima);

}  // namespace xclearn

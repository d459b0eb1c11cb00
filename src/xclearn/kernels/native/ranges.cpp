#include "ranges.h"

#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t LANES = 32;

}  // namespace

XCLEARN_CLONES void group_maxima(const float* values, float* maxima) {
    for (int64_t group = 0; group < GROUPS; group += LANES) {
        float lanes[LANES];
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] = values[group + lane];
        for (int64_t i = group + GROUPS; i < RANGE; i += GROUPS)
            for (int64_t lane = 0; lane < LANES; ++lane)
                lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
        for (int64_t lane = 0; lane < LANES; ++lane) maxima[group + lane] = lanes[lane];
    }
}

}  // namespace xclearn

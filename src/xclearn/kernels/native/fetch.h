// Memory ahead of its use.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compiler.h"

namespace xclearn {

constexpr int64_t FETCH_BYTES = 32 << 10;  // at most, ahead of use

// Brings memory that is about to be read into the second-level cache.
XCLEARN_INLINE void fetch(const void* start, int64_t bytes) {
#if defined(__GNUC__)
    const char* byte = static_cast<const char*>(start);
    for (const char* end = byte + std::min(bytes, FETCH_BYTES); byte < end; byte += 64) __builtin_prefetch(byte, 0, 2);
#endif
}

}  // namespace xclearn

// From texts to their best labels, in one call. Free of Python; src/xclearn/inference computes the same in NumPy and is
// the test oracle.
#pragma once

#include <cstdint>
#include <vector>

#include "best.h"
#include "servable.h"

namespace xclearn {

// Writes the k best labels of each document, score descending, then id ascending; the rest is −1 and −infinity.
void predict_texts(const Servable& servable, const std::vector<Text>& texts, IsWord is_word, const Excluded& excluded,
                   int64_t k, int n_threads, int64_t* ids, float* scores);
void predict_rows(const Servable& servable, const int64_t* indptr, const int32_t* indices, const float* data, int64_t n,
                  const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores);

}  // namespace xclearn

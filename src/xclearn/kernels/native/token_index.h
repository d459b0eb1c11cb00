// Labels found through the tokens of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "tokens.h"

namespace xclearn {

// Labels that go with each token. Those that go best with the tokens of a text are scored.
struct TokenIndex {
    const int64_t* offsets = nullptr;  // (V + 1) where the postings of a token start; null: there is no index
    const int32_t* labels = nullptr;   // of the postings, the heaviest of a token first
    const float* weights = nullptr;
    const int32_t* always = nullptr;  // labels that are scored for every text
    int64_t n_always = 0;
    int64_t tokens = 0;     // of a text that are looked up, the heaviest
    int64_t postings = 0;   // of a token that are read
    int64_t shortlist = 0;  // labels kept
};

std::vector<int32_t> shortlist(const TokenIndex& index, const Bag& bag);

}  // namespace xclearn

// From the tokens of a text to its vector: the weighted sum of their embeddings, and layers after it.
#pragma once

#include <cstdint>
#include <vector>

#include "tokens.h"

namespace xclearn {

struct Layer {
    enum class Kind { relu, residual, gated, unit } kind;
    std::vector<float> columns;  // (dim, dim) the weight, column after column
    const float* bias = nullptr;
    const float* block_gate = nullptr;
    const float* skip_gate = nullptr;
};

struct Encoder {
    const float* embeddings;  // (V, dim)
    int64_t dim;
    std::vector<Layer> layers;
};

std::vector<float> encode(const Encoder& encoder, const Bag& bag);

}  // namespace xclearn

#include "encoder.h"

#include <algorithm>
#include <cmath>

#include "fetch.h"
#include "parallel.h"
#include "rows.h"

namespace xclearn {

namespace {

XCLEARN_CLONES void add_scaled(const float* row, float weight, int64_t n, float* sum) {
    for (int64_t j = 0; j < n; ++j) sum[j] += weight * row[j];
}

void scale_to_unit(std::vector<float>& vector) {
    double square = 0;
    for (const float value : vector) square += static_cast<double>(value) * value;
    if (square == 0) return;
    const auto norm = static_cast<float>(std::sqrt(square));
    for (float& value : vector) value /= norm;
}

void apply(const Layer& layer, std::vector<float>& vector) {
    if (layer.kind == Layer::Kind::unit) return scale_to_unit(vector);
    const auto dim = static_cast<int64_t>(vector.size());
    std::vector<float> in(vector);
    if (layer.kind != Layer::Kind::residual)
        for (float& value : in) value = std::max(value, 0.0f);
    if (layer.kind == Layer::Kind::relu) {
        vector.swap(in);
        return;
    }
    std::vector<float> out(layer.bias, layer.bias + dim);
    for (int64_t j = 0; j < dim; ++j)
        if (in[j] != 0) add_scaled(layer.columns.data() + j * dim, in[j], dim, out.data());  // a ReLU leaves many zeros
    for (int64_t j = 0; j < dim; ++j)
        vector[j] = layer.kind == Layer::Kind::residual ? vector[j] + std::max(out[j], 0.0f)
                                                        : layer.block_gate[j] * out[j] + layer.skip_gate[j] * vector[j];
}

}  // namespace

std::vector<float> encode(const Encoder& encoder, const Bag& bag) {
    std::vector<float> vector(encoder.dim);
    const auto n = static_cast<int64_t>(bag.ids.size());
    const auto row = [&](int64_t i) { return encoder.embeddings + bag.ids[i] * encoder.dim; };
    for (int64_t i = -ROWS_AHEAD; i < n; ++i) {
        if (i + ROWS_AHEAD < n) fetch(row(i + ROWS_AHEAD), encoder.dim * sizeof(float));
        if (i >= 0) add_scaled(row(i), bag.weights[i], encoder.dim, vector.data());
    }
    for (const Layer& layer : encoder.layers) apply(layer, vector);
    return vector;
}

}  // namespace xclearn

#include "rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fetch.h"
#include "parallel.h"

namespace xclearn {

namespace {

inline float widen(float value) { return value; }

inline float widen(uint16_t bfloat16) {
    const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
XCLEARN_INLINE float dot(const T* row, int64_t width, const float* values, const float* tail) {
    float lanes[LANES] = {};
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES)
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] += widen(row[j + lane]) * values[j + lane];
    if (j < width && width > LANES) {
        row += width - LANES;
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] += widen(row[lane]) * tail[lane];
    } else {
        for (; j < width; ++j) lanes[j] += widen(row[j]) * values[j];
    }
    for (int64_t half = LANES / 2; half; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// Row i is number i, or number `at[i]`; rows that stand apart are fetched ahead, with what belongs to them.
template <class T>
XCLEARN_INLINE const T* row_at(const T* rows, int64_t width, const float* scale, const float* bias, const int32_t* at,
                               int64_t i, int64_t n) {
    if (!at) return rows + i * width;
    if (i + ROWS_AHEAD < n) {
        const int64_t next = at[i + ROWS_AHEAD];
        fetch(rows + next * width, width * sizeof(T));
        fetch(scale + next, sizeof(float));
        fetch(bias + next, sizeof(float));
    }
    return rows + at[i] * width;
}

XCLEARN_CLONES void score_float32(const float* rows, int64_t width, const float* bias, const int32_t* at, int64_t n,
                                  const float* values, const float* tail, float* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = dot(row_at(rows, width, bias, bias, at, i, n), width, values, tail) + bias[at ? at[i] : i];
}

XCLEARN_CLONES void score_bfloat16(const uint16_t* rows, int64_t width, const float* bias, const int32_t* at, int64_t n,
                                   const float* values, const float* tail, float* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = dot(row_at(rows, width, bias, bias, at, i, n), width, values, tail) + bias[at ? at[i] : i];
}

XCLEARN_CLONES void score_int8(const int8_t* rows, int64_t width, const float* scale, const float* bias,
                               const int32_t* at, int64_t n, const int16_t* steps, float step, float* out) {
    for (int64_t i = 0; i < n; ++i) {
        const int8_t* row = row_at(rows, width, scale, bias, at, i, n);
        int32_t sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += static_cast<int32_t>(row[j]) * steps[j];
        const int64_t number = at ? at[i] : i;
        out[i] = static_cast<float>(sum) * (scale[number] * step) + bias[number];
    }
}

}  // namespace

void Query::set(const std::vector<float>& vector) {
    const auto dim = static_cast<int64_t>(vector.size()), width = (dim + LANES - 1) / LANES * LANES;
    values = vector;
    values.resize(width);
    for (int64_t lane = 0; lane < LANES && dim >= LANES; ++lane) {
        const int64_t j = dim - LANES + lane;
        tail[lane] = j >= dim / LANES * LANES ? vector[j] : 0;
    }
    float peak = 0;
    for (const float value : vector) peak = std::max(peak, std::abs(value));
    const float most = static_cast<float>(std::min<int64_t>(32767, ((int64_t{1} << 31) - 1) / (127 * width)));
    scale = peak / most;
    const float inverse = peak > 0 ? most / peak : 0;
    steps.resize(width);
    for (int64_t j = 0; j < width; ++j) steps[j] = static_cast<int16_t>(std::lrintf(values[j] * inverse));
}

void score(const Rows& rows, const Query& query, int64_t begin, const int32_t* at, int64_t n, float* out) {
    const int64_t first = begin * rows.width;
    const float* bias = rows.bias + begin;
    if (rows.precision == Precision::int8)
        score_int8(static_cast<const int8_t*>(rows.values) + first, rows.width, rows.scale + begin, bias, at, n,
                   query.steps.data(), query.scale, out);
    else if (rows.precision == Precision::bfloat16)
        score_bfloat16(static_cast<const uint16_t*>(rows.values) + first, rows.width, bias, at, n, query.values.data(),
                       query.tail, out);
    else
        score_float32(static_cast<const float*>(rows.values) + first, rows.width, bias, at, n, query.values.data(),
                      query.tail, out);
}

int64_t row_bytes(const Rows& rows) {
    return rows.width * (rows.precision == Precision::int8 ? 1 : rows.precision == Precision::bfloat16 ? 2 : 4);
}

void fetch_rows(const Rows& rows, int64_t begin, int64_t end) {
    fetch(static_cast<const char*>(rows.values) + begin * row_bytes(rows), (end - begin) * row_bytes(rows));
}

}  // namespace xclearn

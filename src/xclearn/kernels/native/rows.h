// Rows of numbers in 32, 16 or 8 bits, scored against a vector.
//
// Sums of floats are taken in a fixed number of lanes and without fused multiply-adds, sums of int8 rows in integers:
// every processor variant gives the same bits. What is read from memory decides the time, so rows that are read
// together stand together, and the next ones are fetched while the present ones are scored.
#pragma once

#include <cstdint>
#include <vector>

namespace xclearn {

constexpr int64_t LANES = 32;
constexpr int64_t ROWS_AHEAD = 8;  // of those that stand apart

enum class Precision { float32, bfloat16, int8 };

// Scored against a vector as w · v + b; int8 rows are steps of `scale`.
struct Rows {
    const void* values;  // (n, width); width is that of the vector, or a multiple of 32 and zero beyond the vector
    Precision precision;
    const float* scale;
    const float* bias;
    int64_t n, width;
};

// A vector in the forms that rows are scored against.
struct Query {
    std::vector<float> values;   // zero beyond the vector, up to a multiple of LANES
    float tail[LANES];           // the last LANES values, zero where a whole block before it counts them already
    std::vector<int16_t> steps;  // the same in steps of `scale`: with 8-bit rows no sum leaves 32 bits
    float scale;

    void set(const std::vector<float>& vector);
};

// The scores of n rows: those from `begin` on, or those numbered in `at`.
void score(const Rows& rows, const Query& query, int64_t begin, const int32_t* at, int64_t n, float* out);

int64_t row_bytes(const Rows& rows);

void fetch_rows(const Rows& rows, int64_t begin, int64_t end);

}  // namespace xclearn

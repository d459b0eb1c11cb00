// Recursive balanced 2-means on sparse or dense rows.
//
// All sums are of fixed-point integers: the L2-normalised row has 30 fractional bits, the direction 29. Integer
// addition does not care about its order, so the clusters are the same for every thread count, processor and summation
// order (and reference.py's), a row that changes sides can be moved between the sums without drift, and the compiler
// may vectorise every reduction. |row| <= 1 and |direction| <= 2 bound a similarity by 2^60, and a sum by 2^30 a row.
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr double ROW_ONE = 1 << 30;
constexpr double DIRECTION_ONE = 1 << 29;
constexpr double TOLERANCE = 1e-4;  // least rise of the mean similarity that is worth another iteration
constexpr int MAX_ITERATIONS = 20;
constexpr int64_t ROWS_PER_TASK = 4096;

using Keyed = std::pair<int64_t, int32_t>;  // similarity difference, row: a total order, ties by row

uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// The L2-normalised row in fixed point; a zero row stays zero.
void to_fixed_point(const float* row, int64_t n, int32_t* out) {
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) squares += static_cast<double>(row[j]) * row[j];
    const double norm = squares > 0 ? std::sqrt(squares) : 1;
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<int32_t>(std::lrint(row[j] / norm * ROW_ONE));
}

XCLEARN_CLONES void dense_similarities(const int32_t* values, const int32_t* members, int64_t width,
                                       const int32_t* direction, int64_t begin, int64_t end, Keyed* out) {
    for (int64_t i = begin; i < end; ++i) {
        const int32_t* row = values + members[i] * width;
        int64_t sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += static_cast<int64_t>(row[j]) * direction[j];
        out[i] = {sum, static_cast<int32_t>(i)};
    }
}

XCLEARN_CLONES void dense_add(const int32_t* row, int64_t width, int32_t sign, int64_t* sums) {
    for (int64_t j = 0; j < width; ++j) sums[j] += sign * row[j];
}

// The rows of one cluster, where they are.
struct DenseBlock {
    const int32_t* values;
    const int32_t* members;
    int64_t width;

    void similarities(const int32_t* direction, int64_t begin, int64_t end, Keyed* out) const {
        dense_similarities(values, members, width, direction, begin, end, out);
    }
    void add(int64_t i, int32_t sign, int64_t* sums) const {
        dense_add(values + members[i] * width, width, sign, sums);
    }
};

// The rows of one cluster, copied, its columns renumbered 0..width: a small cluster then works in the cache, and never
// touches an array as long as the vocabulary.
struct SparseBlock {
    std::vector<int64_t> indptr;
    std::vector<int32_t> columns, values;
    int64_t width;

    void similarities(const int32_t* direction, int64_t begin, int64_t end, Keyed* out) const {
        for (int64_t i = begin; i < end; ++i) {
            int64_t sum = 0;
            for (int64_t j = indptr[i]; j < indptr[i + 1]; ++j)
                sum += static_cast<int64_t>(values[j]) * direction[columns[j]];
            out[i] = {sum, static_cast<int32_t>(i)};
        }
    }
    void add(int64_t i, int32_t sign, int64_t* sums) const {
        for (int64_t j = indptr[i]; j < indptr[i + 1]; ++j) sums[columns[j]] += sign * values[j];
    }
};

class DenseRows {
  public:
    DenseRows(const float* rows, int64_t n_rows, int64_t n_columns, int n_threads)
        : width_(n_columns), values_(n_rows * n_columns) {
        parallel_for(n_rows, n_threads,
                     [&](int64_t i, int) { to_fixed_point(rows + i * width_, width_, values_.data() + i * width_); });
    }
    DenseBlock block(const int32_t* members, int64_t, int) { return {values_.data(), members, width_}; }

  private:
    int64_t width_;
    std::vector<int32_t> values_;
};

class SparseRows {
  public:
    SparseRows(const int64_t* indptr, const int32_t* indices, const float* data, int64_t n_rows, int64_t n_columns,
               int n_threads)
        : indptr_(indptr),
          indices_(indices),
          values_(indptr[n_rows]),
          blocks_(n_threads),
          local_(n_threads, std::vector<int32_t>(n_columns, -1)) {
        parallel_for(n_rows, n_threads, [&](int64_t i, int) {
            to_fixed_point(data + indptr[i], indptr[i + 1] - indptr[i], values_.data() + indptr[i]);
        });
    }

    const SparseBlock& block(const int32_t* members, int64_t n, int thread) {
        SparseBlock& block = blocks_[thread];
        std::vector<int32_t>& local = local_[thread];  // column -> its number in the block, −1: not seen
        block.indptr.assign(1, 0);
        block.columns.clear();
        block.values.clear();
        int32_t width = 0;
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = indptr_[members[i]]; j < indptr_[members[i] + 1]; ++j) {
                int32_t& column = local[indices_[j]];
                if (column < 0) column = width++;
                block.columns.push_back(column);
                block.values.push_back(values_[j]);
            }
            block.indptr.push_back(static_cast<int64_t>(block.columns.size()));
        }
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = indptr_[members[i]]; j < indptr_[members[i] + 1]; ++j) local[indices_[j]] = -1;
        block.width = width;
        return block;
    }

  private:
    const int64_t* indptr_;
    const int32_t* indices_;
    std::vector<int32_t> values_;
    std::vector<SparseBlock> blocks_;          // one a thread, so that their memory is reused
    std::vector<std::vector<int32_t>> local_;  // one a thread
};

// What one split works with; kept between splits for its memory.
struct Workspace {
    std::vector<int64_t> left, right;  // sums of the rows on either side
    std::vector<int32_t> direction;    // normalised right sum − normalised left sum
    std::vector<Keyed> keyed;
    std::vector<int32_t> side;  // of each row: 0 left, 1 right
    std::vector<int32_t> moved;
};

double norm(const std::vector<int64_t>& sums) {
    double squares = 0;
    for (const int64_t sum : sums) squares += static_cast<double>(sum) * static_cast<double>(sum);
    return std::sqrt(squares);
}

void set_direction(Workspace& work, double left_norm, double right_norm) {
    const double left_scale = left_norm > 0 ? DIRECTION_ONE / left_norm : 0;
    const double right_scale = right_norm > 0 ? DIRECTION_ONE / right_norm : 0;
    for (size_t j = 0; j < work.direction.size(); ++j)
        work.direction[j] = static_cast<int32_t>(std::lrint(work.right[j] * right_scale - work.left[j] * left_scale));
}

// Two distinct rows give the first direction; then all rows stand on the right.
template <class Block>
void start(const Block& block, int64_t n, uint64_t random, Workspace& work) {
    const auto first = static_cast<int64_t>(splitmix64(random) % n);
    auto second = static_cast<int64_t>(splitmix64(random + 1) % (n - 1));
    second += second >= first;
    work.left.assign(block.width, 0);
    work.right.assign(block.width, 0);
    work.direction.resize(block.width);
    block.add(first, 1, work.left.data());
    block.add(second, 1, work.right.data());
    set_direction(work, norm(work.left), norm(work.right));
    work.left.assign(block.width, 0);
    work.right.assign(block.width, 0);
    work.side.assign(n, 1);
    for (int64_t i = 0; i < n; ++i) block.add(i, 1, work.right.data());
}

// The half of the rows that lie lowest along the direction goes left (the larger half, if n is odd); the sums follow.
template <class Block>
void assign_sides(const Block& block, int64_t n, int n_threads, Workspace& work) {
    work.keyed.resize(n);
    parallel_for((n + ROWS_PER_TASK - 1) / ROWS_PER_TASK, n_threads, [&](int64_t task, int) {
        const int64_t begin = task * ROWS_PER_TASK;
        block.similarities(work.direction.data(), begin, std::min(n, begin + ROWS_PER_TASK), work.keyed.data());
    });
    const int64_t n_left = n - n / 2;
    std::nth_element(work.keyed.begin(), work.keyed.begin() + n_left, work.keyed.end());
    for (int64_t position = 0; position < n; ++position) {
        const int32_t i = work.keyed[position].second;
        const int32_t side = position >= n_left;
        if (side == work.side[i]) continue;
        work.side[i] = side;
        block.add(i, side ? -1 : 1, work.left.data());
        block.add(i, side ? 1 : -1, work.right.data());
    }
}

template <class Block>
void halve(const Block& block, int64_t n, uint64_t random, int n_threads, Workspace& work) {
    start(block, n, random, work);
    double objective = -std::numeric_limits<double>::infinity();
    for (int iteration = 0; iteration < MAX_ITERATIONS; ++iteration) {
        assign_sides(block, n, n_threads, work);
        const double left_norm = norm(work.left), right_norm = norm(work.right);
        // The sum of unit rows, projected on its own direction, is its norm: this is the mean similarity.
        const double risen = (left_norm + right_norm) / (ROW_ONE * static_cast<double>(n));
        if (risen - objective < TOLERANCE) return;
        objective = risen;
        set_direction(work, left_norm, right_norm);
    }
}

// Left rows first, either side in the order it had.
void partition_members(int32_t* members, int64_t n, Workspace& work) {
    work.moved.clear();
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (work.side[i]) work.moved.push_back(members[i]);
        else members[kept++] = members[i];
    }
    std::copy(work.moved.begin(), work.moved.end(), members + kept);
}

template <class Rows>
void balanced_clusters(Rows& rows, int64_t n_rows, int64_t n_clusters, uint64_t seed, int n_threads,
                       int32_t* cluster_of_row) {
    std::vector<int32_t> members(n_rows);  // the rows of each cluster of the level, cluster after cluster
    std::iota(members.begin(), members.end(), 0);
    std::vector<int64_t> starts{0, n_rows};
    std::vector<Workspace> workspaces(n_threads);
    for (int64_t level = 0, width = 1; width < n_clusters; ++level, width *= 2) {
        const uint64_t level_seed = splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(level));
        const bool inside = width < n_threads;  // few clusters: the threads share the rows of each
        parallel_for(width, inside ? 1 : n_threads, [&](int64_t cluster, int thread) {
            const int64_t n = starts[cluster + 1] - starts[cluster];
            if (n < 2) return;
            int32_t* mine = members.data() + starts[cluster];
            const auto& block = rows.block(mine, n, thread);
            const uint64_t random = splitmix64(level_seed ^ static_cast<uint64_t>(cluster));
            halve(block, n, random, inside ? n_threads : 1, workspaces[thread]);
            partition_members(mine, n, workspaces[thread]);
        });
        std::vector<int64_t> halves{0};
        for (int64_t cluster = 0; cluster < width; ++cluster) {
            const int64_t n = starts[cluster + 1] - starts[cluster];
            halves.push_back(starts[cluster] + n - n / 2);
            halves.push_back(starts[cluster + 1]);
        }
        starts.swap(halves);
    }
    for (int64_t cluster = 0; cluster < n_clusters; ++cluster)
        for (int64_t i = starts[cluster]; i < starts[cluster + 1]; ++i)
            cluster_of_row[members[i]] = static_cast<int32_t>(cluster);
}

}  // namespace

void balanced_clusters_csr(const int64_t* indptr, const int32_t* indices, const float* data, int64_t n_rows,
                           int64_t n_columns, int64_t n_clusters, uint64_t seed, int n_threads,
                           int32_t* cluster_of_row) {
    SparseRows rows(indptr, indices, data, n_rows, n_columns, n_threads);
    balanced_clusters(rows, n_rows, n_clusters, seed, n_threads, cluster_of_row);
}

void balanced_clusters_dense(const float* values, int64_t n_rows, int64_t n_columns, int64_t n_clusters, uint64_t seed,
                             int n_threads, int32_t* cluster_of_row) {
    DenseRows rows(values, n_rows, n_columns, n_threads);
    balanced_clusters(rows, n_rows, n_clusters, seed, n_threads, cluster_of_row);
}

}  // namespace xclearn

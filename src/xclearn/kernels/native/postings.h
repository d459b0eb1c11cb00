// An inverted index: what goes with each feature of a sparse row, and sums over the features of one row.
//
// Numbers ascend within a feature, so that sums can be taken over a short range of numbers at a time: the sums of a
// range stay in the first-level cache, whatever the index holds in all. Features with an entry for many of the numbers
// are stored as whole rows, which are added without looking where. Sums are taken feature after feature, in the order
// of the row: neither ranges nor whole rows change a bit.
#pragma once

#include <cstdint>
#include <vector>

namespace xclearn {

// One row of a sparse matrix.
struct SparseRow {
    const int32_t* features;
    const float* values;
    int64_t n;
};

// Refuses starts that do not walk through `size` entries in n steps, and numbers below 0 or from `limit` on; throws
// std::invalid_argument.
void check_entries(const int64_t* starts, int64_t n, const int32_t* numbers, int64_t size, int64_t limit);

class Postings {
  public:
    // Arrays by feature: those of feature f stand at starts[f] .. starts[f + 1]. They are checked, and not copied if
    // numbers ascend within each feature. Throws std::invalid_argument.
    static Postings of(const int64_t* starts, int64_t n_features, const int32_t* numbers, const float* weights,
                       int64_t size, int64_t n_numbers, bool whole_rows);
    // Entries in another order, each with its feature; those of a feature keep theirs.
    static Postings sorted(const int32_t* features, int64_t n_features, const int32_t* numbers, const float* weights,
                           int64_t size, int64_t n_numbers, bool whole_rows);

    Postings() = default;
    Postings(Postings&&) = default;
    Postings& operator=(Postings&&) = default;
    Postings(const Postings&) = delete;  // pointers may lead into its own vectors
    Postings& operator=(const Postings&) = delete;

    int64_t n_features() const { return n_features_; }
    int64_t n_numbers() const { return n_numbers_; }

    // The first numbers of a row's features are fetched, and their weights.
    void fetch_ahead(const SparseRow& row, bool weights = true) const;
    // Adds value · weight to the sums of the numbers in [begin, end), for every feature of the row. `cursors` has a
    // place for each feature of the row: nothing at first, and it is passed on to the next range.
    template <class Sum>
    void add(const SparseRow& row, int64_t begin, int64_t end, std::vector<int64_t>& cursors, Sum* sums) const;
    // The same for some ranges of numbers at once; the sums of range i start at sums + offsets[i].
    void add_ranges(const SparseRow& row, const std::vector<int64_t>& begins, const std::vector<int64_t>& ends,
                    const std::vector<int64_t>& offsets, double* sums) const;

  private:
    void find_whole_rows();
    void sort_within_features();

    const int64_t* starts_ = nullptr;
    const int32_t* numbers_ = nullptr;
    const float* weights_ = nullptr;
    int64_t n_features_ = 0, n_numbers_ = 0;
    std::vector<int64_t> own_starts_;
    std::vector<int32_t> own_numbers_;
    std::vector<float> own_weights_;
    std::vector<int32_t> whole_row_;  // of each feature, −1: none
    std::vector<float> whole_rows_;   // each (n_numbers)
};

extern template void Postings::add<float>(const SparseRow&, int64_t, int64_t, std::vector<int64_t>&, float*) const;
extern template void Postings::add<double>(const SparseRow&, int64_t, int64_t, std::vector<int64_t>&, double*) const;

}  // namespace xclearn

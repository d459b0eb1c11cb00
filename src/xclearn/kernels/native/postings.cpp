#include "postings.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "fetch.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t MANY = 4;                // a feature with an entry for one number in so many is stored whole
constexpr int64_t WHOLE_FLOATS = 1 << 25;  // of whole rows in all: 128 MB
constexpr int64_t AHEAD = 2048;            // bytes of a feature that are fetched

XCLEARN_CLONES void add_whole(const float* row, float value, int64_t n, float* sums) {
    for (int64_t j = 0; j < n; ++j) sums[j] += value * row[j];
}

XCLEARN_CLONES void add_whole(const float* row, float value, int64_t n, double* sums) {
    for (int64_t j = 0; j < n; ++j) sums[j] += static_cast<double>(value * row[j]);
}

// Until the numbers reach `end`; where it stopped.
template <class Sum>
int64_t add_listed(const int32_t* numbers, const float* weights, int64_t place, int64_t last, int64_t begin,
                   int64_t end, float value, Sum* sums) {
    for (; place < last && numbers[place] < end; ++place)
        sums[numbers[place] - begin] += static_cast<Sum>(value * weights[place]);
    return place;
}

// Where in [first, last) the numbers from each of `begins` on start. All are searched in step and without branches, so
// that neither waits for the other's memory.
void find_places(const int32_t* numbers, int64_t first, int64_t last, const std::vector<int64_t>& begins,
                 std::vector<int64_t>& places) {
    std::fill(places.begin(), places.end(), first);
    int64_t n = last - first;
    for (; n > 1; n -= n / 2)
        for (size_t i = 0; i < begins.size(); ++i)
            places[i] += (n / 2) & -static_cast<int64_t>(numbers[places[i] + n / 2 - 1] < begins[i]);
    for (size_t i = 0; n && i < begins.size(); ++i) places[i] += numbers[places[i]] < begins[i];
}

void expect(bool right, const char* message) {
    if (!right) throw std::invalid_argument(message);
}

void check_starts(const int64_t* starts, int64_t n, int64_t end) {
    expect(starts[0] == 0 && starts[n] == end, "postings do not walk through their entries");
    for (int64_t i = 0; i < n; ++i) expect(starts[i] <= starts[i + 1], "postings do not walk through their entries");
}

void check_below(const int32_t* numbers, int64_t size, int64_t limit) {
    bool inside = true;
    for (int64_t i = 0; i < size; ++i) inside &= numbers[i] >= 0 && numbers[i] < limit;
    expect(inside, "postings hold numbers out of range");
}

}  // namespace

void check_entries(const int64_t* starts, int64_t n, const int32_t* numbers, int64_t size, int64_t limit) {
    check_starts(starts, n, size);
    check_below(numbers, size, limit);
}

Postings Postings::of(const int64_t* starts, int64_t n_features, const int32_t* numbers, const float* weights,
                      int64_t size, int64_t n_numbers, bool whole_rows) {
    check_entries(starts, n_features, numbers, size, n_numbers);
    Postings made;
    made.starts_ = starts;
    made.numbers_ = numbers;
    made.weights_ = weights;
    made.n_features_ = n_features;
    made.n_numbers_ = n_numbers;
    bool ascend = true;
    for (int64_t feature = 0; feature < n_features; ++feature)
        for (int64_t i = starts[feature] + 1; i < starts[feature + 1]; ++i) ascend &= numbers[i - 1] <= numbers[i];
    if (!ascend) made.sort_within_features();
    if (whole_rows) made.find_whole_rows();
    return made;
}

Postings Postings::sorted(const int32_t* features, int64_t n_features, const int32_t* numbers, const float* weights,
                          int64_t size, int64_t n_numbers, bool whole_rows) {
    check_below(features, size, n_features);
    std::vector<int64_t> starts(n_features + 1);
    for (int64_t i = 0; i < size; ++i) ++starts[features[i] + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    std::vector<int32_t> own_numbers(size);
    std::vector<float> own_weights(size);
    for (int64_t i = 0; i < size; ++i) {
        const int64_t place = next[features[i]]++;
        own_numbers[place] = numbers[i];
        own_weights[place] = weights[i];
    }
    Postings made = of(starts.data(), n_features, own_numbers.data(), own_weights.data(), size, n_numbers, whole_rows);
    made.own_starts_ = std::move(starts);
    if (made.own_numbers_.empty()) {  // else they were sorted, and are its own already
        made.own_numbers_ = std::move(own_numbers);
        made.own_weights_ = std::move(own_weights);
    }
    made.starts_ = made.own_starts_.data();
    made.numbers_ = made.own_numbers_.data();
    made.weights_ = made.own_weights_.data();
    return made;
}

void Postings::sort_within_features() {
    const int64_t size = starts_[n_features_];
    std::vector<int64_t> order(size);
    std::iota(order.begin(), order.end(), 0);
    for (int64_t feature = 0; feature < n_features_; ++feature)
        std::stable_sort(order.begin() + starts_[feature], order.begin() + starts_[feature + 1],
                         [&](int64_t a, int64_t b) { return numbers_[a] < numbers_[b]; });
    own_numbers_.resize(size);
    own_weights_.resize(size);
    for (int64_t i = 0; i < size; ++i) {
        own_numbers_[i] = numbers_[order[i]];
        own_weights_[i] = weights_[order[i]];
    }
    numbers_ = own_numbers_.data();
    weights_ = own_weights_.data();
}

void Postings::find_whole_rows() {
    whole_row_.assign(n_features_, -1);
    int64_t n_rows = 0;
    for (int64_t feature = 0; feature < n_features_; ++feature) {
        const int64_t size = starts_[feature + 1] - starts_[feature];
        if (size * MANY > n_numbers_ && (n_rows + 1) * n_numbers_ <= WHOLE_FLOATS)
            whole_row_[feature] = static_cast<int32_t>(n_rows++);
    }
    whole_rows_.resize(n_rows * n_numbers_);
    for (int64_t feature = 0; feature < n_features_; ++feature)
        for (int64_t i = starts_[feature]; whole_row_[feature] >= 0 && i < starts_[feature + 1]; ++i)
            whole_rows_[whole_row_[feature] * n_numbers_ + numbers_[i]] += weights_[i];
}

void Postings::fetch_ahead(const SparseRow& row, bool weights) const {
    for (int64_t i = 0; i < row.n; ++i) {
        const int64_t start = starts_[row.features[i]], n = starts_[row.features[i] + 1] - start;
        fetch(numbers_ + start, std::min<int64_t>(n * sizeof(int32_t), AHEAD));
        if (weights) fetch(weights_ + start, std::min<int64_t>(n * sizeof(float), AHEAD));
    }
}

template <class Sum>
void Postings::add(const SparseRow& row, int64_t begin, int64_t end, std::vector<int64_t>& cursors, Sum* sums) const {
    if (cursors.empty())
        for (int64_t i = 0; i < row.n; ++i) cursors.push_back(starts_[row.features[i]]);
    for (int64_t i = 0; i < row.n; ++i) {
        const int32_t feature = row.features[i];
        const int32_t whole = whole_row_.empty() ? -1 : whole_row_[feature];
        if (whole >= 0) add_whole(whole_rows_.data() + whole * n_numbers_ + begin, row.values[i], end - begin, sums);
        else
            cursors[i] =
                add_listed(numbers_, weights_, cursors[i], starts_[feature + 1], begin, end, row.values[i], sums);
    }
}

template void Postings::add<float>(const SparseRow&, int64_t, int64_t, std::vector<int64_t>&, float*) const;
template void Postings::add<double>(const SparseRow&, int64_t, int64_t, std::vector<int64_t>&, double*) const;

void Postings::add_ranges(const SparseRow& row, const std::vector<int64_t>& begins, const std::vector<int64_t>& ends,
                          const std::vector<int64_t>& offsets, double* sums) const {
    std::vector<int64_t> places(begins.size());
    for (int64_t i = 0; i < row.n; ++i) {
        const int64_t last = starts_[row.features[i] + 1];
        find_places(numbers_, starts_[row.features[i]], last, begins, places);
        for (size_t range = 0; range < begins.size(); ++range)
            add_listed(numbers_, weights_, places[range], last, begins[range], ends[range], row.values[i],
                       sums + offsets[range]);
    }
}

}  // namespace xclearn

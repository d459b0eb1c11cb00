// The Python face of what a stack of models asks: nearest rows, the votes of their labels, boosted trees. Arguments are
// checked here; kernels/memory.py and kernels/boosted.py are the only callers.
#include <algorithm>

#include "boosted_trees.h"
#include "document_memory.h"
#include "parallel.h"
#include "python_arrays.h"

namespace {

xclearn::SparseRow row_of(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data,
                          int64_t i) {
    const int64_t begin = indptr.data()[i];
    return {indices.data() + begin, data.data() + begin, indptr.data()[i + 1] - begin};
}

// Rows by feature; keeps the arrays alive.
class RowIndex {
  public:
    RowIndex(const In<int64_t, 1>& starts, const In<int32_t, 1>& rows, const In<float, 1>& weights, int64_t n_rows)
        : arrays_{nb::cast(starts), nb::cast(rows), nb::cast(weights)} {
        require(length(starts) > 0 && length(rows) == length(weights), "the index's arrays do not fit each other");
        index_ = xclearn::Postings::of(starts.data(), length(starts) - 1, rows.data(), weights.data(), length(weights),
                                       n_rows, true);
    }

    // The k nearest of each row: ids and similarities.
    nb::tuple nearest(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data, int64_t k,
                      int n_threads) const {
        const int64_t n = length(indptr) - 1;
        require(n >= 0 && k > 0 && length(indices) == length(data), "the rows are no sparse matrix");
        xclearn::check_entries(indptr.data(), n, indices.data(), length(indices), index_.n_features());
        auto ids = new_array<int64_t, 2>({static_cast<size_t>(n), static_cast<size_t>(k)});
        auto similarities = new_array<float, 2>({static_cast<size_t>(n), static_cast<size_t>(k)});
        {
            nb::gil_scoped_release release;
            xclearn::parallel_for(n, n_threads, [&](int64_t i, int) {
                xclearn::nearest_rows(index_, row_of(indptr, indices, data, i), k, ids.data() + i * k,
                                      similarities.data() + i * k);
            });
        }
        return nb::make_tuple(ids, similarities);
    }

  private:
    std::vector<nb::object> arrays_;
    xclearn::Postings index_;
};

// The labels of documents; keeps the arrays alive.
class DocumentLabels {
  public:
    DocumentLabels(const In<int64_t, 1>& starts, const In<int32_t, 1>& labels, int64_t n_labels)
        : arrays_{nb::cast(starts), nb::cast(labels)},
          relevance_{starts.data(), labels.data()},
          n_documents_(length(starts) - 1) {
        require(n_documents_ >= 0, "the labels' arrays do not fit each other");
        xclearn::check_entries(starts.data(), n_documents_, labels.data(), length(labels), n_labels);
    }

    // What the documents say that stand in each row of `ids`: where a row's labels start, the labels, shares, nearest.
    nb::tuple votes(const In<int64_t, 2>& ids, const In<float, 2>& similarities, double power, int n_threads) const {
        const int64_t n = length(ids), k = static_cast<int64_t>(ids.shape(1));
        const bool inside =
            std::all_of(ids.data(), ids.data() + n * k, [this](int64_t id) { return id >= -1 && id < n_documents_; });
        require(inside && length(similarities) == n && similarities.shape(1) == ids.shape(1), "no such documents");
        std::vector<xclearn::Votes> votes(n);
        {
            nb::gil_scoped_release release;
            xclearn::parallel_for(n, n_threads, [&](int64_t i, int) {
                votes[i] = xclearn::votes_of(relevance_, ids.data() + i * k, similarities.data() + i * k, k, power);
            });
        }
        return joined(votes);
    }

  private:
    static nb::tuple joined(const std::vector<xclearn::Votes>& votes) {
        auto starts = new_array<int64_t, 1>({votes.size() + 1});
        starts.data()[0] = 0;
        for (size_t i = 0; i < votes.size(); ++i)
            starts.data()[i + 1] = starts.data()[i] + static_cast<int64_t>(votes[i].labels.size());
        const auto size = static_cast<size_t>(starts.data()[votes.size()]);
        auto labels = new_array<int32_t, 1>({size});
        auto shares = new_array<double, 1>({size}), nearest = new_array<double, 1>({size});
        for (size_t i = 0; i < votes.size(); ++i) {
            const int64_t start = starts.data()[i];
            std::copy(votes[i].labels.begin(), votes[i].labels.end(), labels.data() + start);
            std::copy(votes[i].shares.begin(), votes[i].shares.end(), shares.data() + start);
            std::copy(votes[i].nearest.begin(), votes[i].nearest.end(), nearest.data() + start);
        }
        return nb::make_tuple(starts, labels, shares, nearest);
    }

    std::vector<nb::object> arrays_;
    xclearn::Relevance relevance_;
    int64_t n_documents_;
};

// Sums of trees; keeps nothing of the arrays.
class BoostedTrees {
  public:
    BoostedTrees(const In<int32_t, 1>& roots, const In<int32_t, 1>& columns, const In<double, 1>& thresholds,
                 const In<int32_t, 1>& left, const In<int32_t, 1>& right, const In<bool, 1>& missing_left,
                 const In<double, 1>& values)
        : trees_(roots.data(), length(roots), nodes_of(columns, thresholds, left, right, missing_left, values)) {}

    NewArray<double, 1> sum(const In<float, 2>& rows, double base, int n_threads) const {
        require(!length(rows) || static_cast<int64_t>(rows.shape(1)) >= trees_.width(),
                "a tree asks for a column that the rows do not have");
        auto sums = new_array<double, 1>({rows.shape(0)});
        nb::gil_scoped_release release;
        trees_.sum(rows.data(), length(rows), static_cast<int64_t>(rows.shape(1)), base, n_threads, sums.data());
        return sums;
    }

  private:
    static xclearn::BoostedTrees::Nodes nodes_of(const In<int32_t, 1>& columns, const In<double, 1>& thresholds,
                                                 const In<int32_t, 1>& left, const In<int32_t, 1>& right,
                                                 const In<bool, 1>& missing_left, const In<double, 1>& values) {
        const int64_t n = length(values);
        require(length(columns) == n && length(thresholds) == n && length(left) == n && length(right) == n &&
                    length(missing_left) == n,
                "the trees' arrays differ in length");
        return {columns.data(), thresholds.data(), left.data(), right.data(), missing_left.data(), values.data(), n};
    }

    xclearn::BoostedTrees trees_;
};

}  // namespace

void bind_stacking(nb::module_& module) {
    nb::class_<RowIndex>(module, "RowIndex")
        .def(nb::init<const In<int64_t, 1>&, const In<int32_t, 1>&, const In<float, 1>&, int64_t>())
        .def("nearest", &RowIndex::nearest);
    nb::class_<DocumentLabels>(module, "DocumentLabels")
        .def(nb::init<const In<int64_t, 1>&, const In<int32_t, 1>&, int64_t>())
        .def("votes", &DocumentLabels::votes);
    nb::class_<BoostedTrees>(module, "BoostedTrees")
        .def(nb::init<const In<int32_t, 1>&, const In<int32_t, 1>&, const In<double, 1>&, const In<int32_t, 1>&,
                      const In<int32_t, 1>&, const In<bool, 1>&, const In<double, 1>&>())
        .def("sum", &BoostedTrees::sum);
}

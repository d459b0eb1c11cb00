// The Python face of the kernels. Arguments are checked in kernels/__init__.py, which is the only caller.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <optional>

#include "kernels.h"
#include "python_arrays.h"

namespace {

template <class T, int N>
using Mutable = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

nb::tuple topk_csr(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data, int64_t k,
                   int n_threads) {
    const size_t n_rows = indptr.shape(0) - 1;
    auto ids = new_array<int64_t, 2>({n_rows, static_cast<size_t>(k)});
    auto scores = new_array<float, 2>({n_rows, static_cast<size_t>(k)});
    {
        nb::gil_scoped_release release;
        xclearn::topk_csr(indptr.data(), indices.data(), data.data(), n_rows, k, n_threads, ids.data(), scores.data());
    }
    return nb::make_tuple(ids, scores);
}

NewArray<int32_t, 1> balanced_clusters_csr(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices,
                                           const In<float, 1>& data, int64_t n_columns, int64_t n_clusters,
                                           uint64_t seed, int n_threads) {
    const size_t n_rows = indptr.shape(0) - 1;
    auto clusters = new_array<int32_t, 1>({n_rows});
    nb::gil_scoped_release release;
    xclearn::balanced_clusters_csr(indptr.data(), indices.data(), data.data(), n_rows, n_columns, n_clusters, seed,
                                   n_threads, clusters.data());
    return clusters;
}

NewArray<int32_t, 1> balanced_clusters_dense(const In<float, 2>& rows, int64_t n_clusters, uint64_t seed,
                                             int n_threads) {
    auto clusters = new_array<int32_t, 1>({rows.shape(0)});
    nb::gil_scoped_release release;
    xclearn::balanced_clusters_dense(rows.data(), rows.shape(0), rows.shape(1), n_clusters, seed, n_threads,
                                     clusters.data());
    return clusters;
}

nb::tuple train_linear(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data,
                       int64_t n_columns, const In<int64_t, 1>& group_indptr, const In<int32_t, 1>& group_rows,
                       const In<int64_t, 1>& problem_indptr, const In<int64_t, 1>& positive_indptr,
                       const In<int32_t, 1>& positive_rows, bool logistic, double cost, double tolerance,
                       int64_t max_passes, double threshold, double bias, bool learn_bias, uint64_t seed,
                       int n_threads) {
    const xclearn::LinearProblems problems{indptr.data(),
                                           indices.data(),
                                           data.data(),
                                           static_cast<int64_t>(indptr.shape(0)) - 1,
                                           n_columns,
                                           group_indptr.data(),
                                           group_rows.data(),
                                           static_cast<int64_t>(group_indptr.shape(0)) - 1,
                                           problem_indptr.data(),
                                           positive_indptr.data(),
                                           positive_rows.data()};
    const xclearn::LinearSettings settings{logistic, cost, tolerance, max_passes, threshold, bias, learn_bias};
    std::vector<xclearn::LinearClassifiers> parts;
    {
        nb::gil_scoped_release release;
        parts = xclearn::train_linear(problems, settings, seed, n_threads);
    }
    size_t n_weights = 0;
    for (const auto& part : parts) n_weights += part.data.size();
    const size_t n_problems = positive_indptr.shape(0) - 1;
    auto ends = new_array<int64_t, 1>({n_problems + 1});
    auto features = new_array<int32_t, 1>({n_weights});
    auto weights = new_array<float, 1>({n_weights});
    auto biases = new_array<float, 1>({n_problems});
    int64_t start = 0, problem = 0;
    ends.data()[0] = 0;
    for (auto& part : parts) {
        std::copy(part.indices.begin(), part.indices.end(), features.data() + start);
        std::copy(part.data.begin(), part.data.end(), weights.data() + start);
        std::copy(part.bias.begin(), part.bias.end(), biases.data() + problem);
        for (const int64_t end : part.ends) ends.data()[++problem] = start + end;
        start += static_cast<int64_t>(part.data.size());
        part = {};  // the copy takes its place
    }
    return nb::make_tuple(ends, features, weights, biases);
}

NewArray<double, 2> listed_logits(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data,
                                  int64_t n_columns, const In<int64_t, 1>& weight_indptr,
                                  const In<int32_t, 1>& weight_indices, const In<float, 1>& weights,
                                  const In<int64_t, 2>& ids, int n_threads) {
    auto logits = new_array<double, 2>({ids.shape(0), ids.shape(1)});
    nb::gil_scoped_release release;
    const auto rows = [](const auto& starts) { return static_cast<int64_t>(starts.shape(0)) - 1; };
    xclearn::listed_logits({indptr.data(), indices.data(), data.data(), rows(indptr)},
                           {weight_indptr.data(), weight_indices.data(), weights.data(), rows(weight_indptr)},
                           n_columns, ids.data(), ids.shape(1), n_threads, logits.data());
    return logits;
}

nb::tuple random_walks(const In<int64_t, 1>& document_indptr, const In<int32_t, 1>& document_labels,
                       const In<int64_t, 1>& label_indptr, const In<int32_t, 1>& label_documents, int64_t steps,
                       double restart, int64_t top, uint64_t seed, int n_threads) {
    const size_t n_labels = label_indptr.shape(0) - 1;
    const xclearn::Walks walks{document_indptr.data(),
                               document_labels.data(),
                               label_indptr.data(),
                               label_documents.data(),
                               static_cast<int64_t>(n_labels),
                               steps,
                               restart,
                               top};
    std::vector<xclearn::WalkCounts> parts;
    {
        nb::gil_scoped_release release;
        parts = xclearn::random_walks(walks, seed, n_threads);
    }
    size_t n_visits = 0;
    for (const auto& part : parts) n_visits += part.labels.size();
    auto ends = new_array<int64_t, 1>({n_labels + 1});
    auto labels = new_array<int32_t, 1>({n_visits});
    auto counts = new_array<float, 1>({n_visits});
    int64_t start = 0, label = 0;
    ends.data()[0] = 0;
    for (auto& part : parts) {
        std::copy(part.labels.begin(), part.labels.end(), labels.data() + start);
        std::copy(part.counts.begin(), part.counts.end(), counts.data() + start);
        for (const int64_t end : part.ends) ends.data()[++label] = start + end;
        start += static_cast<int64_t>(part.labels.size());
        part = {};  // the copy takes its place
    }
    return nb::make_tuple(ends, labels, counts);
}

void adam_rows(const Mutable<float, 2>& values, const Mutable<float, 2>& first, const Mutable<float, 2>& second,
               const In<int64_t, 1>& ids, const In<float, 2>& gradients, float size, float first_share,
               float second_share, float epsilon, int n_threads) {
    nb::gil_scoped_release release;
    const xclearn::AdamTable table{values.data(), first.data(), second.data(), static_cast<int64_t>(values.shape(0)),
                                   static_cast<int64_t>(values.shape(1))};
    xclearn::adam_rows(table, ids.data(), gradients.data(), static_cast<int64_t>(ids.shape(0)),
                       {size, first_share, second_share, epsilon}, n_threads);
}

template <class T, int N>
using InPlace = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

xclearn::Pairs pairs_of(const In<float, 2>& x, const In<int64_t, 1>& owner, const In<int64_t, 1>& row) {
    return {x.data(),   static_cast<int64_t>(x.shape(0)),  static_cast<int64_t>(x.shape(1)), owner.data(),
            row.data(), static_cast<int64_t>(row.shape(0))};
}

nb::tuple train_pairs(const In<float, 2>& x, const In<int64_t, 1>& owner, const In<int64_t, 1>& row,
                      const In<float, 1>& targets, const InPlace<float, 2>& table, float rate,
                      std::optional<InPlace<float, 2>> first, std::optional<InPlace<float, 2>> second,
                      std::optional<InPlace<float, 2>> steps, float beta_first, float beta_second, float epsilon,
                      bool hinge, float scale, int64_t fixed, int n_threads) {
    const xclearn::RowRule rule{rate,
                                beta_first,
                                beta_second,
                                epsilon,
                                first ? first->data() : nullptr,
                                second ? second->data() : nullptr,
                                steps ? steps->data() : nullptr};
    auto gradient = new_array<float, 2>({x.shape(0), x.shape(1)});
    double loss;
    {
        nb::gil_scoped_release release;
        loss = xclearn::train_pairs(pairs_of(x, owner, row), targets.data(), table.data(), rule, hinge, scale, fixed,
                                    n_threads, gradient.data());
    }
    return nb::make_tuple(loss, gradient);
}

NewArray<float, 1> pair_scores(const In<float, 2>& x, const In<float, 2>& weight, const In<int64_t, 1>& owner,
                               const In<int64_t, 1>& row, int n_threads) {
    auto scores = new_array<float, 1>({row.shape(0)});
    nb::gil_scoped_release release;
    xclearn::pair_scores(pairs_of(x, owner, row), weight.data(), n_threads, scores.data());
    return scores;
}

nb::tuple pair_products(const In<float, 2>& x, const In<float, 2>& weight, const In<int64_t, 1>& owner,
                        const In<int64_t, 1>& row, const In<float, 1>& outer, int n_threads) {
    auto x_gradient = new_array<float, 2>({x.shape(0), x.shape(1)});
    auto weight_gradient = new_array<float, 2>({weight.shape(0), weight.shape(1)});
    {
        nb::gil_scoped_release release;
        std::fill_n(weight_gradient.data(), weight.size(), 0.0f);
        xclearn::pair_products(pairs_of(x, owner, row), weight.data(), outer.data(), n_threads, x_gradient.data(),
                               weight_gradient.data());
    }
    return nb::make_tuple(x_gradient, weight_gradient);
}

template <class T, class U>
NewArray<U, 1> joined(const std::vector<xclearn::PathEnds>& parts, std::vector<T> xclearn::PathEnds::* member) {
    size_t size = 0;
    for (const auto& part : parts) size += (part.*member).size();
    auto whole = new_array<U, 1>({size});
    U* next = whole.data();
    for (const auto& part : parts) next = std::copy((part.*member).begin(), (part.*member).end(), next);
    return whole;
}

nb::tuple best_paths(const In<int64_t, 1>& starts, const In<int32_t, 1>& clusters, const In<float, 1>& chances,
                     const In<int64_t, 1>& wanted_starts, const In<int32_t, 1>& wanted, const In<int32_t, 2>& labels,
                     const In<float, 2>& strengths, int64_t n_labels, int64_t k, int n_threads) {
    using Ends = xclearn::PathEnds;
    const xclearn::PathIndex index{labels.data(), strengths.data(), static_cast<int64_t>(labels.shape(1)), n_labels};
    const xclearn::PathQuery query{starts.data(),        clusters.data(), chances.data(),
                                   wanted_starts.data(), wanted.data(),   static_cast<int64_t>(starts.shape(0)) - 1};
    std::vector<Ends> parts;
    {
        nb::gil_scoped_release release;
        parts = xclearn::best_paths(index, query, k, n_threads);
    }
    return nb::make_tuple(joined<int64_t, int64_t>(parts, &Ends::owners),
                          joined<int64_t, int64_t>(parts, &Ends::labels),
                          joined<int64_t, int64_t>(parts, &Ends::clusters),
                          joined<int64_t, int64_t>(parts, &Ends::slots), joined<uint8_t, bool>(parts, &Ends::wanted));
}

nb::tuple bag_gradient(const In<int64_t, 1>& ids, const In<int64_t, 1>& owner, const In<float, 1>& weights,
                       const In<float, 2>& gradients, int64_t n_rows, int n_threads) {
    xclearn::RowSums sums;
    const size_t width = gradients.shape(1);
    {
        nb::gil_scoped_release release;
        sums = xclearn::bag_gradient(ids.data(), owner.data(), weights.data(), static_cast<int64_t>(ids.shape(0)),
                                     gradients.data(), static_cast<int64_t>(width), n_rows, n_threads);
    }
    auto rows = new_array<int64_t, 1>({sums.rows.size()});
    auto values = new_array<float, 2>({sums.rows.size(), width});
    std::copy(sums.rows.begin(), sums.rows.end(), rows.data());
    std::copy(sums.values.begin(), sums.values.end(), values.data());
    return nb::make_tuple(rows, values);
}

}  // namespace

void bind_bags(nb::module_& module);              // bags_module.cpp
void bind_predictor(nb::module_& module);         // predict_module.cpp
void bind_sparse_predictor(nb::module_& module);  // sparse_module.cpp
void bind_stacking(nb::module_& module);          // stacking_module.cpp

NB_MODULE(_native, module) {
    bind_bags(module);
    bind_predictor(module);
    bind_sparse_predictor(module);
    bind_stacking(module);
    module.def("topk_csr", &topk_csr);
    module.def("balanced_clusters_csr", &balanced_clusters_csr);
    module.def("balanced_clusters_dense", &balanced_clusters_dense);
    module.def("train_linear", &train_linear);
    module.def("listed_logits", &listed_logits);
    module.def("adam_rows", &adam_rows);
    module.def("bag_gradient", &bag_gradient);
    module.def("random_walks", &random_walks);
    module.def("train_pairs", &train_pairs, nb::arg("x"), nb::arg("owner"), nb::arg("row"), nb::arg("targets"),
               nb::arg("table"), nb::arg("rate"), nb::arg("first").none(), nb::arg("second").none(),
               nb::arg("steps").none(), nb::arg("beta_first"), nb::arg("beta_second"), nb::arg("epsilon"),
               nb::arg("hinge"), nb::arg("scale"), nb::arg("fixed"), nb::arg("n_threads"));
    module.def("pair_scores", &pair_scores);
    module.def("pair_products", &pair_products);
    module.def("best_paths", &best_paths);
}

// The Python face of the kernels. Arguments are checked in kernels/__init__.py, which is the only caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>

#include "kernels.h"

namespace nb = nanobind;

namespace {

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

template <class T, int N>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<N>>;

template <class T, int N>
Out<T, N> new_array(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (const size_t length : shape) size *= length;
    std::unique_ptr<T[]> values(new T[size]);
    nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T, N>(values.release(), shape, owner);
}

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

Out<int32_t, 1> balanced_clusters_csr(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices,
                                      const In<float, 1>& data, int64_t n_columns, int64_t n_clusters, uint64_t seed,
                                      int n_threads) {
    const size_t n_rows = indptr.shape(0) - 1;
    auto clusters = new_array<int32_t, 1>({n_rows});
    nb::gil_scoped_release release;
    xclearn::balanced_clusters_csr(indptr.data(), indices.data(), data.data(), n_rows, n_columns, n_clusters, seed,
                                   n_threads, clusters.data());
    return clusters;
}

Out<int32_t, 1> balanced_clusters_dense(const In<float, 2>& rows, int64_t n_clusters, uint64_t seed, int n_threads) {
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
    const xclearn::LinearProblems problems{
        indptr.data(),       indices.data(),    data.data(),
        static_cast<int64_t>(indptr.shape(0)) - 1, n_columns, group_indptr.data(),
        group_rows.data(),   static_cast<int64_t>(group_indptr.shape(0)) - 1, problem_indptr.data(),
        positive_indptr.data(), positive_rows.data()};
    const xclearn::LinearSettings settings{logistic, cost, tolerance, max_passes, threshold,
                                           bias,     learn_bias};
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

}  // namespace

void bind_predictor(nb::module_& module);  // predict_module.cpp

NB_MODULE(_native, module) {
    bind_predictor(module);
    module.def("topk_csr", &topk_csr);
    module.def("balanced_clusters_csr", &balanced_clusters_csr);
    module.def("balanced_clusters_dense", &balanced_clusters_dense);
    module.def("train_linear", &train_linear);
}

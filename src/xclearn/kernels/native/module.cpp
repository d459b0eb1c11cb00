// The Python face of the kernels. Arguments are checked in kernels/__init__.py, which is the only caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

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

}  // namespace

NB_MODULE(_native, module) {
    module.def("topk_csr", &topk_csr);
    module.def("balanced_clusters_csr", &balanced_clusters_csr);
    module.def("balanced_clusters_dense", &balanced_clusters_dense);
}

// Arrays as Python passes and gets them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>

namespace nb = nanobind;

template <class T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

template <class T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

inline void require(bool right, const char* message) {
    if (!right) throw nb::value_error(message);
}

template <class Array>
int64_t length(const Array& array) {
    return static_cast<int64_t>(array.shape(0));
}

template <class T, int N>
using NewArray = nb::ndarray<nb::numpy, T, nb::ndim<N>>;

template <class T, int N>
NewArray<T, N> new_array(std::initializer_list<size_t> shape) {
    size_t size = 1;
    for (const size_t length : shape) size *= length;
    std::unique_ptr<T[]> values(new T[size]);
    nb::capsule owner(values.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return NewArray<T, N>(values.release(), shape, owner);
}

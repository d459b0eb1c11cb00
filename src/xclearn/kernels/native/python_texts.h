// Texts and vocabularies as Python passes them to predictors.
#pragma once

#include <nanobind/stl/string.h>

#include <vector>

#include "predict.h"
#include "python_arrays.h"

inline bool is_word(uint32_t c) { return c == '_' || Py_UNICODE_ISALNUM(c); }

inline bool is_no_space(uint32_t c) { return c != ' '; }

inline xclearn::IsWord word_rule(const xclearn::Vectoriser& vectoriser) {
    return vectoriser.prepared ? is_no_space : is_word;
}

// Texts as code points, and what keeps them alive while the interpreter lock is released.
struct Texts {
    std::vector<xclearn::Text> views;
    std::vector<nb::object> owners;

    explicit Texts(const nb::list& texts) {
        for (const nb::handle text : texts) add(nb::borrow(text));
    }

    void add(nb::object text) {
        // Only the interpreter's own lower() knows every rule of Unicode; ASCII needs none of them.
        const bool ascii = PyUnicode_Check(text.ptr()) && PyUnicode_IS_ASCII(text.ptr());
        if (!ascii) text = text.attr("lower")();
        if (!PyUnicode_Check(text.ptr())) throw nb::type_error("not a text");
        PyObject* characters = text.ptr();
        views.push_back({PyUnicode_DATA(characters), PyUnicode_GET_LENGTH(characters),
                         ascii ? 0 : static_cast<int>(PyUnicode_KIND(characters))});
        owners.push_back(std::move(text));
    }
};

inline void learn_vocabulary(xclearn::Vectoriser& vectoriser, const nb::list& tokens, bool pieces, bool normalise) {
    for (const nb::handle token : tokens) {
        Py_ssize_t size = 0;
        const char* bytes = PyUnicode_AsUTF8AndSize(token.ptr(), &size);
        if (!bytes) PyErr_Clear();  // a lone surrogate: no word has one
        vectoriser.vocabulary.add(bytes ? bytes : "", bytes ? size : 0);
    }
    vectoriser.vocabulary.build();
    vectoriser.pieces = pieces;
    vectoriser.normalise = normalise;
}

// The ids of a text's tokens, and their weights.
inline nb::tuple bag_tuple(const xclearn::Vectoriser& vectoriser, const nb::str& text) {
    nb::list one;
    one.append(text);
    const xclearn::Bag found = xclearn::bag_of(vectoriser, Texts(one).views.front(), word_rule(vectoriser));
    nb::list ids, weights;
    for (const int32_t id : found.ids) ids.append(id);
    for (const float weight : found.weights) weights.append(weight);
    return nb::make_tuple(ids, weights);
}

inline xclearn::Excluded excluded_of(const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels) {
    return {offsets.shape(0) ? offsets.data() : nullptr, labels.data()};
}

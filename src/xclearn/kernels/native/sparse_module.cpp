// The Python face of sparse classifiers and label trees. inference/native.py is the only caller.
#include <algorithm>
#include <string>

#include "python_texts.h"
#include "sparse_predict.h"

namespace {

xclearn::Loss loss_of(const std::string& name) {
    if (name == "squared_hinge") return xclearn::Loss::squared_hinge;
    if (name == "logistic") return xclearn::Loss::logistic;
    require(name == "log", "no such loss");
    return xclearn::Loss::log;
}

// (children, starts, features, nodes, weights, bias) of a level whose parents are those of the level above.
xclearn::TreeLevel level_of(const nb::tuple& parts, int64_t n_parents, int64_t n_features) {
    const auto children = nb::cast<In<int64_t, 1>>(parts[0], false), starts = nb::cast<In<int64_t, 1>>(parts[1], false);
    const auto features = nb::cast<In<int32_t, 1>>(parts[2], false), nodes = nb::cast<In<int32_t, 1>>(parts[3], false);
    const auto weights = nb::cast<In<float, 1>>(parts[4], false), bias = nb::cast<In<float, 1>>(parts[5], false);
    const int64_t size = length(weights), n_nodes = length(bias);
    require(length(children) == n_parents + 1 && children.data()[0] == 0 && children.data()[n_parents] == n_nodes &&
                length(starts) == n_parents + 1 && length(features) == size && length(nodes) == size,
            "a tree's level does not fit the one above");
    for (int64_t i = 0; i < n_parents; ++i)
        require(children.data()[i] < children.data()[i + 1], "a tree's node has no children");
    const bool root = n_parents == 1;  // its children are scored all at once
    return {xclearn::Postings::sorted(features.data(), n_features, nodes.data(), weights.data(), size, n_nodes, root),
            {children.data(), children.data() + n_parents + 1},
            bias.data()};
}

// A servable over arrays that it keeps alive.
class SparsePredictor {
    template <class Array>
    auto keep(const Array& array) {
        arrays_.push_back(nb::cast(array));
        return array.data();
    }

  public:
    SparsePredictor(int64_t n_features, int64_t n_labels) {
        servable_.n_features = n_features;
        servable_.n_labels = n_labels;
    }

    void set_text(const nb::list& tokens, bool pieces, const In<double, 1>& idf, const In<double, 1>& damped,
                  bool normalise) {
        learn_vocabulary(servable_.vectoriser, tokens, pieces, normalise);
        require(servable_.vectoriser.vocabulary.size() == servable_.n_features && length(idf) == servable_.n_features,
                "tokens, their weights and the features differ in number");
        servable_.vectoriser.idf = keep(idf);
        servable_.vectoriser.n_damped = length(damped);
        servable_.vectoriser.damped = length(damped) ? keep(damped) : nullptr;
    }

    void set_prepared() { servable_.vectoriser.prepared = true; }

    void set_trees(const std::string& loss, int64_t beam, bool unit) {
        require(beam > 0, "a search keeps no node");
        servable_.trees.loss = loss_of(loss);
        servable_.trees.beam = beam;
        servable_.unit = unit;
        set_loss(xclearn::Loss::log);
    }

    void add_tree(const nb::list& levels, const In<int64_t, 1>& labels) {
        xclearn::LabelTree tree;
        int64_t n_nodes = 1;
        for (const nb::handle level : levels) {
            const auto parts = nb::cast<nb::tuple>(level);
            tree.levels.push_back(level_of(parts, n_nodes, servable_.n_features));
            n_nodes = length(keep_as<In<float, 1>>(parts[5]));
        }
        std::vector<bool> there(servable_.n_labels);
        require(!tree.levels.empty() && n_nodes == servable_.n_labels && length(labels) == n_nodes,
                "a tree does not lead to every label");
        for (int64_t i = 0; i < n_nodes; ++i) {
            const int64_t label = labels.data()[i];
            require(label >= 0 && label < n_nodes && !there[label], "a tree does not lead to every label once");
            there[label] = true;
        }
        tree.labels = keep(labels);
        servable_.trees.trees.push_back(std::move(tree));
    }

    // starts, labels, weights, bias: by feature.
    void set_classifier(const nb::tuple& parts, const std::string& loss, bool unit) {
        servable_.classifier = classifier_of(parts, unit);
        set_loss(loss_of(loss));
    }

    void set_label_text(const nb::tuple& parts, double weight, bool unit) {
        require(weight >= 0, "label texts weigh less than nothing");
        servable_.text = classifier_of(parts, unit);
        servable_.text_weight = weight;
    }

    nb::tuple bag(const nb::str& text) const { return bag_tuple(servable_.vectoriser, text); }

    void predict_texts(const nb::list& documents, const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels,
                       int n_threads, const Out<int64_t, 2>& ids, const Out<float, 2>& scores) const {
        const Texts texts(documents);
        require(servable_.vectoriser.idf, "the model reads no texts");
        require(static_cast<size_t>(ids.shape(0)) == texts.views.size(), "texts and answers differ in number");
        check(offsets, labels, ids, scores);
        nb::gil_scoped_release release;
        const xclearn::IsWord rule = word_rule(servable_.vectoriser);
        xclearn::predict_sparse_texts(servable_, texts.views, rule, excluded_of(offsets, labels), ids.shape(1),
                                      n_threads, ids.data(), scores.data());
    }

    void predict_rows(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data,
                      const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels, int n_threads,
                      const Out<int64_t, 2>& ids, const Out<float, 2>& scores) const {
        const int64_t n = length(indptr) - 1;
        require(n == length(ids) && length(indices) == length(data) && indptr.data()[0] == 0 &&
                    indptr.data()[n] == length(data) && std::is_sorted(indptr.data(), indptr.data() + n + 1),
                "the rows are no sparse matrix");
        check(offsets, labels, ids, scores);
        nb::gil_scoped_release release;
        xclearn::predict_sparse_rows(servable_, indptr.data(), indices.data(), data.data(), n,
                                     excluded_of(offsets, labels), ids.shape(1), n_threads, ids.data(), scores.data());
    }

  private:
    template <class Array>
    Array keep_as(const nb::object& part) {
        arrays_.push_back(part);
        return nb::cast<Array>(part, false);
    }

    void set_loss(xclearn::Loss loss) {
        servable_.loss = loss;
        servable_.bound.set(loss);
    }

    std::unique_ptr<xclearn::SparseClassifier> classifier_of(const nb::tuple& parts, bool unit) {
        const auto starts = keep_as<In<int64_t, 1>>(parts[0]);
        const auto labels = keep_as<In<int32_t, 1>>(parts[1]);
        const auto weights = keep_as<In<float, 1>>(parts[2]), bias = keep_as<In<float, 1>>(parts[3]);
        require(length(starts) == servable_.n_features + 1 && length(labels) == length(weights) &&
                    length(bias) == servable_.n_labels,
                "a sparse classifier's arrays do not fit each other");
        const float* values = bias.data();
        const bool none = std::all_of(values, values + length(bias), [](float value) { return value == 0; });
        auto made = std::make_unique<xclearn::SparseClassifier>();
        made->postings = xclearn::Postings::of(starts.data(), servable_.n_features, labels.data(), weights.data(),
                                               length(weights), servable_.n_labels, true);
        made->bias = none ? nullptr : values;
        made->unit = unit;
        return made;
    }

    void check(const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels, const Out<int64_t, 2>& ids,
               const Out<float, 2>& scores) const {
        require(servable_.classifier || !servable_.trees.trees.empty(), "the model has no classifier");
        const int64_t* last = offsets.data() + length(offsets);
        require(!offsets.shape(0) || (length(offsets) == length(ids) + 1 && offsets.data()[0] == 0 &&
                                      last[-1] == length(labels) && std::is_sorted(offsets.data(), last)),
                "excluded pairs do not fit the documents");
        require(ids.shape(0) == scores.shape(0) && ids.shape(1) == scores.shape(1) && ids.shape(1) > 0,
                "ids and scores differ in shape");
    }

    xclearn::SparseServable servable_;
    std::vector<nb::object> arrays_;
};

}  // namespace

void bind_sparse_predictor(nb::module_& module) {
    nb::class_<SparsePredictor>(module, "SparsePredictor")
        .def(nb::init<int64_t, int64_t>())
        .def("set_prepared", &SparsePredictor::set_prepared)
        .def("set_text", &SparsePredictor::set_text)
        .def("set_trees", &SparsePredictor::set_trees)
        .def("add_tree", &SparsePredictor::add_tree)
        .def("set_classifier", &SparsePredictor::set_classifier)
        .def("set_label_text", &SparsePredictor::set_label_text)
        .def("bag", &SparsePredictor::bag)
        .def("predict_texts", &SparsePredictor::predict_texts)
        .def("predict_rows", &SparsePredictor::predict_rows);
}

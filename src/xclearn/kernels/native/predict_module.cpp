// The Python face of the predictor. inference/native.py is the only caller, with parts that were checked as declared;
// what would be read from outside of an array is refused here once more.
#include <algorithm>

#include "python_texts.h"

namespace {

// A servable over arrays that it keeps alive.
class Predictor {
    template <class Array>
    static void require_within(const Array& numbers, int64_t least, int64_t limit, const char* what) {
        const auto* begin = numbers.data();
        const auto* end = begin + numbers.size();
        require(std::all_of(begin, end, [&](int64_t number) { return least <= number && number < limit; }), what);
    }

    static void require_rising(const In<int64_t, 1>& offsets, int64_t n, int64_t end, const char* what) {
        require(length(offsets) == n + 1 && offsets.data()[0] == 0 && offsets.data()[n] == end, what);
        require(std::is_sorted(offsets.data(), offsets.data() + n + 1), what);
    }

    template <class Array>
    auto keep(const Array& array) {
        arrays_.push_back(nb::cast(array));
        return array.data();
    }

  public:
    explicit Predictor(int64_t n_labels) { servable_.n_labels = n_labels; }

    void set_text(const nb::list& tokens, bool pieces, const In<double, 1>& idf, const In<double, 1>& damped,
                  bool normalise) {
        learn_vocabulary(servable_.vectoriser, tokens, pieces, normalise);
        n_features_ = servable_.vectoriser.vocabulary.size();
        require(length(idf) == n_features_, "tokens and their weights differ in number");
        servable_.vectoriser.idf = keep(idf);
        servable_.vectoriser.n_damped = length(damped);
        servable_.vectoriser.damped = length(damped) ? keep(damped) : nullptr;
    }

    void set_prepared() { servable_.vectoriser.prepared = true; }

    void add_encoder(const In<float, 2>& embeddings) {
        if (n_features_ < 0) n_features_ = length(embeddings);
        require(length(embeddings) == n_features_ && embeddings.shape(1) > 0, "embeddings");
        servable_.encoders.push_back({keep(embeddings), static_cast<int64_t>(embeddings.shape(1)), {}});
    }

    void add_relu() { servable_.encoders.back().layers.push_back({xclearn::Layer::Kind::relu, {}}); }

    void add_unit() { servable_.encoders.back().layers.push_back({xclearn::Layer::Kind::unit, {}}); }

    void add_residual(const In<float, 2>& weight, const In<float, 1>& bias) {
        require_square(weight, bias);
        servable_.encoders.back().layers.push_back({xclearn::Layer::Kind::residual, transposed(weight), keep(bias)});
    }

    void add_gated(const In<float, 2>& weight, const In<float, 1>& bias, const In<float, 1>& block_gate,
                   const In<float, 1>& skip_gate) {
        require_square(weight, bias);
        require_square(weight, block_gate);
        require_square(weight, skip_gate);
        servable_.encoders.back().layers.push_back(
            {xclearn::Layer::Kind::gated, transposed(weight), keep(bias), keep(block_gate), keep(skip_gate)});
    }

    void add_level(int64_t encoder, const nb::tuple& rows, const In<int64_t, 1>& offsets, int64_t beam) {
        const xclearn::Rows own = rows_of(rows, encoder);
        require(servable_.levels.empty() || below_ == own.n, "levels");
        below_ = length(offsets) ? offsets.data()[length(offsets) - 1] : 0;
        require_rising(offsets, own.n, below_, "offsets of a level");
        require(beam > 0, "beam");
        servable_.levels.push_back({encoder, own, keep(offsets), beam});
    }

    void set_index(const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels, const In<float, 1>& weights,
                   const In<int32_t, 1>& always, int64_t tokens, int64_t postings, int64_t shortlist) {
        require_rising(offsets, n_features_, length(labels), "offsets of the index");
        require_within(labels, 0, servable_.n_labels, "labels of the index");
        require_within(always, 0, servable_.n_labels, "labels of every text");
        require(length(weights) == length(labels) && std::min({tokens, postings, shortlist}) > 0, "index");
        servable_.index = {
            keep(offsets), keep(labels), keep(weights), keep(always), static_cast<int64_t>(always.shape(0)),
            tokens,        postings,     shortlist};
    }

    void set_centres(int64_t encoder, const nb::tuple& rows, const In<int32_t, 1>& labels, int64_t size,
                     int64_t per_label) {
        const xclearn::Rows own = rows_of(rows, encoder);
        require(length(labels) == own.n && own.n > 0 && size > 0 && per_label > 0, "centres");
        require(servable_.levels.empty() || below_ == own.n, "levels above centres");
        require_within(labels, 0, servable_.n_labels, "labels of centres");
        servable_.centres = {encoder, own, keep(labels), size, per_label};
    }

    void set_edges(int64_t encoder, const nb::tuple& rows, float scale, int64_t beam, const In<int32_t, 2>& labels,
                   const In<float, 2>& chances, int64_t size) {
        const xclearn::Rows own = rows_of(rows, encoder);
        require(length(labels) == own.n && length(chances) == own.n && labels.shape(1) == chances.shape(1), "edges");
        require_within(labels, -1, servable_.n_labels, "labels of edges");
        require(beam > 0 && size > 0, "beam of edges");
        servable_.edges = {
            encoder, own, scale, beam, keep(labels), keep(chances), static_cast<int64_t>(labels.shape(1)), size};
    }

    void set_cluster_game(const nb::tuple& game) {  // before the level of the clusters
        n_game_clusters_ = length(nb::cast<In<int64_t, 1>>(game[0], false)) - 1;
        servable_.cluster_game = game_of(game, n_game_clusters_);
    }

    void set_label_game(const nb::tuple& game, int64_t depth) {
        require(depth > 0, "depth");
        servable_.label_game = game_of(game, servable_.n_labels);
        servable_.game_depth = depth;
    }

    void set_re_ranking(int64_t depth) { servable_.re_ranking.depth = depth; }

    // (starts, features, weights, bias), the features of the bag, and the encoder whose vector follows them; −1: none.
    void set_ranker(const nb::tuple& parts, int64_t n_bag, bool unit_bag, int64_t encoder) {
        const auto starts = nb::cast<In<int64_t, 1>>(parts[0], false);
        const auto features = nb::cast<In<int32_t, 1>>(parts[1], false);
        const auto weights = nb::cast<In<float, 1>>(parts[2], false), bias = nb::cast<In<float, 1>>(parts[3], false);
        const auto n_encoders = static_cast<int64_t>(servable_.encoders.size());
        require(encoder >= -1 && encoder < n_encoders && length(bias) == servable_.n_labels &&
                    length(starts) == servable_.n_labels + 1 && length(features) == length(weights),
                "a ranker's arrays do not fit each other");
        const int64_t width = n_bag + (encoder < 0 ? 0 : servable_.encoders[encoder].dim);
        xclearn::check_entries(starts.data(), servable_.n_labels, features.data(), length(weights), width);
        servable_.re_ranking.ranker = {keep(starts), keep(features), keep(weights), keep(bias),
                                       n_bag,        unit_bag,       encoder};
    }

    // (columns, thresholds, left, right, chances, label counts)
    void set_calibration(const nb::tuple& parts, int64_t depth, double weight) {
        const auto columns = nb::cast<In<int64_t, 1>>(parts[0], false);
        const auto thresholds = nb::cast<In<double, 1>>(parts[1], false);
        const auto left = nb::cast<In<int64_t, 1>>(parts[2], false), right = nb::cast<In<int64_t, 1>>(parts[3], false);
        const auto chances = nb::cast<In<float, 1>>(parts[4], false), counts = nb::cast<In<float, 1>>(parts[5], false);
        const int64_t n = length(columns);
        require(n > 0 && length(thresholds) == n && length(left) == n && length(right) == n && length(chances) == n &&
                    length(counts) == servable_.n_labels,
                "a calibration tree's arrays do not fit each other");
        for (int64_t i = 0; i < n; ++i)
            require(columns.data()[i] >= 0 && columns.data()[i] < 3 && left.data()[i] >= 0 && left.data()[i] < n &&
                        right.data()[i] >= 0 && right.data()[i] < n,
                    "a calibration tree's nodes lead nowhere");
        servable_.re_ranking.calibration = {keep(columns), keep(thresholds), keep(left), keep(right),
                                            keep(chances), keep(counts),     depth,      weight};
    }

    void set_labels(const In<int32_t, 1>& labels) {
        require(length(labels) == servable_.n_labels, "labels");
        require_within(labels, 0, servable_.n_labels, "labels");
        servable_.labels = keep(labels);
    }

    void add_scorer(int64_t encoder, const nb::tuple& rows, const In<int32_t, 1>& row_of_position) {
        const xclearn::Rows own = rows_of(rows, encoder);
        const int64_t n = servable_.n_labels;
        require(own.n == n && (length(row_of_position) == 0 || length(row_of_position) == n), "rows of a scorer");
        require_within(row_of_position, 0, n, "rows of a scorer");
        require(servable_.levels.empty() || servable_.centres.labels || below_ == n, "levels above labels");
        require(!servable_.cluster_game.offsets || n_game_clusters_ == servable_.levels.back().rows.n, "clusters");
        servable_.scorers.push_back({encoder, own, length(row_of_position) ? keep(row_of_position) : nullptr});
    }

    void set_product() { servable_.fusion = xclearn::Fusion::product; }

    void set_mix(const nb::list& scorer_weights, float weight, bool by_row) {
        servable_.fusion = xclearn::Fusion::mix;
        for (const nb::handle own : scorer_weights) servable_.mix.scorer_weights.push_back(nb::cast<float>(own));
        require(servable_.mix.scorer_weights.size() == servable_.scorers.size(), "weights of scorers");
        servable_.mix.weight = weight;
        servable_.mix.by_row = by_row;
    }

    nb::tuple bag(const nb::str& text) const { return bag_tuple(servable_.vectoriser, text); }

    void predict_texts(const nb::list& documents, const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels,
                       int n_threads, const Out<int64_t, 2>& ids, const Out<float, 2>& scores) const {
        const Texts texts(documents);
        require_room(static_cast<int64_t>(texts.views.size()), offsets, ids, scores);
        nb::gil_scoped_release release;
        const xclearn::IsWord rule = word_rule(servable_.vectoriser);
        xclearn::predict_texts(servable_, texts.views, rule, excluded_of(offsets, labels), ids.shape(1), n_threads,
                               ids.data(), scores.data());
    }

    void predict_rows(const In<int64_t, 1>& indptr, const In<int32_t, 1>& indices, const In<float, 1>& data,
                      const In<int64_t, 1>& offsets, const In<int32_t, 1>& labels, int n_threads,
                      const Out<int64_t, 2>& ids, const Out<float, 2>& scores) const {
        require_rising(indptr, length(indptr) - 1, length(indices), "features of documents");
        require_within(indices, 0, n_features_, "features of documents");
        require(length(data) == length(indices), "features of documents");
        require_room(length(indptr) - 1, offsets, ids, scores);
        nb::gil_scoped_release release;
        xclearn::predict_rows(servable_, indptr.data(), indices.data(), data.data(), ids.shape(0),
                              excluded_of(offsets, labels), ids.shape(1), n_threads, ids.data(), scores.data());
    }

  private:
    static std::vector<float> transposed(const In<float, 2>& weight) {
        const size_t n = weight.shape(0), width = weight.shape(1);
        std::vector<float> columns(n * width);
        for (size_t i = 0; i < n; ++i)
            for (size_t j = 0; j < width; ++j) columns[j * n + i] = weight.data()[i * width + j];
        return columns;
    }

    void require_square(const In<float, 2>& weight, const In<float, 1>& values) const {
        const int64_t dim = servable_.encoders.back().dim;
        require(length(weight) == dim && static_cast<int64_t>(weight.shape(1)) == dim && length(values) == dim,
                "layer");
    }

    void require_room(int64_t n, const In<int64_t, 1>& excluded, const Out<int64_t, 2>& ids,
                      const Out<float, 2>& scores) const {
        require(!servable_.scorers.empty() && ids.shape(1) == scores.shape(1), "scorers");
        require(length(ids) == n && length(scores) == n, "answers");
        require(length(excluded) == 0 || length(excluded) == n + 1, "excluded labels");
    }

    // (bytes of the values, bytes of one value, scale, bias), to be scored against the vector of an encoder
    xclearn::Rows rows_of(const nb::tuple& parts, int64_t encoder) {
        const auto values = nb::cast<In<uint8_t, 2>>(parts[0], false);
        const auto scale = nb::cast<In<float, 1>>(parts[2], false), bias = nb::cast<In<float, 1>>(parts[3], false);
        const auto size = nb::cast<int64_t>(parts[1]);
        const auto precision = size == 1   ? xclearn::Precision::int8
                               : size == 2 ? xclearn::Precision::bfloat16
                                           : xclearn::Precision::float32;
        require(encoder >= 0 && encoder < static_cast<int64_t>(servable_.encoders.size()), "encoder of rows");
        const int64_t dim = servable_.encoders[encoder].dim, width = static_cast<int64_t>(values.shape(1)) / size;
        require(width == dim || width == (dim + 31) / 32 * 32, "width of rows");
        require(length(scale) == length(values) && length(bias) == length(values), "bias of rows");
        return {keep(values), precision, keep(scale), keep(bias), length(values), width};
    }

    // (offsets, targets, weights, share, kept)
    xclearn::Game game_of(const nb::tuple& parts, int64_t nodes) {
        const auto offsets = nb::cast<In<int64_t, 1>>(parts[0], false);
        const auto targets = nb::cast<In<int32_t, 1>>(parts[1], false);
        const auto weights = nb::cast<In<float, 1>>(parts[2], false);
        require_rising(offsets, nodes, length(targets), "offsets of a graph");
        require_within(targets, 0, nodes, "nodes of a graph");
        require(length(weights) == length(targets), "weights of a graph");
        return {keep(offsets), keep(targets), keep(weights), nb::cast<float>(parts[3]), nb::cast<int64_t>(parts[4])};
    }

    xclearn::Servable servable_;
    int64_t n_features_ = -1;  // of a document; −1: not known yet
    int64_t below_ = 0;        // what the last level leads to
    int64_t n_game_clusters_ = 0;
    std::vector<nb::object> arrays_;
};

// Entries of a string table.
nb::list strings(const In<uint8_t, 1>& block, const In<int64_t, 1>& offsets, const In<int64_t, 1>& ids) {
    nb::list found;
    const auto* bytes = reinterpret_cast<const char*>(block.data());
    for (size_t i = 0; i < ids.shape(0); ++i) {
        const int64_t begin = offsets.data()[ids.data()[i]], end = offsets.data()[ids.data()[i] + 1];
        PyObject* string = PyUnicode_DecodeUTF8(bytes + begin, end - begin, "surrogatepass");
        if (!string) throw nb::python_error();
        found.append(nb::steal(string));
    }
    return found;
}

}  // namespace

void bind_predictor(nb::module_& module) {
    nb::class_<Predictor>(module, "Predictor")
        .def(nb::init<int64_t>())
        .def("set_prepared", &Predictor::set_prepared)
        .def("set_text", &Predictor::set_text)
        .def("add_encoder", &Predictor::add_encoder, nb::arg().noconvert())
        .def("add_relu", &Predictor::add_relu)
        .def("add_unit", &Predictor::add_unit)
        .def("add_residual", &Predictor::add_residual)
        .def("add_gated", &Predictor::add_gated)
        .def("add_level", &Predictor::add_level)
        .def("set_index", &Predictor::set_index)
        .def("set_centres", &Predictor::set_centres)
        .def("set_edges", &Predictor::set_edges)
        .def("set_cluster_game", &Predictor::set_cluster_game)
        .def("set_label_game", &Predictor::set_label_game)
        .def("set_re_ranking", &Predictor::set_re_ranking)
        .def("set_ranker", &Predictor::set_ranker)
        .def("set_calibration", &Predictor::set_calibration)
        .def("set_labels", &Predictor::set_labels)
        .def("add_scorer", &Predictor::add_scorer)
        .def("set_product", &Predictor::set_product)
        .def("set_mix", &Predictor::set_mix)
        .def("bag", &Predictor::bag)
        .def("predict_texts", &Predictor::predict_texts)
        .def("predict_rows", &Predictor::predict_rows);
    module.def("strings", &strings);
}

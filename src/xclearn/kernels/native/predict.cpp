// The predictor: tokens, weights, vector, candidates, label scores, the k best.
//
// Sums of floats are taken in a fixed number of lanes and without fused multiply-adds, sums of int8 rows in integers:
// every processor variant gives the same bits. What is read from memory decides the time, so rows that are read together
// stand together, and the next ones are fetched while the present ones are scored.
#include "predict.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "best.h"
#include "fetch.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t LANES = 32;
constexpr int64_t LONGEST_WORD = 100;      // code points; a longer one has no pieces (text/tokenisers.py)
constexpr int64_t TEXTS_AT_ONCE = 16;      // share each block of rows when every label is scored
constexpr int64_t BLOCK_BYTES = 16 << 10;  // of rows that stay in the first-level cache meanwhile
constexpr int64_t ROWS_AHEAD = 8;          // of those that stand apart
constexpr float NOTHING = -std::numeric_limits<float>::infinity();
const std::string NO_MARK, CONTINUES = "##";

constexpr uint64_t HASH_START = 0xCBF29CE484222325u;

uint64_t hash_step(uint64_t hash, char byte) {
    return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
}

uint64_t hash_of(const char* bytes, size_t size) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < size; ++i) hash = hash_step(hash, bytes[i]);
    return hash;
}

uint64_t place_of(uint64_t hash) { return hash ^ (hash >> 29); }

uint64_t place_of(int32_t first, int32_t last) {
    const uint64_t pair = static_cast<uint64_t>(first) << 32 | static_cast<uint32_t>(last);
    return (pair * 0x9E3779B97F4A7C15u) >> 32;
}

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

// A word as UTF-8, and where each of its code points ends.
struct Word {
    std::string bytes;
    std::vector<int32_t> ends;

    void clear() {
        bytes.clear();
        ends.clear();
    }
    void add(uint32_t c) {
        if (c < 0x80) {
            bytes.push_back(static_cast<char>(c));
        } else {
            const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            bytes.push_back(static_cast<char>((0xFF00 >> (more + 1)) | (c >> (6 * more))));
            for (int i = more - 1; i >= 0; --i) bytes.push_back(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F)));
        }
        ends.push_back(static_cast<int32_t>(bytes.size()));
    }
};

// The longest known piece from the left, and again; nothing if the word cannot be covered.
void add_pieces(const Vocabulary& vocabulary, const Word& word, std::vector<int32_t>& ids) {
    const size_t before = ids.size(), n = word.ends.size();
    uint64_t hashes[LONGEST_WORD];
    for (size_t start = 0; start < n;) {
        const std::string& mark = start ? CONTINUES : NO_MARK;
        const char* bytes = word.bytes.data();
        const size_t reach = std::min(n, start + static_cast<size_t>(vocabulary.longest()));
        const int32_t first = start ? word.ends[start - 1] : 0;
        uint64_t hash = hash_of(mark.data(), mark.size());
        int32_t byte = first;
        for (size_t end = start; end < reach; ++end) {
            for (; byte < word.ends[end]; ++byte) hash = hash_step(hash, bytes[byte]);
            hashes[end] = hash;
        }
        int32_t id = -1;
        size_t end = reach;
        for (; end > start && id < 0; --end)
            id = vocabulary.find(hashes[end - 1], mark, bytes + first, word.ends[end - 1] - first);
        if (id < 0) {
            ids.resize(before);
            return;
        }
        ids.push_back(id);
        start = end + 1;
    }
}

// `ending` holds the known runs of 1, 2, … words that end before this word, −1 where there is none.
void add_word(const Vectoriser& vectoriser, const Word& word, std::vector<int32_t>& ending, std::vector<int32_t>& ids) {
    if (word.bytes.empty()) return;
    const char* bytes = word.bytes.data();
    const size_t size = word.bytes.size();
    const int32_t whole = vectoriser.vocabulary.find(hash_of(bytes, size), NO_MARK, bytes, size);
    if (whole >= 0) ids.push_back(whole);
    else if (vectoriser.pieces && word.ends.size() <= LONGEST_WORD) add_pieces(vectoriser.vocabulary, word, ids);
    int32_t next = whole;
    for (int32_t& run : ending) {
        const int32_t longer = run >= 0 && whole >= 0 ? vectoriser.vocabulary.find_run(run, whole) : -1;
        if (longer >= 0) ids.push_back(longer);
        run = next;
        next = longer;
    }
}

bool is_ascii_word(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

template <class Unit, class Accepts>
void tokenise(const Vectoriser& vectoriser, const Unit* units, int64_t n, bool lower, const Accepts& is_word,
              std::vector<int32_t>& ids) {
    Word word;
    std::vector<int32_t> ending(vectoriser.pieces ? 0 : vectoriser.vocabulary.longest_run() - 1, -1);
    for (int64_t i = 0; i < n; ++i) {
        uint32_t c = units[i];
        if (lower && c >= 'A' && c <= 'Z') c += 'a' - 'A';
        if (is_word(c)) {
            word.add(c);
        } else {
            add_word(vectoriser, word, ending, ids);
            word.clear();
        }
    }
    add_word(vectoriser, word, ending, ids);
}

std::vector<int32_t> token_ids(const Vectoriser& vectoriser, const Text& text, IsWord is_word) {
    std::vector<int32_t> ids;
    if (text.width == 0)
        tokenise(vectoriser, static_cast<const uint8_t*>(text.data), text.length, true, is_ascii_word, ids);
    else if (text.width == 1)
        tokenise(vectoriser, static_cast<const uint8_t*>(text.data), text.length, false, is_word, ids);
    else if (text.width == 2)
        tokenise(vectoriser, static_cast<const uint16_t*>(text.data), text.length, false, is_word, ids);
    else
        tokenise(vectoriser, static_cast<const uint32_t*>(text.data), text.length, false, is_word, ids);
    return ids;
}

// A vector in the forms that rows are scored against.
struct Query {
    std::vector<float> values;   // zero beyond the vector, up to a multiple of LANES
    float tail[LANES];           // the last LANES values, zero where a whole block before it counts them already
    std::vector<int16_t> steps;  // the same in steps of `scale`: with 8-bit rows no sum leaves 32 bits
    float scale;

    void set(const std::vector<float>& vector) {
        const auto dim = static_cast<int64_t>(vector.size()), width = (dim + LANES - 1) / LANES * LANES;
        values = vector;
        values.resize(width);
        for (int64_t lane = 0; lane < LANES && dim >= LANES; ++lane) {
            const int64_t j = dim - LANES + lane;
            tail[lane] = j >= dim / LANES * LANES ? vector[j] : 0;
        }
        float peak = 0;
        for (const float value : vector) peak = std::max(peak, std::abs(value));
        const float most = static_cast<float>(std::min<int64_t>(32767, ((int64_t{1} << 31) - 1) / (127 * width)));
        scale = peak / most;
        const float inverse = peak > 0 ? most / peak : 0;
        steps.resize(width);
        for (int64_t j = 0; j < width; ++j) steps[j] = static_cast<int16_t>(std::lrintf(values[j] * inverse));
    }
};

inline float widen(float value) { return value; }

inline float widen(uint16_t bfloat16) {
    const uint32_t bits = static_cast<uint32_t>(bfloat16) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
inline __attribute__((always_inline)) float dot(const T* row, int64_t width, const float* values, const float* tail) {
    float lanes[LANES] = {};
    int64_t j = 0;
    for (; j + LANES <= width; j += LANES)
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] += widen(row[j + lane]) * values[j + lane];
    if (j < width && width > LANES) {
        row += width - LANES;
        for (int64_t lane = 0; lane < LANES; ++lane) lanes[lane] += widen(row[lane]) * tail[lane];
    } else {
        for (; j < width; ++j) lanes[j] += widen(row[j]) * values[j];
    }
    for (int64_t half = LANES / 2; half; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    return lanes[0];
}

// Row i is number i, or number `at[i]`; rows that stand apart are fetched ahead, with what belongs to them.
template <class T>
inline __attribute__((always_inline)) const T* row_at(const T* rows, int64_t width, const float* scale,
                                                      const float* bias, const int32_t* at, int64_t i, int64_t n) {
    if (!at) return rows + i * width;
    if (i + ROWS_AHEAD < n) {
        const int64_t next = at[i + ROWS_AHEAD];
        fetch(rows + next * width, width * sizeof(T));
        fetch(scale + next, sizeof(float));
        fetch(bias + next, sizeof(float));
    }
    return rows + at[i] * width;
}

XCLEARN_CLONES void score_float32(const float* rows, int64_t width, const float* bias, const int32_t* at, int64_t n,
                                  const float* values, const float* tail, float* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = dot(row_at(rows, width, bias, bias, at, i, n), width, values, tail) + bias[at ? at[i] : i];
}

XCLEARN_CLONES void score_bfloat16(const uint16_t* rows, int64_t width, const float* bias, const int32_t* at, int64_t n,
                                   const float* values, const float* tail, float* out) {
    for (int64_t i = 0; i < n; ++i)
        out[i] = dot(row_at(rows, width, bias, bias, at, i, n), width, values, tail) + bias[at ? at[i] : i];
}

XCLEARN_CLONES void score_int8(const int8_t* rows, int64_t width, const float* scale, const float* bias,
                               const int32_t* at, int64_t n, const int16_t* steps, float step, float* out) {
    for (int64_t i = 0; i < n; ++i) {
        const int8_t* row = row_at(rows, width, scale, bias, at, i, n);
        int32_t sum = 0;
        for (int64_t j = 0; j < width; ++j) sum += static_cast<int32_t>(row[j]) * steps[j];
        const int64_t number = at ? at[i] : i;
        out[i] = static_cast<float>(sum) * (scale[number] * step) + bias[number];
    }
}

XCLEARN_CLONES void add_scaled(const float* row, float weight, int64_t n, float* sum) {
    for (int64_t j = 0; j < n; ++j) sum[j] += weight * row[j];
}

// The scores of n rows: those from `begin` on, or those numbered in `at`.
void score(const Rows& rows, const Query& query, int64_t begin, const int32_t* at, int64_t n, float* out) {
    const int64_t first = begin * rows.width;
    const float* bias = rows.bias + begin;
    if (rows.precision == Precision::int8)
        score_int8(static_cast<const int8_t*>(rows.values) + first, rows.width, rows.scale + begin, bias, at, n,
                   query.steps.data(), query.scale, out);
    else if (rows.precision == Precision::bfloat16)
        score_bfloat16(static_cast<const uint16_t*>(rows.values) + first, rows.width, bias, at, n, query.values.data(),
                       query.tail, out);
    else
        score_float32(static_cast<const float*>(rows.values) + first, rows.width, bias, at, n, query.values.data(),
                      query.tail, out);
}

int64_t row_bytes(const Rows& rows) {
    return rows.width * (rows.precision == Precision::int8 ? 1 : rows.precision == Precision::bfloat16 ? 2 : 4);
}

void fetch_rows(const Rows& rows, int64_t begin, int64_t end) {
    fetch(static_cast<const char*>(rows.values) + begin * row_bytes(rows), (end - begin) * row_bytes(rows));
}

void scale_to_unit(std::vector<float>& vector) {
    double square = 0;
    for (const float value : vector) square += static_cast<double>(value) * value;
    if (square == 0) return;
    const auto norm = static_cast<float>(std::sqrt(square));
    for (float& value : vector) value /= norm;
}

void apply(const Layer& layer, std::vector<float>& vector) {
    if (layer.kind == Layer::Kind::unit) return scale_to_unit(vector);
    const auto dim = static_cast<int64_t>(vector.size());
    std::vector<float> in(vector);
    if (layer.kind != Layer::Kind::residual)
        for (float& value : in) value = std::max(value, 0.0f);
    if (layer.kind == Layer::Kind::relu) {
        vector.swap(in);
        return;
    }
    std::vector<float> out(layer.bias, layer.bias + dim);
    for (int64_t j = 0; j < dim; ++j)
        if (in[j] != 0) add_scaled(layer.columns.data() + j * dim, in[j], dim, out.data());  // a ReLU leaves many zeros
    for (int64_t j = 0; j < dim; ++j)
        vector[j] = layer.kind == Layer::Kind::residual
                        ? vector[j] + std::max(out[j], 0.0f)
                        : layer.block_gate[j] * out[j] + layer.skip_gate[j] * vector[j];
}

std::vector<float> encode(const Encoder& encoder, const Bag& bag) {
    std::vector<float> vector(encoder.dim);
    const auto n = static_cast<int64_t>(bag.ids.size());
    const auto row = [&](int64_t i) { return encoder.embeddings + bag.ids[i] * encoder.dim; };
    for (int64_t i = -ROWS_AHEAD; i < n; ++i) {
        if (i + ROWS_AHEAD < n) fetch(row(i + ROWS_AHEAD), encoder.dim * sizeof(float));
        if (i >= 0) add_scaled(row(i), bag.weights[i], encoder.dim, vector.data());
    }
    for (const Layer& layer : encoder.layers) apply(layer, vector);
    return vector;
}

// An integer that orders as the float does; a value that is not a number comes last.
uint32_t ordered_bits(float value) {
    if (std::isnan(value)) return 0;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Labels and the sum of what is added to each: an open hash table.
class Sums {
  public:
    explicit Sums(int64_t most, float start = 0) : used_(most + 1) {
        size_t size = 16;
        while (size < 2 * static_cast<size_t>(most)) size *= 2;
        table_.resize(size, {start, 0});
    }

    void add(int32_t label, float value) { slot_of(label).sum += value; }

    void raise(int32_t label, float value) {  // to at least this value
        Slot& slot = slot_of(label);
        slot.sum = std::max(slot.sum, value);
    }

    // Without sums that are not a number, which no order holds: overflow makes them, of finite weights too.
    std::vector<Entry> entries() const {
        std::vector<Entry> found;
        found.reserve(n_used_);
        for (size_t i = 0; i < n_used_; ++i) {
            const auto [sum, number] = table_[used_[i]];
            if (!std::isnan(sum)) found.push_back({sum, number - 1});
        }
        return found;
    }

    // The labels of the `most` largest sums, ties by label. The upper bits of the sums are counted; only the sums that
    // share those of the smallest one kept are compared.
    std::vector<int32_t> largest(int64_t most) {
        const auto upper = [](float sum) { return ordered_bits(sum) >> 20; };
        std::vector<int32_t> counts(1 << 12), labels;
        for (size_t i = 0; i < n_used_; ++i) ++counts[upper(table_[used_[i]].sum)];
        uint32_t last = (1 << 12) - 1;
        int64_t room = most - counts[last];
        while (room > 0 && last > 0) room -= counts[--last];
        std::vector<Entry> between;
        labels.reserve(std::min(most, static_cast<int64_t>(n_used_)));
        for (size_t i = 0; i < n_used_; ++i) {
            const auto [sum, number] = table_[used_[i]];
            if (upper(sum) > last) labels.push_back(number - 1);
            else if (upper(sum) == last) between.push_back({sum, number - 1});
        }
        if (room < 0) {
            std::nth_element(between.begin(), between.end() + room, between.end(), better);
            between.resize(between.size() + room);
        }
        for (const Entry& entry : between) labels.push_back(entry.label);
        return labels;
    }

  private:
    struct Slot {
        float sum;
        int32_t number;  // of the label, counted from 1; 0: free
    };

    Slot& slot_of(int32_t label) {
        const size_t mask = table_.size() - 1;
        size_t place = (static_cast<uint32_t>(label) * 0x9E3779B1u >> 7) & mask;
        while (table_[place].number && table_[place].number != label + 1) place = (place + 1) & mask;
        Slot& slot = table_[place];
        used_[n_used_] = static_cast<uint32_t>(place);
        n_used_ += !slot.number;  // no branch: whether a label is new cannot be predicted
        slot.number = label + 1;
        return slot;
    }

    std::vector<Slot> table_;
    std::vector<uint32_t> used_;
    size_t n_used_ = 0;
};

// The tokens of a text that are looked up: the heaviest, in the order of the bag.
std::vector<int32_t> heaviest(const Bag& bag, int64_t most) {
    std::vector<int32_t> places(bag.ids.size());
    std::iota(places.begin(), places.end(), 0);
    if (static_cast<int64_t>(places.size()) <= most) return places;
    std::nth_element(places.begin(), places.begin() + most, places.end(), [&](int32_t a, int32_t b) {
        return better({bag.weights[a], a}, {bag.weights[b], b});
    });
    places.resize(most);
    std::sort(places.begin(), places.end());
    return places;
}

std::vector<int32_t> shortlist(const TokenIndex& index, const Bag& bag) {
    const std::vector<int32_t> places = heaviest(bag, index.tokens);
    const auto n_postings = [&](int32_t token) {
        return std::min(index.postings, index.offsets[token + 1] - index.offsets[token]);
    };
    int64_t most = index.n_always;
    for (const int32_t place : places) {
        const int32_t token = bag.ids[place];
        most += n_postings(token);
        fetch(index.labels + index.offsets[token], n_postings(token) * sizeof(int32_t));
        fetch(index.weights + index.offsets[token], n_postings(token) * sizeof(float));
    }
    Sums sums(most);
    for (int64_t i = 0; i < index.n_always; ++i) sums.add(index.always[i], std::numeric_limits<float>::infinity());
    for (const int32_t place : places) {
        const int32_t token = bag.ids[place];
        const int64_t first = index.offsets[token], last = first + n_postings(token);
        for (int64_t i = first; i < last; ++i) sums.add(index.labels[i], bag.weights[place] * index.weights[i]);
    }
    return sums.largest(index.shortlist);
}

// What `game` makes of nodes and their chances: other nodes come in, none is more than certain.
std::vector<Entry> spread(const Game& game, const std::vector<Entry>& first) {
    int64_t most = static_cast<int64_t>(first.size());
    for (const auto& [chance, node] : first) most += game.offsets[node + 1] - game.offsets[node];
    Sums passed(most), mixed(most);
    for (const auto& [chance, node] : first) {
        mixed.add(node, (1 - game.share) * chance);
        for (int64_t i = game.offsets[node]; i < game.offsets[node + 1]; ++i)
            passed.add(game.targets[i], chance * game.weights[i]);
    }
    std::vector<Entry> best = passed.entries();
    cut(best, game.kept);
    for (const auto& [chance, node] : best) mixed.add(node, game.share * chance);
    std::vector<Entry> found;
    for (const auto& [chance, node] : mixed.entries())
        if (chance > 0) found.push_back({std::min(chance, 1.0f), node});
    return found;
}

double log_logistic(double logit) { return -(std::max(-logit, 0.0) + std::log1p(std::exp(-std::abs(logit)))); }

double logistic(double logit) { return std::exp(log_logistic(logit)); }

// Consecutive children of a node, or label positions, and the logarithm of the node's chance.
struct Range {
    int64_t begin, end;
    double log_chance;
};

// One document on its way.
class Search {
  public:
    Search(const Servable& servable, const Bag& bag, Best best)
        : servable_(servable), best_(std::move(best)), queries_(servable.encoders.size()),
          logits_(servable.scorers.size()) {
        for (size_t i = 0; i < queries_.size(); ++i) queries_[i].set(encode(servable.encoders[i], bag));
        if (servable.re_ranking.depth) bag_ = bag;
    }

    // The labels of the best clusters.
    void descend() {
        const std::vector<Range> ranges = best_clusters();
        const Scorer& first = servable_.scorers.front();
        for (size_t i = 0; i < ranges.size(); ++i) {
            if (i + 1 < ranges.size() && !first.row_of_position)
                fetch_rows(first.rows, ranges[i + 1].begin, ranges[i + 1].end);
            const auto [begin, end, log_chance] = ranges[i];
            offer(begin, nullptr, end - begin, servable_.fusion == Fusion::product ? log_chance : 0);
        }
    }

    // n centres from `begin` on; those of a label stand together.
    void look_at(const Centres& centres, int64_t begin, int64_t n) {
        if (begin == 0) {
            nearest_ = Best(centres.size, nullptr, nullptr);
            unit_.set(unit(queries_[centres.encoder].values, servable_.encoders[centres.encoder].dim));
            now_ = {LOWEST, centres.labels[0]};
        }
        scores_.resize(n);
        score(centres.rows, unit_, begin, nullptr, n, scores_.data());
        for (int64_t i = 0; i < n; ++i) {
            const int32_t label = centres.labels[begin + i];
            if (label != now_.label) {
                nearest_.offer(now_);
                now_ = {LOWEST, label};
            }
            now_.key = std::max(now_.key, scores_[i]);
        }
        if (begin + n == centres.rows.n) nearest_.offer(now_);
    }

    // The labels that were found nearest; their cosines stand as logits.
    void offer_nearest() { offer_similar(nearest_.sorted()); }

    // The labels that have the nearest centres in the best clusters.
    void look_below(const Centres& centres) {
        const std::vector<Range> ranges = best_clusters();
        unit_.set(unit(queries_[centres.encoder].values, servable_.encoders[centres.encoder].dim));
        nodes_.clear();
        for (size_t i = 0; i < ranges.size(); ++i) {
            if (i + 1 < ranges.size()) fetch_rows(centres.rows, ranges[i + 1].begin, ranges[i + 1].end);
            const int64_t begin = ranges[i].begin, n = ranges[i].end - begin;
            scores_.resize(n);
            score(centres.rows, unit_, begin, nullptr, n, scores_.data());
            for (int64_t j = 0; j < n; ++j)
                if (!std::isnan(scores_[j])) nodes_.push_back({scores_[j], centres.labels[begin + j]});
        }
        cut(nodes_, std::min(centres.size, centres.rows.n) * centres.per_label);  // what is left has as many labels as are wanted
        Sums nearest(static_cast<int64_t>(nodes_.size()), LOWEST);
        for (const Entry& centre : nodes_) nearest.raise(centre.label, centre.key);
        std::vector<Entry> found = nearest.entries();
        cut(found, centres.size);
        offer_similar(found);
    }

    // The labels at the end of the best paths.
    void follow(const Edges& edges) {
        scores_.resize(edges.rows.n);
        score(edges.rows, queries_[edges.encoder], 0, nullptr, edges.rows.n, scores_.data());
        float peak = LOWEST;
        nodes_.clear();
        for (int64_t i = 0; i < edges.rows.n; ++i) {
            if (std::isnan(scores_[i])) continue;
            nodes_.push_back({scores_[i], static_cast<int32_t>(i)});
            peak = std::max(peak, scores_[i]);
        }
        double total = 0;
        for (const Entry& node : nodes_) total += std::exp(static_cast<double>(node.key - peak));
        cut(nodes_, edges.beam);
        Sums paths(static_cast<int64_t>(nodes_.size()) * edges.per_cluster);
        for (const auto& [logit, node] : nodes_) {
            const auto softmax = std::exp(static_cast<double>(logit - peak)) / total;
            const auto chance = static_cast<float>(std::min(1.0, edges.scale * softmax));
            for (int64_t i = node * edges.per_cluster; i < (node + 1) * edges.per_cluster; ++i)
                if (edges.labels[i] >= 0) paths.raise(edges.labels[i], chance * edges.chances[i]);
        }
        std::vector<Entry> found = paths.entries();
        cut(found, edges.size);
        const auto log_odds = [](double chance) { return std::log(chance) - std::log1p(-chance); };
        offer_candidates(found, log_odds);
    }

    // The n labels at positions from `begin` on, or at those in `at`; `above` is what their cluster adds to the key.
    void offer(int64_t begin, const int32_t* at, int64_t n, double above) {
        for (size_t i = 0; i < logits_.size(); ++i) score_positions(servable_.scorers[i], begin, at, n, logits_[i]);
        const float* logits = logits_.front().data();
        for (int64_t i = 0; i < n; ++i) {
            if (!(logits[i] + above >= best_.bound())) continue;  // no logistic is above its logit's exponential
            const int32_t position = at ? at[i] : static_cast<int32_t>(begin + i);
            const int32_t label = servable_.labels ? servable_.labels[position] : position;
            best_.offer({servable_.fusion == Fusion::product ? log_product(i, above) : logits[i], label});
        }
    }

    // The best labels, from the game over labels where there is one.
    void write(int64_t k, const Excluded& excluded, int64_t row, int64_t* ids, float* scores) {
        std::fill(ids, ids + k, int64_t{-1});
        std::fill(scores, scores + k, NOTHING);
        std::vector<Entry> found = best_.sorted();
        for (Entry& entry : found) entry.key = chance_of(entry.key);
        const int64_t ranked = servable_.re_ranking.depth;
        if (servable_.label_game.offsets) {
            const std::vector<Entry> passed_on = spread(servable_.label_game, found);
            found = best_among(passed_on, ranked ? Best(ranked, nullptr, nullptr) : best_of(k, excluded, row));
        }
        if (ranked) {
            const int64_t encoder = servable_.re_ranking.ranker.encoder;
            re_rank(servable_.re_ranking, {bag_.ids.data(), bag_.weights.data(), static_cast<int64_t>(bag_.ids.size())},
                    encoder < 0 ? std::vector<float>() : unit(queries_[encoder].values, servable_.encoders[encoder].dim),
                    found);
            found = best_among(found, best_of(k, excluded, row));
        }
        for (const Entry& entry : found) {
            *ids++ = entry.label;
            *scores++ = entry.key;
        }
    }

  private:
    static std::vector<Entry> best_among(const std::vector<Entry>& entries, Best best) {
        for (const Entry& entry : entries) best.offer(entry);
        return best.sorted();
    }

    static std::vector<float> unit(std::vector<float> vector, int64_t dim) {
        vector.resize(dim);
        float squares = 0;
        for (const float value : vector) squares += value * value;
        if (squares > 0)
            for (float& value : vector) value /= std::sqrt(squares);
        return vector;
    }

    // What stands below the best nodes of the last level.
    std::vector<Range> best_clusters() {
        std::vector<Range> ranges{{0, servable_.levels.front().rows.n, 0}};
        for (const Level& level : servable_.levels) {
            best_nodes(level, ranges);
            if (&level == &servable_.levels.back() && servable_.cluster_game.offsets) pass_on();
            ranges = children(level);
        }
        return ranges;
    }

    void offer_similar(const std::vector<Entry>& found) {
        offer_candidates(found, [](float cosine) { return static_cast<double>(cosine); });
    }

    float chance_of(float key) const {
        if (servable_.fusion == Fusion::mix) return key;
        return static_cast<float>(std::exp(servable_.fusion == Fusion::product ? key : log_logistic(key)));
    }

    // Labels, each with a value from which `logit_of` makes its logit as a candidate; their positions are their ids.
    template <class LogitOf>
    void offer_candidates(const std::vector<Entry>& found, const LogitOf& logit_of) {
        const auto n = static_cast<int64_t>(found.size());
        std::vector<int32_t> at(n);
        std::vector<double> candidate(n);
        for (int64_t i = 0; i < n; ++i) {
            at[i] = found[i].label;
            candidate[i] = logit_of(found[i].key);
        }
        for (size_t i = 0; i < logits_.size(); ++i)
            score_positions(servable_.scorers[i], 0, at.data(), n, logits_[i]);
        if (servable_.fusion == Fusion::mix) {
            offer_mixed(at, candidate);
            return;
        }
        const bool product = servable_.fusion == Fusion::product;
        for (int64_t i = 0; i < n; ++i)
            best_.offer({product ? log_product(i, log_logistic(candidate[i])) : logits_.front()[i], at[i]});
    }

    void offer_mixed(const std::vector<int32_t>& at, std::vector<double>& similar) {
        const Mix& mix = servable_.mix;
        std::vector<double> scored(at.size());
        double most_scored = 0, most_similar = 0;
        for (size_t i = 0; i < at.size(); ++i) {
            double sum = 0;
            for (size_t j = 0; j < logits_.size(); ++j) sum += mix.scorer_weights[j] * logits_[j][i];
            most_scored = std::max(most_scored, scored[i] = logistic(sum));
            most_similar = std::max(most_similar, similar[i] = logistic(similar[i]));
        }
        if (!mix.by_row || most_scored == 0) most_scored = 1;
        if (!mix.by_row || most_similar == 0) most_similar = 1;
        for (size_t i = 0; i < at.size(); ++i) {
            const double score = mix.weight * scored[i] / most_scored + (1 - mix.weight) * similar[i] / most_similar;
            best_.offer({static_cast<float>(score), at[i]});
        }
    }

    void best_nodes(const Level& level, const std::vector<Range>& ranges) {
        nodes_.clear();
        for (size_t i = 0; i < ranges.size(); ++i) {
            const int64_t begin = ranges[i].begin, end = ranges[i].end;
            if (i + 1 < ranges.size()) fetch_rows(level.rows, ranges[i + 1].begin, ranges[i + 1].end);
            scores_.resize(end - begin);
            score(level.rows, queries_[level.encoder], begin, nullptr, end - begin, scores_.data());
            for (int64_t j = begin; j < end; ++j)
                if (!std::isnan(scores_[j - begin])) nodes_.push_back({scores_[j - begin], static_cast<int32_t>(j)});
        }
        cut(nodes_, level.beam);
        for (Entry& node : nodes_) node.key = static_cast<float>(log_logistic(node.key));
    }

    // The game over clusters; a node's key is the logarithm of its chance.
    void pass_on() {
        for (Entry& node : nodes_) node.key = std::exp(node.key);
        nodes_ = spread(servable_.cluster_game, nodes_);
        for (Entry& node : nodes_) node.key = std::log(node.key);
    }

    std::vector<Range> children(const Level& level) {
        std::sort(nodes_.begin(), nodes_.end(), [](const Entry& a, const Entry& b) { return a.label < b.label; });
        std::vector<Range> found;
        for (const auto& [log_chance, node] : nodes_)
            found.push_back({level.offsets[node], level.offsets[node + 1], log_chance});
        return found;
    }

    void score_positions(const Scorer& scorer, int64_t begin, const int32_t* at, int64_t n,
                         std::vector<float>& logits) {
        logits.resize(n);
        if (scorer.row_of_position) {
            rows_.resize(n);
            for (int64_t i = 0; i < n; ++i) rows_[i] = scorer.row_of_position[at ? at[i] : begin + i];
            begin = 0;
            at = rows_.data();
        }
        score(scorer.rows, queries_[scorer.encoder], begin, at, n, logits.data());
    }

    float log_product(int64_t i, double sum) const {
        for (const auto& logits : logits_) sum += log_logistic(logits[i]);
        return static_cast<float>(sum);
    }

    const Servable& servable_;
    Best best_;
    std::vector<Query> queries_;              // one an encoder
    std::vector<std::vector<float>> logits_;  // one a scorer
    std::vector<Entry> nodes_;
    std::vector<float> scores_;
    std::vector<int32_t> rows_;
    Bag bag_;     // for the re-ranking
    Query unit_;  // what centres are compared with
    Best nearest_{0, nullptr, nullptr};
    Entry now_{};  // the label whose centres are being looked at
};

void scan_all(const Servable& servable, std::vector<Search>& searches) {
    const int64_t step = std::max<int64_t>(1, BLOCK_BYTES / row_bytes(servable.scorers.front().rows));
    for (int64_t begin = 0; begin < servable.n_labels; begin += step)
        for (Search& search : searches) search.offer(begin, nullptr, std::min(servable.n_labels - begin, step), 0);
}

void scan_centres(const Centres& centres, std::vector<Search>& searches) {
    const int64_t step = std::max<int64_t>(1, BLOCK_BYTES / row_bytes(centres.rows));
    for (int64_t begin = 0; begin < centres.rows.n; begin += step)
        for (Search& search : searches) search.look_at(centres, begin, std::min(centres.rows.n - begin, step));
    for (Search& search : searches) search.offer_nearest();
}

template <class BagOf>
void predict(const Servable& servable, const BagOf& bag, int64_t n, const Excluded& excluded, int64_t k,
             int n_threads, int64_t* ids, float* scores) {
    const int64_t share = std::clamp<int64_t>((n + n_threads - 1) / n_threads, 1, TEXTS_AT_ONCE);
    parallel_for((n + share - 1) / share, n_threads, [&](int64_t task, int) {
        const int64_t first = task * share, last = std::min(n, first + share);
        std::vector<Search> searches;
        searches.reserve(last - first);
        const int64_t depth = servable.label_game.offsets ? servable.game_depth : servable.re_ranking.depth;
        for (int64_t i = first; i < last; ++i) {
            const Bag own = bag(i);
            // excluded labels take part in what follows, and k is not its matter
            const Best best = depth ? Best(depth, nullptr, nullptr) : best_of(k, excluded, i);
            searches.emplace_back(servable, own, best);
            if (servable.index.offsets) {
                const std::vector<int32_t> found = shortlist(servable.index, own);
                searches.back().offer(0, found.data(), static_cast<int64_t>(found.size()), 0);
            } else if (servable.edges.labels) {
                searches.back().follow(servable.edges);
            } else if (!servable.levels.empty() && servable.centres.labels) {
                searches.back().look_below(servable.centres);
            } else if (!servable.levels.empty()) {
                searches.back().descend();
            }
        }
        if (!servable.index.offsets && !servable.edges.labels && servable.levels.empty()) {
            if (servable.centres.labels) scan_centres(servable.centres, searches);
            else scan_all(servable, searches);
        }
        for (int64_t i = first; i < last; ++i)
            searches[i - first].write(k, excluded, i, ids + i * k, scores + i * k);
    });
}

}  // namespace

void Vocabulary::add(const char* token, size_t size) {
    block_.append(token, size);
    offsets_.push_back(static_cast<int64_t>(block_.size()));
    longest_ = std::max<int64_t>(
        longest_, std::count_if(token, token + size, [](char byte) { return (byte & 0xC0) != 0x80; }));
}

void Vocabulary::build() {
    size_t n_slots = 16;
    while (n_slots < 2 * offsets_.size()) n_slots *= 2;
    slots_.assign(n_slots, {0, -1});
    for (int32_t id = 0; id < size(); ++id) {
        const uint64_t hash = hash_of(block_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]);
        uint64_t place = place_of(hash) & (n_slots - 1);
        while (slots_[place].id >= 0) place = (place + 1) & (n_slots - 1);
        slots_[place] = {tag_of(hash), id};
    }
    build_runs();
}

void Vocabulary::build_runs() {
    std::vector<Run> found;
    for (int32_t id = 0; id < size(); ++id) {
        const char* token = block_.data() + offsets_[id];
        const char* end = block_.data() + offsets_[id + 1];
        const char* last = end;
        while (last > token && last[-1] != ' ') --last;
        if (last == token) continue;
        const auto part = [&](const char* from, const char* to) {
            return find(hash_of(from, to - from), NO_MARK, from, to - from);
        };
        found.push_back({part(token, last - 1), part(last, end), id});
        longest_run_ = std::max<int64_t>(longest_run_, 1 + std::count(token, end, ' '));
    }
    size_t n_slots = 16;
    while (n_slots < 2 * found.size()) n_slots *= 2;
    runs_.assign(n_slots, {-1, -1, -1});
    for (const Run& run : found) {
        uint64_t place = place_of(run.first, run.last) & (n_slots - 1);
        while (runs_[place].id >= 0) place = (place + 1) & (n_slots - 1);
        runs_[place] = run;
    }
}

int32_t Vocabulary::find_run(int32_t first, int32_t last) const {
    const uint64_t mask = runs_.size() - 1;
    for (uint64_t place = place_of(first, last) & mask; runs_[place].id >= 0; place = (place + 1) & mask)
        if (runs_[place].first == first && runs_[place].last == last) return runs_[place].id;
    return -1;
}

int32_t Vocabulary::find(uint64_t hash, const std::string& mark, const char* word, size_t size) const {
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t place = place_of(hash) & mask; slots_[place].id >= 0; place = (place + 1) & mask) {
        const auto [tag, id] = slots_[place];
        const char* token = block_.data() + offsets_[id];
        if (tag == tag_of(hash) && offsets_[id + 1] - offsets_[id] == static_cast<int64_t>(mark.size() + size) &&
            std::memcmp(token, mark.data(), mark.size()) == 0 && std::memcmp(token + mark.size(), word, size) == 0)
            return id;
    }
    return -1;
}

Bag bag_of(const Vectoriser& vectoriser, const Text& text, IsWord is_word) {
    std::vector<int32_t> ids = token_ids(vectoriser, text, is_word);
    std::sort(ids.begin(), ids.end());
    Bag bag;
    std::vector<double> weights;
    double squares = 0;
    for (size_t i = 0, end; i < ids.size(); i = end) {
        for (end = i; end < ids.size() && ids[end] == ids[i];) ++end;
        const auto count = static_cast<int64_t>(end - i);
        const double weight = vectoriser.damped ? vectoriser.damped[std::min(count, vectoriser.n_damped - 1)]
                                                : static_cast<double>(count);
        bag.ids.push_back(ids[i]);
        weights.push_back(weight * vectoriser.idf[ids[i]]);
        squares += weights.back() * weights.back();
    }
    const double norm = vectoriser.normalise && squares > 0 ? std::sqrt(squares) : 1;
    for (const double weight : weights) bag.weights.push_back(static_cast<float>(weight / norm));
    return bag;
}

void predict_texts(const Servable& servable, const std::vector<Text>& texts, IsWord is_word, const Excluded& excluded,
                   int64_t k, int n_threads, int64_t* ids, float* scores) {
    const auto bag = [&](int64_t i) { return bag_of(servable.vectoriser, texts[i], is_word); };
    predict(servable, bag, static_cast<int64_t>(texts.size()), excluded, k, n_threads, ids, scores);
}

void predict_rows(const Servable& servable, const int64_t* indptr, const int32_t* indices, const float* data, int64_t n,
                  const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores) {
    const auto bag = [&](int64_t i) {
        return Bag{{indices + indptr[i], indices + indptr[i + 1]}, {data + indptr[i], data + indptr[i + 1]}};
    };
    predict(servable, bag, n, excluded, k, n_threads, ids, scores);
}

}  // namespace xclearn

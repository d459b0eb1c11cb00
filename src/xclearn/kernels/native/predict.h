// From a text to its best labels, in one call. Free of Python; inference/ says the same in NumPy and is the test oracle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "best.h"
#include "re_ranking.h"

namespace xclearn {

// ASCII as it came, or lower-cased code points of 1, 2 or 4 bytes.
struct Text {
    const void* data;
    int64_t length;  // code points
    int width;       // bytes of a code point; 0: ASCII, not yet lower-cased
};

using IsWord = bool (*)(uint32_t);  // whether a code point belongs to a word

// Token -> id: an open hash table over one block of UTF-8. A token with spaces is a run of words.
class Vocabulary {
  public:
    void add(const char* token, size_t size);  // ids count up from 0
    void build();
    int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
    int64_t longest() const { return longest_; }  // code points of the longest token
    // The id of mark + word, given its hash; −1 when unknown.
    int32_t find(uint64_t hash, const std::string& mark, const char* word, size_t size) const;
    int64_t longest_run() const { return longest_run_; }  // words of the longest run
    // The id of a run, by those of the run without its last word and of that word; −1 when unknown.
    int32_t find_run(int32_t first, int32_t last) const;

  private:
    void build_runs();

    struct Slot {
        uint32_t tag;
        int32_t id;
    };
    struct Run {
        int32_t first, last, id;
    };
    std::string block_;
    std::vector<int64_t> offsets_{0};
    std::vector<Slot> slots_;
    std::vector<Run> runs_;  // another open hash table
    int64_t longest_ = 0, longest_run_ = 1;
};

// Text -> TF-IDF weights of its tokens.
struct Vectoriser {
    Vocabulary vocabulary;
    bool pieces = false;  // words that are not in the vocabulary fall into pieces that are
    const double* idf = nullptr;
    const double* damped = nullptr;  // weight of a count, looked up; null: the count itself
    int64_t n_damped = 0;
    bool normalise = false;
};

struct Bag {
    std::vector<int32_t> ids;  // ascending
    std::vector<float> weights;
};

enum class Precision { float32, bfloat16, int8 };

// Scored against a vector as w · v + b; int8 rows are steps of `scale`.
struct Rows {
    const void* values;  // (n, width); width is that of the vector, or a multiple of 32 and zero beyond the vector
    Precision precision;
    const float* scale;
    const float* bias;
    int64_t n, width;
};

struct Layer {
    enum class Kind { relu, residual, gated, unit } kind;
    std::vector<float> columns;  // (dim, dim) the weight, column after column
    const float* bias = nullptr;
    const float* block_gate = nullptr;
    const float* skip_gate = nullptr;
};

struct Encoder {
    const float* embeddings;  // (V, dim)
    int64_t dim;
    std::vector<Layer> layers;
};

// A level of the cluster tree: the best `beam` of the nodes that the level above leads to.
struct Level {
    int64_t encoder;
    Rows rows;
    const int64_t* offsets;  // children of node i: offsets[i] .. offsets[i + 1] of the next level, or label positions
    int64_t beam;
};

// Labels that go with each token. Those that go best with the tokens of a text are scored.
struct TokenIndex {
    const int64_t* offsets = nullptr;  // (V + 1) where the postings of a token start; null: there is no index
    const int32_t* labels = nullptr;   // of the postings, the heaviest of a token first
    const float* weights = nullptr;
    const int32_t* always = nullptr;  // labels that are scored for every text
    int64_t n_always = 0;
    int64_t tokens = 0;     // of a text that are looked up, the heaviest
    int64_t postings = 0;   // of a token that are read
    int64_t shortlist = 0;  // labels kept
};

// Centres of labels. Those nearest to the vector by their cosine are scored; a label's nearest centre counts. With
// levels only the centres below the best nodes are looked at, and stand in the order of the last level's offsets.
struct Centres {
    int64_t encoder = 0;
    Rows rows{};                      // of length one
    const int32_t* labels = nullptr;  // of each centre, ascending where there are no levels; null: there are no centres
    int64_t size = 0;                 // labels kept
    int64_t per_label = 1;            // centres that a label has at most
};

// Clusters with edges to labels. The labels at the end of the best paths are scored.
struct Edges {
    int64_t encoder = 0;
    Rows rows{};                      // of the clusters
    float scale = 0;                  // the chance of a cluster is min(1, scale · softmax)
    int64_t beam = 0;                 // clusters kept
    const int32_t* labels = nullptr;  // (clusters, per_cluster); −1: no edge; null: there are no edges at all
    const float* chances = nullptr;
    int64_t per_cluster = 0;
    int64_t size = 0;  // labels kept
};

// Chances passed one step over a graph: (1 − share) · p + share · (the `kept` best of what is passed on).
struct Game {
    const int64_t* offsets = nullptr;  // where the edges of a node start; null: there is no graph
    const int32_t* targets = nullptr;
    const float* weights = nullptr;
    float share = 0;
    int64_t kept = 0;
};

struct Scorer {
    int64_t encoder;
    Rows rows;
    const int32_t* row_of_position;  // null: rows stand by position
};

// sigmoid: the logistic of the one scorer; product: of candidate and scorers; mix: weighted sums, see inference/.
enum class Fusion { sigmoid, product, mix };

struct Mix {
    std::vector<float> scorer_weights;
    float weight = 0;
    bool by_row = false;
};

struct Servable {
    Vectoriser vectoriser;
    std::vector<Encoder> encoders;
    std::vector<Level> levels;  // to labels, or to centres
    TokenIndex index;           // or this way to find labels, or one of the next; without any every label is scored
    Centres centres;
    Edges edges;
    Game cluster_game;  // between the nodes of the last level
    std::vector<Scorer> scorers;
    const int32_t* labels = nullptr;  // of each position; null: the position itself
    int64_t n_labels = 0;
    Fusion fusion = Fusion::sigmoid;
    Mix mix;
    Game label_game;         // between labels, after fusion
    int64_t game_depth = 0;  // best labels that it is given
    ReRanking re_ranking;    // after it
};

Bag bag_of(const Vectoriser& vectoriser, const Text& text, IsWord is_word);

// Writes the k best labels of each document, score descending, then id ascending; the rest is −1 and −infinity.
void predict_texts(const Servable& servable, const std::vector<Text>& texts, IsWord is_word, const Excluded& excluded,
                   int64_t k, int n_threads, int64_t* ids, float* scores);
void predict_rows(const Servable& servable, const int64_t* indptr, const int32_t* indices, const float* data, int64_t n,
                  const Excluded& excluded, int64_t k, int n_threads, int64_t* ids, float* scores);

}  // namespace xclearn

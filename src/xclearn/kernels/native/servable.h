// What a loaded model consists of: how labels are found for a text, how they are scored, and what follows.
#pragma once

#include <cstdint>
#include <vector>

#include "encoder.h"
#include "game.h"
#include "re_ranking.h"
#include "rows.h"
#include "token_index.h"
#include "tokens.h"

namespace xclearn {

// A level of the cluster tree: the best `beam` of the nodes that the level above leads to.
struct Level {
    int64_t encoder;
    Rows rows;
    const int64_t* offsets;  // children of node i: offsets[i] .. offsets[i + 1] of the next level, or label positions
    int64_t beam;
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

}  // namespace xclearn

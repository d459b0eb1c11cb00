#include "game.h"

#include <algorithm>

#include "sums.h"

namespace xclearn {

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

}  // namespace xclearn

// The labels at the ends of the best paths: from a document to its clusters, from these over their edges.
#include <limits>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t DOCUMENTS_PER_TASK = 16;
constexpr float LOWEST = std::numeric_limits<float>::lowest();

struct Path {
    float score;
    int32_t label, cluster, slot;
    bool wanted;
};

bool better(const Path& a, const Path& b) {
    if (a.wanted != b.wanted) return a.wanted;
    return a.score != b.score ? a.score > b.score : a.label < b.label;
}

// Every label below the document's clusters once, with its best path; `place` is −1 everywhere, before and after.
void explore(const PathIndex& index, const PathQuery& query, int64_t document, std::vector<int32_t>& place,
             std::vector<Path>& paths) {
    paths.clear();
    for (int64_t i = query.starts[document]; i < query.starts[document + 1]; ++i) {
        const int32_t cluster = query.clusters[i];
        for (int32_t slot = 0; slot < index.n_slots; ++slot) {
            const int64_t edge = cluster * index.n_slots + slot;
            const int32_t label = index.labels[edge];
            if (label < 0) continue;
            float score = query.chances[i] + index.strengths[edge];
            if (!(score > LOWEST)) score = LOWEST;  // not a number would break the order
            int32_t& at = place[static_cast<size_t>(label)];
            if (at < 0) {
                at = static_cast<int32_t>(paths.size());
                paths.push_back({score, label, cluster, slot, false});
            } else if (score > paths[static_cast<size_t>(at)].score) {
                paths[static_cast<size_t>(at)] = {score, label, cluster, slot, false};
            }
        }
    }
    for (int64_t i = query.wanted_starts[document]; i < query.wanted_starts[document + 1]; ++i) {
        const int32_t at = place[static_cast<size_t>(query.wanted[i])];
        if (at >= 0) paths[static_cast<size_t>(at)].wanted = true;
    }
    for (const Path& path : paths) place[static_cast<size_t>(path.label)] = -1;
}

}  // namespace

std::vector<PathEnds> best_paths(const PathIndex& index, const PathQuery& query, int64_t k, int n_threads) {
    std::vector<PathEnds> parts(static_cast<size_t>((query.n + DOCUMENTS_PER_TASK - 1) / DOCUMENTS_PER_TASK));
    std::vector<std::vector<int32_t>> places(static_cast<size_t>(n_threads));
    parallel_for(static_cast<int64_t>(parts.size()), n_threads, [&](int64_t task, int thread) {
        PathEnds& part = parts[static_cast<size_t>(task)];
        std::vector<int32_t>& place = places[static_cast<size_t>(thread)];
        place.resize(static_cast<size_t>(index.n_labels), -1);
        std::vector<Path> paths;
        const int64_t stop = std::min(query.n, (task + 1) * DOCUMENTS_PER_TASK);
        for (int64_t document = task * DOCUMENTS_PER_TASK; document < stop; ++document) {
            explore(index, query, document, place, paths);
            if (static_cast<int64_t>(paths.size()) > k) {
                std::nth_element(paths.begin(), paths.begin() + k, paths.end(), better);
                paths.resize(static_cast<size_t>(k));
            }
            std::sort(paths.begin(), paths.end(), [](const Path& a, const Path& b) { return a.label < b.label; });
            for (const Path& path : paths) {
                part.owners.push_back(document);
                part.labels.push_back(path.label);
                part.clusters.push_back(path.cluster);
                part.slots.push_back(path.slot);
                part.wanted.push_back(path.wanted);
            }
        }
    });
    return parts;
}

}  // namespace xclearn

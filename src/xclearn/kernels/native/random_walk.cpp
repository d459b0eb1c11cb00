// Random walks with restart between labels and documents: how often each label is visited from each other one.
#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t LABELS_PER_TASK = 256;

struct Visit {
    int32_t label, count;
};

uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// One of the entries of a row that is not empty.
int32_t pick(const int64_t* indptr, const int32_t* indices, int32_t row, uint64_t random) {
    const uint64_t length = static_cast<uint64_t>(indptr[row + 1] - indptr[row]);
    return indices[indptr[row] + static_cast<int64_t>(((random >> 32) * length) >> 32)];
}

// Every draw is a function of (seed, label, step): no thread and no other walk changes it.
void walk(const Walks& walks, int32_t label, uint64_t seed, std::vector<int32_t>& visited) {
    const uint64_t random = splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(label));
    int32_t at = label;
    visited.clear();
    for (int64_t step = 0; step < walks.steps; ++step) {
        const uint64_t draw = random + 3 * static_cast<uint64_t>(step);
        if (static_cast<double>(splitmix64(draw) >> 11) * 0x1.0p-53 < walks.restart) at = label;
        const int32_t document = pick(walks.label_indptr, walks.label_documents, at, splitmix64(draw + 1));
        at = pick(walks.document_indptr, walks.document_labels, document, splitmix64(draw + 2));
        visited.push_back(at);
    }
}

// The label itself, at least once, and the `top` others visited most, ties by smaller id; ascending by id.
void count(std::vector<int32_t>& visited, int32_t label, int64_t top, std::vector<Visit>& visits) {
    std::sort(visited.begin(), visited.end());
    visits.assign(1, {label, 1});
    for (size_t i = 0, next; i < visited.size(); i = next) {
        for (next = i + 1; next < visited.size() && visited[next] == visited[i];) ++next;
        const int32_t times = static_cast<int32_t>(next - i);
        if (visited[i] == label) visits[0].count = times;
        else visits.push_back({visited[i], times});
    }
    if (static_cast<int64_t>(visits.size()) - 1 > top) {
        std::nth_element(
            visits.begin() + 1, visits.begin() + 1 + top, visits.end(),
            [](const Visit& a, const Visit& b) { return a.count != b.count ? a.count > b.count : a.label < b.label; });
        visits.resize(static_cast<size_t>(1 + top));
    }
    std::sort(visits.begin(), visits.end(), [](const Visit& a, const Visit& b) { return a.label < b.label; });
}

}  // namespace

std::vector<WalkCounts> random_walks(const Walks& walks, uint64_t seed, int n_threads) {
    std::vector<WalkCounts> parts(static_cast<size_t>((walks.n_labels + LABELS_PER_TASK - 1) / LABELS_PER_TASK));
    parallel_for(static_cast<int64_t>(parts.size()), n_threads, [&](int64_t task, int) {
        WalkCounts& part = parts[static_cast<size_t>(task)];
        std::vector<int32_t> visited;
        std::vector<Visit> visits;
        const int64_t stop = std::min(walks.n_labels, (task + 1) * LABELS_PER_TASK);
        for (int64_t label = task * LABELS_PER_TASK; label < stop; ++label) {
            visited.clear();
            const bool has_documents = walks.label_indptr[label] < walks.label_indptr[label + 1];
            if (has_documents) walk(walks, static_cast<int32_t>(label), seed, visited);
            count(visited, static_cast<int32_t>(label), walks.top, visits);
            for (const Visit& visit : visits) {
                part.labels.push_back(visit.label);
                part.counts.push_back(static_cast<float>(visit.count));
            }
            part.ends.push_back(static_cast<int64_t>(part.labels.size()));
        }
    });
    return parts;
}

}  // namespace xclearn

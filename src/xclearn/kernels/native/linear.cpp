// Many sparse linear classifiers by dual coordinate descent, and what they say of rows. Problems of a group share their
// examples.
#include <cmath>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t PROBLEMS_PER_TASK = 64;
constexpr int NEWTON_STEPS = 20;

uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// Integers into the order of a hash of each.
void shuffle(std::vector<int32_t>& numbers, uint64_t random, std::vector<uint64_t>& keys) {
    keys.clear();
    for (const int32_t number : numbers)
        keys.push_back((splitmix64(random ^ static_cast<uint64_t>(number)) >> 32 << 32) |
                       static_cast<uint64_t>(number));
    std::sort(keys.begin(), keys.end());
    std::transform(keys.begin(), keys.end(), numbers.begin(), [](uint64_t key) { return static_cast<int32_t>(key); });
}

// The examples of one group in random order, their features renumbered to those that occur.
struct Examples {
    int64_t group = -1;
    std::vector<int32_t> rows;     // of the whole matrix
    std::vector<int64_t> indptr;   // (n + 1)
    std::vector<int32_t> columns;  // renumbered
    std::vector<float> values;
    std::vector<double> norm;       // x · x
    std::vector<int32_t> features;  // (m) the column of the whole matrix, ascending
    std::vector<int32_t> place;     // (n_rows) of a row of the whole matrix among these, −1 for the others
    std::vector<int32_t> number;    // (n_columns) renumbering, −1 for the others
    std::vector<uint64_t> keys;
    uint64_t random;

    void load(const LinearProblems& problems, int64_t wanted, uint64_t seed) {
        if (group == wanted) return;
        place.resize(problems.n_rows, -1);
        number.resize(problems.n_columns, -1);
        for (const int32_t row : rows) place[row] = -1;
        for (const int32_t feature : features) number[feature] = -1;
        group = wanted;
        rows.assign(problems.group_rows + problems.group_indptr[wanted],
                    problems.group_rows + problems.group_indptr[wanted + 1]);
        random = splitmix64(splitmix64(seed) ^ static_cast<uint64_t>(wanted));
        shuffle(rows, random, keys);
        for (size_t i = 0; i < rows.size(); ++i) place[rows[i]] = static_cast<int32_t>(i);
        renumber(problems);
        copy(problems);
    }

    void renumber(const LinearProblems& problems) {
        features.clear();
        for (const int32_t row : rows)
            for (int64_t j = problems.indptr[row]; j < problems.indptr[row + 1]; ++j)
                if (number[problems.indices[j]] < 0) {
                    number[problems.indices[j]] = 0;
                    features.push_back(problems.indices[j]);
                }
        std::sort(features.begin(), features.end());
        for (size_t i = 0; i < features.size(); ++i) number[features[i]] = static_cast<int32_t>(i);
    }

    void copy(const LinearProblems& problems) {
        indptr.assign(1, 0);
        columns.clear();
        values.clear();
        norm.clear();
        for (const int32_t row : rows) {
            double squares = 0;
            for (int64_t j = problems.indptr[row]; j < problems.indptr[row + 1]; ++j) {
                columns.push_back(number[problems.indices[j]]);
                values.push_back(problems.data[j]);
                squares += static_cast<double>(problems.data[j]) * problems.data[j];
            }
            indptr.push_back(static_cast<int64_t>(columns.size()));
            norm.push_back(squares);
        }
    }
};

// One problem: weights, bias and the dual variable of each example.
struct Solver {
    const Examples* examples;
    std::vector<double> weights;  // (m)
    double bias, bias_norm;       // a bias that is learnt is the weight of a feature of one, else that feature is zero
    std::vector<double> dual;     // (n); of the logistic loss its logit
    std::vector<int8_t> sign;     // (n) +1 or −1
    std::vector<int32_t> active;  // examples that do not rest
    std::vector<uint64_t> keys;

    void start(const Examples& of, const int32_t* positives, int64_t n_positives, const LinearSettings& settings) {
        examples = &of;
        weights.assign(of.features.size(), 0);
        bias = settings.bias;
        bias_norm = settings.learn_bias ? 1 : 0;
        sign.assign(of.rows.size(), -1);
        for (int64_t j = 0; j < n_positives; ++j)
            if (of.place[positives[j]] >= 0) sign[of.place[positives[j]]] = 1;
    }

    double margin(int32_t i) const {
        double sum = bias;
        for (int64_t j = examples->indptr[i]; j < examples->indptr[i + 1]; ++j)
            sum += weights[examples->columns[j]] * examples->values[j];
        return sign[i] * sum;
    }

    void add(int32_t i, double step) {
        step *= sign[i];
        for (int64_t j = examples->indptr[i]; j < examples->indptr[i + 1]; ++j)
            weights[examples->columns[j]] += step * examples->values[j];
        bias += step * bias_norm;
    }

    // Hsieh et al. 2008. After a pass over all examples, those outside the margin rest until the others have converged.
    // These are shuffled before each pass, without which it converges many times slower.
    void squared_hinge(const LinearSettings& settings) {
        dual.assign(sign.size(), 0);
        bool whole = true;
        for (int64_t pass = 0; pass < settings.max_passes; ++pass) {
            if (whole) all();
            else shuffle(active, splitmix64(examples->random ^ static_cast<uint64_t>(pass)), keys);
            const bool converged = hinge_pass(0.5 / settings.cost) <= settings.tolerance;
            if (converged && whole) return;
            whole = converged;
        }
    }

    // The largest projected gradient that was met.
    double hinge_pass(double diagonal) {
        double largest = 0;
        size_t kept = 0;
        for (const int32_t i : active) {
            const double gradient = margin(i) - 1 + dual[i] * diagonal;
            if (dual[i] == 0 && gradient >= 0) continue;
            active[kept++] = i;
            largest = std::max(largest, std::abs(gradient));
            const double moved = std::max(dual[i] - gradient / (examples->norm[i] + bias_norm + diagonal), 0.0);
            add(i, moved - dual[i]);
            dual[i] = moved;
        }
        active.resize(kept);
        return largest;
    }

    void all() {
        active.resize(sign.size());
        for (size_t i = 0; i < active.size(); ++i) active[i] = static_cast<int32_t>(i);
    }

    // Yu et al. 2011: the dual variable is cost · σ(u), and each step finds the root of a rising function of u.
    void logistic(const LinearSettings& settings) {
        const double least = std::log(1e-8);
        dual.assign(sign.size(), least);
        all();
        for (const int32_t i : active) add(i, settings.cost * sigmoid(least));
        for (int64_t pass = 0; pass < settings.max_passes; ++pass) {
            double largest = 0;
            shuffle(active, splitmix64(examples->random ^ static_cast<uint64_t>(pass)), keys);
            for (const int32_t i : active) {
                const double before = settings.cost * sigmoid(dual[i]), at = margin(i);
                largest = std::max(largest, std::abs(at + dual[i]));
                dual[i] = root(at, before, examples->norm[i] + bias_norm, settings.cost, dual[i]);
                add(i, settings.cost * sigmoid(dual[i]) - before);
            }
            if (largest <= settings.tolerance) return;
        }
    }

    static double sigmoid(double u) { return 1 / (1 + std::exp(-u)); }

    // Of norm · (cost σ(u) − before) + margin + u, whose slope is at least one: Newton inside a shrinking bracket.
    static double root(double margin, double before, double norm, double cost, double u) {
        double low = -margin - norm * (cost - before), high = -margin + norm * before;
        u = std::min(std::max(u, low), high);
        for (int step = 0; step < NEWTON_STEPS; ++step) {
            const double share = sigmoid(u), value = norm * (cost * share - before) + margin + u;
            if (std::abs(value) < 1e-9) break;
            (value > 0 ? high : low) = u;
            u -= value / (1 + norm * cost * share * (1 - share));
            if (u <= low || u >= high) u = (low + high) / 2;
        }
        return u;
    }
};

struct Task {
    int64_t group, first, last;
};

std::vector<Task> tasks_of(const LinearProblems& problems) {
    std::vector<Task> tasks;
    for (int64_t group = 0; group < problems.n_groups; ++group)
        for (int64_t first = problems.problem_indptr[group]; first < problems.problem_indptr[group + 1];
             first += PROBLEMS_PER_TASK)
            tasks.push_back({group, first, std::min(first + PROBLEMS_PER_TASK, problems.problem_indptr[group + 1])});
    return tasks;
}

}  // namespace

std::vector<LinearClassifiers> train_linear(const LinearProblems& problems, const LinearSettings& settings,
                                            uint64_t seed, int n_threads) {
    const std::vector<Task> tasks = tasks_of(problems);
    std::vector<LinearClassifiers> trained(tasks.size());
    std::vector<Examples> examples(n_threads);
    std::vector<Solver> solvers(n_threads);
    parallel_for(static_cast<int64_t>(tasks.size()), n_threads, [&](int64_t index, int thread) {
        const Task& task = tasks[index];
        Examples& mine = examples[thread];
        Solver& solver = solvers[thread];
        LinearClassifiers& out = trained[index];
        mine.load(problems, task.group, seed);
        for (int64_t problem = task.first; problem < task.last; ++problem) {
            const int64_t begin = problems.positive_indptr[problem];
            solver.start(mine, problems.positive_rows + begin, problems.positive_indptr[problem + 1] - begin, settings);
            if (settings.logistic) solver.logistic(settings);
            else solver.squared_hinge(settings);
            for (size_t j = 0; j < mine.features.size(); ++j)
                if (std::abs(solver.weights[j]) > settings.threshold) {
                    out.indices.push_back(mine.features[j]);
                    out.data.push_back(static_cast<float>(solver.weights[j]));
                }
            out.ends.push_back(static_cast<int64_t>(out.indices.size()));
            out.bias.push_back(static_cast<float>(solver.bias));
        }
    });
    return trained;
}

void listed_logits(const Csr& documents, const Csr& weights, int64_t n_columns, const int64_t* ids, int64_t n_listed,
                   int n_threads, double* logits) {
    std::vector<std::vector<float>> dense(n_threads);
    parallel_for(documents.n_rows, n_threads, [&](int64_t row, int thread) {
        std::vector<float>& values = dense[thread];
        if (values.empty()) values.resize(n_columns);
        const int64_t begin = documents.indptr[row], end = documents.indptr[row + 1];
        for (int64_t i = begin; i < end; ++i) values[documents.indices[i]] += documents.data[i];
        for (int64_t place = row * n_listed; place < (row + 1) * n_listed; ++place) {
            double sum = 0;
            if (ids[place] >= 0)
                for (int64_t i = weights.indptr[ids[place]]; i < weights.indptr[ids[place] + 1]; ++i)
                    sum += static_cast<double>(weights.data[i]) * values[weights.indices[i]];
            logits[place] = sum;
        }
        for (int64_t i = begin; i < end; ++i) values[documents.indices[i]] = 0;
    });
}

}  // namespace xclearn

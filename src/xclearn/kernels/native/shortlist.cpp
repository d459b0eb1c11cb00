// Documents trained on their own labels: scores of pairs, their gradients, and the update of the labels' rows.
//
// Pairs stand label after label, so a label's row is read once and updated once, and no gradient of all rows exists.
// Labels are cut into parts by the number of pairs alone; each part adds up its own gradient of the documents, and
// these are summed in the parts' order. So the answer does not depend on the threads.
#include <cmath>

#include "kernels.h"
#include "parallel.h"

namespace xclearn {

namespace {

constexpr int64_t LANES = 32, MOST_PARTS = 16, PAIRS_PER_PART = 4096, VALUES_PER_TASK = 1 << 14;

XCLEARN_INLINE float dot(const float* a, const float* b, int64_t n) {
    float lanes[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int64_t j = 0; j < LANES; ++j) lanes[j] += a[i + j] * b[i + j];
    for (int64_t j = 0; i + j < n; ++j) lanes[j] += a[i + j] * b[i + j];
    for (int64_t half = LANES / 2; half > 0; half /= 2)
        for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    return lanes[0];
}

// Pairs of one row: its products with their documents.
XCLEARN_CLONES void score_run(const float* x, const float* row, int64_t width, const int64_t* owner, int64_t n,
                              float* scores) {
    for (int64_t i = 0; i < n; ++i) scores[i] = dot(x + owner[i] * width, row, width);
}

// Pairs of one row: what they add to the gradient of the row and of their documents.
XCLEARN_CLONES void add_run(const float* x, const float* row, int64_t width, const int64_t* owner, const float* errors,
                            int64_t n, float* row_gradient, float* x_gradient) {
    for (int64_t i = 0; i < n; ++i) {
        const float* document = x + owner[i] * width;
        float* gradient = x_gradient + owner[i] * width;
        const float error = errors[i];
        for (int64_t j = 0; j < width; ++j) row_gradient[j] += error * document[j];
        for (int64_t j = 0; j < width; ++j) gradient[j] += error * row[j];
    }
}

XCLEARN_CLONES void move_sgd(const float* gradient, float rate, int64_t width, float* row) {
    for (int64_t j = 0; j < width; ++j) row[j] -= rate * gradient[j];
}

XCLEARN_CLONES void move_adam(const float* gradient, const RowRule& rule, float rate, float second_scale, int64_t width,
                              float* first, float* second, float* row) {
    const float keep_first = rule.beta_first, keep_second = rule.beta_second, epsilon = rule.epsilon;
    for (int64_t j = 0; j < width; ++j) {
        first[j] = keep_first * first[j] + (1 - keep_first) * gradient[j];
        second[j] = keep_second * second[j] + (1 - keep_second) * gradient[j] * gradient[j];
        row[j] -= rate * first[j] / (std::sqrt(second[j] * second_scale) + epsilon);
    }
}

XCLEARN_CLONES void add_parts(const float* parts, int64_t n_parts, int64_t stride, int64_t begin, int64_t end,
                              float* sum) {
    for (int64_t j = begin; j < end; ++j) sum[j] = parts[j];
    for (int64_t part = 1; part < n_parts; ++part)
        for (int64_t j = begin; j < end; ++j) sum[j] += parts[part * stride + j];
}

void update_row(const RowRule& rule, const float* gradient, int64_t number, int64_t width, float* row) {
    if (!rule.steps) return move_sgd(gradient, rule.rate, width, row);
    const double steps = rule.steps[number] += 1;
    const double first_scale = 1 / (1 - std::pow(static_cast<double>(rule.beta_first), steps));
    const double second_scale = 1 / (1 - std::pow(static_cast<double>(rule.beta_second), steps));
    move_adam(gradient, rule, static_cast<float>(rule.rate * first_scale), static_cast<float>(second_scale), width,
              rule.first + number * width, rule.second + number * width, row);
}

// The gradient of each pair's score in place of the score; returns the summed loss.
double errors_of(const float* targets, int64_t n, bool hinge, float scale, float* scores) {
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
        const float score = scores[i], target = targets[i];
        if (hinge) {
            const float sign = 2 * target - 1, slack = std::max(0.0f, 1 - sign * score);
            loss += static_cast<double>(slack) * slack;
            scores[i] = -2 * sign * slack * scale;
        } else {
            const float small = std::exp(-std::abs(score));  // in 0 … 1: nothing overflows
            loss += std::max(score, 0.0f) - score * target + std::log1p(small);
            scores[i] = ((score >= 0 ? 1 : small) / (1 + small) - target) * scale;
        }
    }
    return loss * scale;
}

// Calls task(part, begin, end) for each run of pairs with the same row, part after part.
template <class Task>
void for_runs(const Pairs& pairs, int64_t n_parts, int n_threads, const Task& task) {
    parallel_for(n_parts, n_threads, [&](int64_t part, int) {
        const auto border = [&](int64_t at) {  // moved to the start of a run
            while (at > 0 && at < pairs.n && pairs.row[at] == pairs.row[at - 1]) ++at;
            return at;
        };
        const int64_t end = border(pairs.n * (part + 1) / n_parts);
        for (int64_t begin = border(pairs.n * part / n_parts), stop; begin < end; begin = stop) {
            for (stop = begin + 1; stop < end && pairs.row[stop] == pairs.row[begin];) ++stop;
            task(part, begin, stop);
        }
    });
}

int64_t parts_of(const Pairs& pairs) { return std::max<int64_t>(1, std::min(MOST_PARTS, pairs.n / PAIRS_PER_PART)); }

// The documents' gradient: the parts' sums, added up in order.
void gather(const std::vector<float>& parts, int64_t n_parts, int64_t size, int n_threads, float* sum) {
    parallel_for((size + VALUES_PER_TASK - 1) / VALUES_PER_TASK, n_threads, [&](int64_t task, int) {
        add_parts(parts.data(), n_parts, size, task * VALUES_PER_TASK, std::min(size, (task + 1) * VALUES_PER_TASK),
                  sum);
    });
}

}  // namespace

double train_pairs(const Pairs& pairs, const float* targets, float* table, const RowRule& rule, bool hinge, float scale,
                   int64_t fixed, int n_threads, float* x_gradient) {
    const int64_t n_parts = parts_of(pairs), width = pairs.width, size = pairs.n_documents * width;
    std::vector<float> sums(n_parts * size), scores(pairs.n), gradients(n_parts * width);
    std::vector<double> losses(n_parts);
    for_runs(pairs, n_parts, n_threads, [&](int64_t part, int64_t begin, int64_t end) {
        const int64_t n = end - begin, number = pairs.row[begin];
        const int64_t* owner = pairs.owner + begin;
        float *row = table + number * width, *errors = scores.data() + begin,
              *gradient = gradients.data() + part * width;
        score_run(pairs.x, row, width, owner, n, errors);
        losses[part] += errors_of(targets + begin, n, hinge, scale, errors);
        std::fill(gradient, gradient + width, 0.0f);
        add_run(pairs.x, row, width, owner, errors, n, gradient, sums.data() + part * size);
        if (fixed >= 0) gradient[fixed] = 0;
        update_row(rule, gradient, number, width, row);
    });
    gather(sums, n_parts, size, n_threads, x_gradient);
    double loss = 0;
    for (const double part : losses) loss += part;
    return loss;
}

void pair_scores(const Pairs& pairs, const float* weight, int n_threads, float* scores) {
    for_runs(pairs, parts_of(pairs), n_threads, [&](int64_t, int64_t begin, int64_t end) {
        score_run(pairs.x, weight + pairs.row[begin] * pairs.width, pairs.width, pairs.owner + begin, end - begin,
                  scores + begin);
    });
}

void pair_products(const Pairs& pairs, const float* weight, const float* outer, int n_threads, float* x_gradient,
                   float* weight_gradient) {
    const int64_t n_parts = parts_of(pairs), width = pairs.width, size = pairs.n_documents * width;
    std::vector<float> sums(n_parts * size);
    for_runs(pairs, n_parts, n_threads, [&](int64_t part, int64_t begin, int64_t end) {
        const int64_t place = pairs.row[begin] * width;
        add_run(pairs.x, weight + place, width, pairs.owner + begin, outer + begin, end - begin,
                weight_gradient + place, sums.data() + part * size);
    });
    gather(sums, n_parts, size, n_threads, x_gradient);
}

}  // namespace xclearn

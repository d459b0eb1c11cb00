// Threads. Knows nothing of what they run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "compiler.h"

namespace xclearn {

// Calls task(index, thread) for every index in [0, n_tasks); the first exception is thrown again in the caller.
template <class Task>
void parallel_for(int64_t n_tasks, int n_threads, const Task& task) {
    const int workers = static_cast<int>(std::min<int64_t>(n_tasks, n_threads));
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_guard;
    const auto work = [&](int thread) {
        try {
            for (int64_t index; (index = next.fetch_add(1)) < n_tasks;) task(index, thread);
        } catch (...) {
            next = n_tasks;
            const std::lock_guard<std::mutex> lock(failure_guard);
            if (!failure) failure = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (int thread = 1; thread < workers; ++thread) threads.emplace_back(work, thread);
    if (workers > 0) work(0);
    for (auto& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace xclearn

// A fixed set of threads that share the rows of a batch.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "row.h"

namespace logitd {

Scratch& own_scratch();  // of the calling thread

class Pool {
public:
    using Work = std::function<void(int64_t, Scratch&)>;

    static Pool& shared();
    ~Pool();

    int threads();
    void resize(int threads);  // at least 1, the calling thread included

    // Calls work(i, scratch) once for each i in [0, count), on the pool and the calling thread, and returns when all are
    // done. A second caller meanwhile works alone: two batches at once keep two threads busy anyway.
    void run(int64_t count, const Work& work);

private:
    void start(int workers);
    void stop();
    void serve(uint64_t seen);
    void take_rows();

    std::mutex batches_;  // held while a batch uses the workers
    std::mutex state_;
    std::condition_variable woken_, finished_;
    std::vector<std::thread> workers_;
    const Work* work_ = nullptr;
    int64_t count_ = 0;
    std::atomic<int64_t> next_{0};
    uint64_t batch_ = 0;
    int busy_ = 0;
    bool stopping_ = false;
    int process_ = 0;  // a forked child has the object but not its threads
};

}  // namespace logitd

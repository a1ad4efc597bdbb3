#include "pool.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

namespace logitd {

Scratch::~Scratch() {
    for (void* region : regions_) std::free(region);
}

void* Scratch::take(int slot, size_t bytes) {
    if (bytes > sizes_[slot] || !regions_[slot]) {
        std::free(regions_[slot]);
        regions_[slot] = nullptr;
        const size_t rounded = (bytes + 63) / 64 * 64 + 64;
        regions_[slot] = std::aligned_alloc(64, rounded);
        if (!regions_[slot]) {
            sizes_[slot] = 0;
            throw std::bad_alloc();
        }
        sizes_[slot] = rounded;
    }
    return regions_[slot];
}

void* Scratch::zeroed(int slot, size_t bytes) {
    const size_t before = sizes_[slot];
    void* region = take(slot, bytes);
    if (sizes_[slot] != before) std::memset(region, 0, sizes_[slot]);
    return region;
}

size_t Scratch::held() const { return std::accumulate(sizes_, sizes_ + slots, size_t{0}); }

Scratch& own_scratch() {
    thread_local Scratch scratch;
    return scratch;
}

Pool& Pool::shared() {
    static Pool pool;
    return pool;
}

Pool::~Pool() {
    if (process_ == getpid()) stop();
}

int Pool::threads() {
    std::lock_guard<std::mutex> hold(batches_);
    return int(workers_.size()) + 1;
}

void Pool::resize(int threads) {
    std::lock_guard<std::mutex> hold(batches_);
    if (process_ == getpid()) stop();
    start(threads - 1);
}

void Pool::start(int workers) {
    process_ = getpid();
    stopping_ = false;
    // The batch they have seen is told, not read by them: one may begin before they do.
    for (int i = 0; i < workers; i++) workers_.emplace_back([this, seen = batch_] { serve(seen); });
}

void Pool::stop() {
    {
        std::lock_guard<std::mutex> hold(state_);
        stopping_ = true;
    }
    woken_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
}

void Pool::serve(uint64_t seen) {
    std::unique_lock<std::mutex> hold(state_);
    while (true) {
        woken_.wait(hold, [&] { return stopping_ || batch_ != seen; });
        if (stopping_) return;
        seen = batch_;
        hold.unlock();
        take_rows();
        hold.lock();
        if (--busy_ == 0) finished_.notify_one();
    }
}

void Pool::take_rows() {
    for (int64_t i; (i = next_.fetch_add(1)) < count_;) (*work_)(i, own_scratch());
}

void Pool::run(int64_t count, const Work& work) {
    std::unique_lock<std::mutex> alone(batches_, std::try_to_lock);
    if (count < 2 || !alone || workers_.empty() || process_ != getpid()) {
        for (int64_t i = 0; i < count; i++) work(i, own_scratch());
        return;
    }
    {
        std::lock_guard<std::mutex> hold(state_);
        work_ = &work;
        count_ = count;
        next_ = 0;
        busy_ = int(workers_.size());
        batch_++;
    }
    woken_.notify_all();
    take_rows();
    std::unique_lock<std::mutex> hold(state_);
    finished_.wait(hold, [&] { return busy_ == 0; });
}

}  // namespace logitd

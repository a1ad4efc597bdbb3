// The tokens of a sequence so far, and what they do to a row's logits.
#pragma once

#include <algorithm>

#include "row.h"

namespace logitd::LOGITD_ISA {

// How often each token came, and which penalties it gets: kept in a table of zeros that is left as it was found.
class Tally {
public:
    Tally(const Row& row, Scratch& scratch) : row_(row) {
        const int64_t most = row.prompt.count + row.output.count;
        if (most == 0 || !(row.repeated | row.counted | row.present)) return;
        table_ = static_cast<uint32_t*>(scratch.zeroed(9, row.vocab * sizeof(uint32_t)));
        ids_ = static_cast<int32_t*>(scratch.take(10, most * sizeof(int32_t)));
        add(row.prompt, 1);
        add(row.output, 2);
    }
    Tally(const Tally&) = delete;
    Tally& operator=(const Tally&) = delete;
    ~Tally() {
        for (int64_t i = 0; i < size_; i++) table_[ids_[i]] = 0;
    }

    int64_t size() const { return size_; }

    void fetch(int64_t id) const {
        if (size_) __builtin_prefetch(table_ + id);
    }

    void hide(uint32_t* mask) const {
        for (int64_t i = 0; i < size_; i++) mask[ids_[i] >> 5] &= ~(1u << (ids_[i] & 31));
    }

    // The logit after a bias and the penalties; sums that follow one another are added up first.
    double apply(int64_t id, double logit, double bias) const {
        const uint32_t one = size_ ? table_[id] : 0;
        double sum = 0;
        if (one & most_) sum += -(row_.frequency * double(one & most_));
        if (one & present_) sum += -row_.presence;
        if (!repeats_) return logit + (bias + sum);
        logit += bias;
        if (one & repeated_) logit = logit > 0 ? logit / row_.repetition : logit * row_.repetition;
        return logit + sum;
    }

private:
    static constexpr int64_t ahead = 24;  // ids whose tally is on its way
    static constexpr uint32_t repeated_ = 1u << 31, present_ = 1u << 30, seen_ = 1u << 29, most_ = seen_ - 1;

    void add(const History& history, uint32_t side) {
        const uint32_t flags = (row_.repeated & side ? repeated_ : 0) | (row_.present & side ? present_ : 0);
        const uint32_t count = row_.counted & side ? 1 : 0;
        if (!flags && !count) return;
        for (int64_t i = 0; i < history.count; i++) {
            const int32_t id = history.ids[i];
            if (i + ahead < history.count && history.ids[i + ahead] >= 0) __builtin_prefetch(table_ + history.ids[i + ahead], 1);
            if (id < 0) continue;
            uint32_t& one = table_[id];
            if (!one) ids_[size_++] = id;
            one = (one | flags | seen_) + count;
            repeats_ |= flags & repeated_;
        }
    }

    const Row& row_;
    uint32_t* table_ = nullptr;
    int32_t* ids_ = nullptr;  // each once
    int64_t size_ = 0;
    bool repeats_ = false;
};

}  // namespace logitd::LOGITD_ISA

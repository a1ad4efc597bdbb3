// The tokens of a row whose logits an edit moves: those with a bias and those of the sequence so far.
#pragma once

#include <algorithm>
#include <limits>

#include "tokens.h"

namespace logitd::LOGITD_ISA {

// Lists each of these tokens once, the biased ones first, with how often it came and which penalties it gets. That is kept
// in a table of zeros that is left as it was found, so that it is paid for by the tokens and not by the vocabulary.
class Tally {
public:
    Tally(const Row& row, Scratch& scratch) : row_(row) {
        const int64_t history = row.repeated | row.counted | row.present ? row.prompt.count + row.output.count : 0;
        if (row.edits + history == 0) return;
        ids_ = static_cast<int32_t*>(scratch.take(10, (row.edits + history + 1) * sizeof(int32_t)));
        for (int64_t i = 0; i < row.edits; i++) ids_[i] = int32_t(row.edit_ids[i]);
        if (history > 0) {
            table_ = static_cast<uint32_t*>(scratch.zeroed(9, (row.vocab + 1) * sizeof(uint32_t))) + 1;
            for (int64_t i = 0; i < row.edits; i++) table_[ids_[i]] = listed_;
        }
        size_ = row.edits;
        add(row.prompt, 1);
        add(row.output, 2);
    }
    Tally(const Tally&) = delete;
    Tally& operator=(const Tally&) = delete;
    ~Tally() {
        if (!table_) return;
        for (int64_t i = 0; i < size_; i++) table_[ids_[i]] = 0;
    }

    int64_t size() const { return size_; }

    void hide(uint32_t* mask) const {
        for (int64_t i = 0; i < size_; i++) mask[ids_[i] >> 5] &= ~(1u << (ids_[i] & 31));
    }

    // Writes the tokens that the caller allows and an edit leaves, with their new logits, and keeps their places.
    template <typename T>
    int64_t edited(const Source<T>& source, Candidate* out) {
        uint32_t codes[few] = {};
        double biases[few] = {}, logits[few] = {};
        int64_t size = 0;
        for (int64_t begin = 0; begin < size_; begin += few) {
            const int64_t count = std::min<int64_t>(few, size_ - begin);
            const int32_t* const ids = ids_ + begin;
            for (int64_t i = 0; i < count; i++) logits[i] = double(source.raw(ids[i]));
            for (int64_t i = 0; table_ && i < count; i++) codes[i] = table_[ids[i]];
            std::fill_n(biases, few, 0.0);
            if (begin < row_.edits) std::copy_n(row_.edit_bias + begin, std::min(count, row_.edits - begin), biases);
            apply(codes, biases, logits);
            for (int64_t i = 0; i < count; i++) {
                const int64_t id = ids[i];
                const bool allowed = !row_.mask || (row_.mask[id >> 5] >> (id & 31) & 1);
                out[size] = {logits[i], id};
                size += allowed & (logits[i] > -std::numeric_limits<double>::infinity());
                if (table_) table_[id] = uint32_t(size);
            }
        }
        return size;
    }

    // Where `edited` put a token, counted from 1; null where it put them by ascending id.
    const uint32_t* places() const { return table_; }

private:
    static constexpr int64_t ahead = 24;  // ids whose tally is on its way
    static constexpr int few = 64;        // tokens that are edited together
    static constexpr uint32_t repeated_ = 1u << 31, present_ = 1u << 30, listed_ = 1u << 29, most_ = listed_ - 1;

    // Without a branch: whether a token is new is anyone's guess. -1 has a place of its own, and is never new.
    void add(const History& history, uint32_t side) {
        const uint32_t flags = (row_.repeated & side ? repeated_ : 0) | (row_.present & side ? present_ : 0);
        const uint32_t count = row_.counted & side ? 1 : 0;
        if (!(flags | count)) return;
        uint32_t* const table = table_;
        int32_t* const ids = ids_;
        const int32_t* const from = history.ids;
        int64_t size = size_, i = 0;
        const auto count_one = [&] {
            const int64_t id = from[i];
            const uint32_t one = table[id];
            ids[size] = int32_t(id);
            size += one == 0;
            table[id] = (one | flags) + count;
        };
        table[-1] = listed_;
#pragma GCC unroll 4
        for (; i < history.count - ahead; i++) {
            __builtin_prefetch(table + from[i + ahead], 1);
            count_one();
        }
        for (; i < history.count; i++) count_one();
        table[-1] = 0;
        size_ = size;
        if (flags & repeated_) repeats_ |= std::any_of(from, from + history.count, [](int32_t id) { return id >= 0; });
    }

    // Bias, repetition, frequency, presence. Sums that follow one another are added up before the logit is.
    void apply(const uint32_t (&codes)[few], const double (&biases)[few], double (&logits)[few]) const {
        for (int i = 0; i < few; i++) {
            const double count = double(int32_t(codes[i] & most_)), bias = biases[i];
            const double x = logits[i] + (repeats_ ? bias : 0.0);
            const double repeated = x > 0 ? x / row_.repetition : x * row_.repetition;
            double sum = repeats_ ? 0.0 : bias;
            sum -= row_.frequency * count;
            sum -= codes[i] & present_ ? row_.presence : 0.0;
            logits[i] = (codes[i] & repeated_ ? repeated : x) + sum;
        }
    }

    const Row& row_;
    uint32_t* table_ = nullptr;
    int32_t* ids_ = nullptr;  // each once
    int64_t size_ = 0;
    bool repeats_ = false;
};

}  // namespace logitd::LOGITD_ISA

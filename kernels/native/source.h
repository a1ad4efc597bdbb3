// A row in any dtype, stride and mask, read block by block without copying it.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "row.h"

namespace logitd::LOGITD_ISA {

template <typename T>
struct Source {
    // What logits are compared as: float64 stays, everything narrower is a float.
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    static constexpr Real nothing = -std::numeric_limits<Real>::infinity();

    const T* logits;
    int64_t stride;
    int64_t vocab;
    const uint32_t* mask;  // of what the caller forbids and of what has an edit; null allows all
    int64_t hides = -1;    // how many tokens that hides, -1 where nobody counted

    int64_t blocks() const { return (vocab + block - 1) / block; }
    Real raw(int64_t i) const { return scalar(logits[i * stride]); }
    bool allowed(int64_t i) const { return !mask || (mask[i >> 5] >> (i & 31) & 1); }
    // Whether a block lies as registers load it, and whether nothing of it is hidden besides.
    bool whole(int64_t b) const { return stride == 1 && (b + 1) * block <= vocab; }
    bool direct(int64_t b) const { return whole(b) && (!mask || open(b)); }
    const T* at(int64_t b) const { return logits + b * block; }
    // Which of the `width` logits from the i-th of a whole block on are allowed, the first in the lowest bit.
    uint32_t bits(int64_t b, int i) const { return bits_of(mask + b * (block / 32), i); }
    static uint32_t bits_of(const uint32_t* words, int i) {
        const unsigned char* from = reinterpret_cast<const unsigned char*>(words) + i / 8;
        if constexpr (width == 16) {
            uint16_t two;
            std::memcpy(&two, from, sizeof two);
            return two;
        }
        return uint32_t(*from) >> (i & 7);
    }

    // The mask of any block, everything beyond the row's end allowed.
    void words(int64_t b, uint32_t (&out)[block / 32]) const {
        std::fill_n(out, block / 32, ~0u);
        if (!mask) return;
        for (int64_t i = b * block; i < std::min((b + 1) * block, vocab); i++)
            if (!allowed(i)) out[i % block / 32] &= ~(1u << (i & 31));
    }

    bool open(int64_t b) const {
        uint32_t all = ~0u;
        for (int64_t i = b * (block / 32); i < (b + 1) * (block / 32); i++) all &= mask[i];
        return all == ~0u;
    }

    int64_t hidden() const {
        if (!mask) return 0;
        if (hides >= 0) return hides;
        int64_t count = 0;
        for (int64_t i = 0; i < vocab / 64; i++) {
            uint64_t words;
            std::memcpy(&words, mask + 2 * i, sizeof words);
            count += __builtin_popcountll(~words);
        }
        for (int64_t i = vocab / 64 * 64; i < vocab; i++) count += !allowed(i);
        return count;
    }

    // Writes a block's logits as sent, -inf beyond the row's end.
    void fill(int64_t b, Real* out) const {
        const int64_t begin = b * block, count = std::min<int64_t>(block, vocab - begin);
        if (whole(b)) {
            copy(at(b), out);
            return;
        }
        for (int64_t i = 0; i < count; i++) out[i] = raw(begin + i);
        for (int64_t i = count; i < block; i++) out[i] = nothing;
    }

    // Puts -inf where a token is forbidden or edited.
    void hide(int64_t b, Real* values) const {
        if (!mask) return;
        const int64_t begin = b * block, count = std::min<int64_t>(block, vocab - begin);
        for (int64_t i = 0; i < count; i++)
            if (!allowed(begin + i)) values[i] = nothing;
    }

    // Returns a block's logits, -inf where a token is hidden or there is none: as they lie, or written to `buffer`.
    const Real* read(int64_t b, Real* buffer) const {
        if constexpr (std::is_same_v<T, Real>) {
            if (direct(b)) return at(b);
        }
        if constexpr (!std::is_same_v<T, double>) {
            if (mask && whole(b)) {
                for (int i = 0; i < block; i += width) {
                    const F x = only(load(at(b) + i), bits(b, i), splat(nothing));
                    std::memcpy(buffer + i, &x, sizeof x);
                }
                return buffer;
            }
        }
        fill(b, buffer);
        hide(b, buffer);
        return buffer;
    }

private:
    static void copy(const T* from, Real* out) {
        if constexpr (std::is_same_v<T, Real>) {
            std::memcpy(out, from, block * sizeof(Real));
        } else {
            for (int i = 0; i < block; i += width) {
                const F x = load(from + i);
                std::memcpy(out + i, &x, sizeof x);
            }
        }
    }
};

}  // namespace logitd::LOGITD_ISA

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

// What one pass over a row finds.
template <typename Real>
struct Overview {
    Real* maxima;  // of each block
    Real largest;
    Real smallest;  // in the row as sent
    int64_t finite;
    bool bad;  // a NaN or +inf, in the row as sent
};

template <typename Real>
inline bool any_bad(const Real* values) {
    bool bad = false;
    for (int i = 0; i < block; i++) bad |= !(values[i] < std::numeric_limits<Real>::infinity());
    return bad;
}

// A block that had to be written out first.
template <typename T>
inline void summarise(const Source<T>& source, const typename Source<T>::Real* values, int64_t b,
                      Overview<typename Source<T>::Real>& found) {
    typename Source<T>::Real largest = Source<T>::nothing, smallest = -largest;
    const int64_t begin = b * block, count = std::min<int64_t>(block, source.vocab - begin);
    for (int64_t i = 0; i < count; i++) {
        const bool allowed = source.allowed(begin + i);
        largest = allowed && values[i] > largest ? values[i] : largest;
        smallest = values[i] < smallest ? values[i] : smallest;
    }
    found.maxima[b] = largest;
    found.largest = largest > found.largest ? largest : found.largest;
    found.smallest = smallest < found.smallest ? smallest : found.smallest;
}

// A whole block in registers. Where it may hide something, only the maximum minds.
template <bool masked, typename T>
inline float summarise_whole(const Source<T>& source, int64_t b, Flags& bad, F& smallest) {
    const F infinity = splat(std::numeric_limits<float>::infinity());
    F largest[2] = {-infinity, -infinity}, least[2] = {smallest, smallest};
    Flags found = bad;
    for (int i = 0; i < block; i += 2 * width)
        for (int j = 0; j < 2; j++) {
            const F x = load(source.at(b) + i + j * width), more = larger(x, largest[j]);
            found |= not_below(x, infinity);
            largest[j] = masked ? only(more, source.bits(b, i + j * width), largest[j]) : more;
            least[j] = smaller(x, least[j]);
        }
    bad = found;
    smallest = smaller(least[0], least[1]);
    return largest_of(larger(largest[0], largest[1]));
}

template <typename T>
inline int64_t count_finite(const Source<T>& source) {
    typename Source<T>::Real buffer[block];
    int64_t finite = 0;
    for (int64_t b = 0; b < source.blocks(); b++) {
        const auto* logits = source.read(b, buffer);
        int32_t own = 0;
        for (int i = 0; i < block; i++) own += logits[i] > Source<T>::nothing;
        finite += own;
    }
    return finite;
}

template <typename T>
inline Overview<typename Source<T>::Real> overview(const Source<T>& source, typename Source<T>::Real* maxima) {
    using Real = typename Source<T>::Real;
    Overview<Real> found{maxima, Source<T>::nothing, -Source<T>::nothing, 0, false};
    Flags bad{};
    F smallest = splat(std::numeric_limits<float>::infinity());
    Real buffer[block];
    for (int64_t b = 0; b < source.blocks(); b++) {
        if constexpr (!std::is_same_v<T, double>) {
            if (source.whole(b)) {
                maxima[b] = source.mask ? summarise_whole<true>(source, b, bad, smallest)
                                        : summarise_whole<false>(source, b, bad, smallest);
                found.largest = maxima[b] > found.largest ? maxima[b] : found.largest;
                continue;
            }
        }
        source.fill(b, buffer);
        found.bad |= any_bad(buffer);
        summarise(source, buffer, b, found);
    }
    found.bad |= any(bad);
    if constexpr (!std::is_same_v<T, double>) found.smallest = std::min(found.smallest, smallest_of(smallest));
    const bool all = found.smallest > Source<T>::nothing;
    found.finite = all ? source.vocab - source.hidden() : found.bad ? 0 : count_finite(source);
    return found;
}

// 1/T, finite however small T is; (x - M)/T is taken as (x - M) · (1/T) everywhere, so a token has one mass.
inline double scale_of(double temperature) {
    return std::min(1.0 / temperature, std::numeric_limits<double>::max());
}

// e^d for a block.
inline void exponentials(const double* deltas, double* masses) {
    for (int i = 0; i < block; i += wide) {
        D d;
        std::memcpy(&d, deltas + i, sizeof d);
        const D mass = exp(d);
        std::memcpy(masses + i, &mass, sizeof mass);
    }
}

// Calls use(b, logits, deltas, masses) for each block with (x - M)/T and its exponential in float64.
template <typename T, typename Use>
inline void sweep64(const Source<T>& source, double max, double scale, Use use) {
    typename Source<T>::Real buffer[block];
    alignas(64) double deltas[block], masses[block];
    for (int64_t b = 0; b < source.blocks(); b++) {
        const auto* logits = source.read(b, buffer);
        for (int i = 0; i < block; i++) deltas[i] = (double(logits[i]) - max) * scale;
        exponentials(deltas, masses);
        use(b, logits, deltas, masses);
    }
}

struct Totals {
    double mass;
    double energy;
};

// Adds one block to lane sums of mass and energy; what has no mass has no energy.
struct BlockSums {
    WideSum mass, energy;

    void add(const double* deltas, const double* masses) {
        WideSum m = mass, e = energy;
        const D low = splat(-1e6);
        for (int i = 0; i < block; i += 16)
            for (int j = 0; j < WideSum::count; j++) {
                D d, one;
                std::memcpy(&d, deltas + i + j * wide, sizeof d);
                std::memcpy(&one, masses + i + j * wide, sizeof one);
                m.lanes[j] = m.lanes[j] + one;
                e.lanes[j] = e.lanes[j] - one * (d > low ? d : low);
            }
        mass = m;
        energy = e;
    }

    Totals totals() const { return {mass.value(), energy.value()}; }
};

// The whole row's mass and energy in float64.
template <typename T>
inline Totals totals64(const Source<T>& source, double max, double scale) {
    BlockSums sums;
    sweep64(source, max, scale,
            [&](int64_t, const auto*, const double* deltas, const double* masses) { sums.add(deltas, masses); });
    return sums.totals();
}

// Adds what is shown of a block to lane sums; where something may be hidden, `bits` tells what is not.
template <bool masked, typename Load, typename Bits>
inline void accumulate(Load logits, Bits bits, F max, F scale, F (&mass)[registers], F (&energy)[registers]) {
    for (int g = 0; g < block; g += logical)
        for (int r = 0; r < registers; r++) {
            const int i = g + r * width;
            F t = (logits(i) - max) * scale;
            const F e = exp2(t), with = mass[r] + e, energetic = fma(t, e, energy[r]);
            mass[r] = masked ? only(with, bits(i), mass[r]) : with;
            energy[r] = masked ? only(energetic, bits(i), energy[r]) : energetic;
        }
}

// The same in float32 lanes, about three times as fast and good to `error` of its mass.
template <typename T>
inline Totals totals32(const Source<T>& source, double max, double scale, double& error) {
    Sum mass, energy;
    const F m = splat(float(max)), by = splat(float(scale * 0x1.71547652b82fep0));
    float buffer[block];
    uint32_t words[block / 32];
    for (int64_t b = 0; b < source.blocks();) {
        F masses[registers] = {}, energies[registers] = {};
        const int64_t end = std::min<int64_t>(b + fold / block, source.blocks());
        for (; b < end; b++) {
            const auto lying = [&](int i) { return load(source.at(b) + i); };
            const auto bits = [&](int i) { return source.bits(b, i); };
            if (!source.whole(b)) {
                source.fill(b, buffer);
                source.words(b, words);
                const auto own = [&](int i) { return Source<T>::bits_of(words, i); };
                accumulate<true>([&](int i) { return load(buffer + i); }, own, m, by, masses, energies);
            } else if (source.mask) {
                accumulate<true>(lying, bits, m, by, masses, energies);
            } else {
                accumulate<false>(lying, bits, m, by, masses, energies);
            }
        }
        mass.fold(masses);
        energy.fold(energies);
    }
    const Totals found{mass.value(), -energy.value() * 0x1.62e42fefa39efp-1};  // t was in bits
    error = 0x1p-19 + 0x1p-20 * (found.mass > 0 ? found.energy / found.mass : 0);
    return found;
}

}  // namespace logitd::LOGITD_ISA

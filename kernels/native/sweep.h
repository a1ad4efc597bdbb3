// Sums over a whole row: masses and energies, in float64 or in float32 lanes.
#pragma once

#include "source.h"

namespace logitd::LOGITD_ISA {

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

// The Boltzmann view of a row: one pass at one temperature, with the same bits for every instruction set.
#pragma once

#include <cmath>

#include "sweep.h"

namespace logitd::LOGITD_ISA {

// What has no mass counts as this far below the maximum: finite, so that its product with 0 is 0.
constexpr double far_below = -1e6;

inline D load(const double* p) {
    D x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

// Calls use(place, lane) for each register of a block, so that a lane of a sum always adds the same places.
template <typename Use>
inline void each_lane(Use use) {
    for (int i = 0; i < block; i += 16)
        for (int j = 0; j < WideSum::count; j++) use(i + j * wide, j);
}

// Moments of d = (x - M)/T under softmax(x/T), put together block by block. Each block is centred at its own mean (Chan,
// Golub and LeVeque 1983), so that no two large squares are ever subtracted. Entropy is the sum of -p ln p, by Shannon's
// grouping: within a block of mass m it is ln m - d that is averaged, which needs neither the whole mass nor the energy.
class Boltzmann {
public:
    void add(const double* deltas, const double* masses, const double* gaps) {
        const D low = splat(far_below);
        const auto held = [&](int i) {
            const D d = load(deltas + i);
            return d > low ? d : low;
        };
        WideSum own, first, gap = gap_;
        each_lane([&](int i, int lane) {
            const D m = load(masses + i);
            own.lanes[lane] = own.lanes[lane] + m;
            first.lanes[lane] = first.lanes[lane] + m * held(i);
            gap.lanes[lane] = gap.lanes[lane] + m * load(gaps + i);
        });
        const double mass = own.value();
        if (mass == 0) return;
        const double mean = first.value() / mass, log_mass = std::log(mass);
        const D centre = splat(mean), top = splat(log_mass);
        WideSum squares = squares_, within = within_;
        each_lane([&](int i, int lane) {
            const D m = load(masses + i), d = held(i), off = d - centre;
            squares.lanes[lane] = squares.lanes[lane] + m * off * off;
            within.lanes[lane] = within.lanes[lane] + m * (top - d);
        });
        gap_ = gap;
        squares_ = squares;
        within_ = within;
        join(mass, mean, log_mass);
    }

    Thermo result() const {
        const double entropy = std::log(mass_) + (within_.value() - grouped_) / mass_;
        const double variance = (squares_.value() + between_) / mass_;
        return {mass_, gap_.value() / mass_, std::max(0.0, entropy), variance};
    }

private:
    void join(double mass, double mean, double log_mass) {
        const double before = mass_, apart = mean - mean_;
        mass_ += mass;
        mean_ += apart * (mass / mass_);
        between_ += apart * apart * (before * (mass / mass_));
        grouped_ += mass * log_mass;
    }

    WideSum gap_, squares_, within_;                          // the squares within blocks
    double mass_ = 0, mean_ = 0, between_ = 0, grouped_ = 0;  // squares between blocks; each block's m ln m
};

template <typename T>
void thermo_as(const Row& row, double max, Thermo& out) {
    const Source<T> source{static_cast<const T*>(row.logits), row.stride, row.vocab, nullptr};
    Boltzmann sums;
    alignas(64) double gaps[block];
    const auto add = [&](int64_t, const auto* logits, const double* deltas, const double* masses) {
        for (int i = 0; i < block; i++) gaps[i] = masses[i] > 0 ? max - double(logits[i]) : 0.0;
        sums.add(deltas, masses, gaps);
    };
    sweep64(source, max, scale_of(row.temperature), add);
    out = sums.result();
}

inline void thermo(const Row& row, double max, Thermo& out) {
    switch (row.dtype) {
        case Dtype::f32: return thermo_as<float>(row, max, out);
        case Dtype::f16: return thermo_as<half>(row, max, out);
        case Dtype::bf16: return thermo_as<uint16_t>(row, max, out);
        case Dtype::f64: return thermo_as<double>(row, max, out);
    }
}

}  // namespace logitd::LOGITD_ISA

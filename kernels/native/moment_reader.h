// How a block of queries reads a moment state: moment/read.py.
#pragma once

#include "moment_lanes.h"

namespace logitd::LOGITD_ISA {

// What a block of queries gets from a state: features whose product with the sums is its numerator, and two lines of lanes.
class Reader {
public:
    Reader(const Coordinates& basis, int64_t dim, int64_t columns)
        : basis_(basis), dim_(dim), columns_(columns), arena_((4 + 2 * dim + basis.rank + pairs_of(basis.rank)) * logical) {
        // Rows of the features follow each other: 1, x, pairs.
        features_ = arena_.take(1), x_ = arena_.take(dim), pairs_ = arena_.take(pairs_of(basis.rank));
        low_ = arena_.take(dim), y_ = arena_.take(basis.rank);
        log_mass = arena_.take(1), denominator = arena_.take(1), low_factor_ = arena_.take(1);
    }

    float *log_mass, *denominator;  // [64]

    // Reads a state by queries [dim, 64].
    void read(const float* queries, const float* sums, float log_scale, const float (&a)[3]) {
        for (int64_t f = 0; f < dim_; f++)
            lanes([&](int at) {
                store(x_ + f * logical + at, load(queries + f * logical + at) - splat(basis_.query_centre[f]));
            });
        product({basis_.query_map, dim_, 1}, x_, logical, y_, logical, basis_.rank, logical, dim_);
        product({basis_.key_map, 1, dim_}, y_, logical, low_, logical, dim_, logical, basis_.rank);  // the part of x in them
        std::fill_n(features_, logical, 1.0f);
        pair_products(y_, basis_.rank, features_, 1, pairs_);
        spread(sums, log_scale, a);
        for (int64_t f = 0; f < dim_; f++)
            lanes([&](int at) {
                const F x = load(x_ + f * logical + at) * splat(a[1]);
                store(x_ + f * logical + at, fma(load(low_ + f * logical + at), load(low_factor_ + at), x));
            });
        for (int64_t i = 0; i < pairs_of(basis_.rank) * logical; i += width) store(pairs_ + i, load(pairs_ + i) * splat(a[2] / 2));
    }

    // Adds weight · numerator to out [columns - 1, 64].
    void add(const float* sums, const float* weight, float* out) {
        const int64_t size = size_of(dim_, basis_.rank);
        for (int64_t f = 0; f < size; f++)
            lanes([&](int at) { store(features_ + f * logical + at, load(features_ + f * logical + at) * load(weight + at)); });
        product({sums, 1, columns_}, features_, logical, out, logical, columns_ - 1, logical, size, true);
    }

private:
    // b = x·S1/Z, its part of the quadratic directions, and s²; then the first feature, den and log_mass.
    void spread(const float* sums, float log_scale, const float (&a)[3]) {
        const float mass = sums[columns_ - 1], inverse = mass > 0 ? 1 / mass : 0;
        const auto sum = [&](int64_t row) { return splat(sums[row * columns_ + columns_ - 1] * inverse); };
        lanes([&](int at) {
            F mean{}, low{}, square{};
            for (int64_t f = 0; f < dim_; f++) {
                mean = fma(load(x_ + f * logical + at), sum(1 + f), mean);
                low = fma(load(low_ + f * logical + at), sum(1 + f), low);
            }
            for (int64_t p = 0; p < pairs_of(basis_.rank); p++)
                square = fma(load(pairs_ + p * logical + at), sum(1 + dim_ + p), square);
            const F variance = larger(square - low * low, F{}), kappa = smaller(variance, splat(1.0f));
            const F half = splat(a[2] / 2);
            store(features_ + at, splat(a[0]) - splat(a[1]) * mean + half * (low * low - kappa));
            store(denominator + at, splat(mass) * (splat(a[0]) + half * (variance - kappa)));
            store(log_mass + at, splat(log_scale) + mean + smaller(variance, splat(4.0f)) * splat(0.5f));
            store(low_factor_ + at, splat(-a[2]) * low);
        });
    }

    const Coordinates& basis_;
    const int64_t dim_, columns_;
    Arena arena_;
    float *features_, *x_, *pairs_, *low_, *y_, *low_factor_;
};

}  // namespace logitd::LOGITD_ISA

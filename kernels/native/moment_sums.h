// The moment state of one block of keys.
#pragma once

#include "moment_lanes.h"

namespace logitd::LOGITD_ISA {

// The state of one block of keys.
class BlockSums {
public:
    BlockSums(const Keys& keys, const Coordinates& basis)
        : keys_(keys), basis_(basis), size_(size_of(keys.dim, basis.rank)),
          arena_((keys.dim + basis.rank + size_ + 1) * logical + (logical + size_) * lane_panel) {
        k_ = arena_.take(keys.dim), y_ = arena_.take(basis.rank), features_ = arena_.take(size_), weights_ = arena_.take(1);
        rest_ = arena_.take(logical, lane_panel), rest_sums_ = arena_.take(size_, lane_panel);
        std::fill(rest_, rest_ + logical * lane_panel, 0.0f);
    }

    float write(int64_t place, float* sums) {
        transpose(keys_.keys + place * logical * keys_.dim, keys_.dim, k_);
        const float scale = weigh(place);
        std::copy(weights_, weights_ + logical, features_);
        for (int64_t f = 0; f < keys_.dim; f++)
            lanes([&](int at) {
                store(features_ + (1 + f) * logical + at, load(k_ + f * logical + at) * load(weights_ + at));
            });
        product({basis_.key_map, keys_.dim, 1}, k_, logical, y_, logical, basis_.rank, logical, keys_.dim);
        pair_products(y_, basis_.rank, weights_, 2, features_ + (1 + keys_.dim) * logical);
        multiply(keys_.values + place * logical * keys_.columns, sums);
        return scale;
    }

private:
    // Puts e^(ω - ω*) into weights, and returns ω*.
    float weigh(int64_t place) {
        const float* hidden = keys_.hidden + place * logical;
        std::copy(hidden, hidden + logical, weights_);
        product({basis_.query_centre, 0, 1}, k_, logical, weights_, logical, 1, logical, keys_.dim, true);
        float scale = -infinity;
        for (int i = 0; i < logical; i++) scale = std::max(scale, weights_[i]);
        lanes([&](int at) { store(weights_ + at, exp(load(weights_ + at) - splat(std::max(scale, lowest)))); });
        return scale;
    }

    // Columns that make no whole panel go through a padded copy.
    void multiply(const float* values, float* sums) {
        const int64_t columns = keys_.columns, whole = columns / lane_panel * lane_panel, rest = columns - whole;
        product({features_, logical, 1}, values, columns, sums, columns, size_, whole, logical);
        if (!rest) return;
        for (int k = 0; k < logical; k++)
            for (int64_t c = 0; c < rest; c++) rest_[k * lane_panel + c] = values[k * columns + whole + c];
        product({features_, logical, 1}, rest_, lane_panel, rest_sums_, lane_panel, size_, lane_panel, logical);
        for (int64_t f = 0; f < size_; f++)
            for (int64_t c = 0; c < rest; c++) sums[f * columns + whole + c] = rest_sums_[f * lane_panel + c];
    }

    const Keys& keys_;
    const Coordinates& basis_;
    const int64_t size_;
    Arena arena_;
    float *k_, *y_, *features_, *weights_, *rest_, *rest_sums_;
};

}  // namespace logitd::LOGITD_ISA

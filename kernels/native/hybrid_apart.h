// Single queries taken apart, for the fit of coefficients: hybrid/fit.py.
#pragma once

#include "moment_lanes.h"

namespace logitd::LOGITD_ISA {

// Sums of products over 16 lanes, whatever the width, and what is left of n one by one.
inline float dot(const float* a, const float* b, int64_t n) {
    F sums[panel_registers] = {};
    int64_t i = 0;
    for (; i + lane_panel <= n; i += lane_panel)
        for (int r = 0; r < panel_registers; r++) sums[r] = fma(load(a + i + r * width), load(b + i + r * width), sums[r]);
    float total[lane_panel];
    std::memcpy(total, sums, sizeof total);
    for (int half = lane_panel / 2; half >= 1; half /= 2)
        for (int l = 0; l < half; l++) total[l] += total[l + half];
    for (; i < n; i++) total[0] = __builtin_fmaf(a[i], b[i], total[0]);
    return total[0];
}

// out [rows, columns] (+)= left [rows, depth] · right [depth, columns], any number of columns.
inline void combine(const float* left, const float* right, float* out, int64_t out_row, int64_t rows, int64_t columns, int64_t depth,
             bool add) {
    const int64_t whole = columns / lane_panel * lane_panel;
    product({left, depth, 1}, right, columns, out, out_row, rows, whole, depth, add);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = whole; c < columns; c++) {
            float sum = add ? out[i * out_row + c] : 0;
            for (int64_t k = 0; k < depth; k++) sum = __builtin_fmaf(left[i * depth + k], right[k * columns + c], sum);
            out[i * out_row + c] = sum;
        }
}

// One query after the other, for the fit of coefficients.
class Apart {
public:
    Apart(const Singles& rows, const Keys& keys, const Coordinates& basis, const Near& near)
        : rows_(rows), keys_(keys), basis_(basis), near_(near), size_(size_of(keys.dim, basis.rank)),
          arena_(near.blocks * logical + near.heavy + 2 * keys.dim + basis.rank + 4 * size_ + size_ * keys.columns) {
        weights_ = arena_.take(1, near.blocks * logical + near.heavy);
        x_ = arena_.take(1, keys.dim), low_ = arena_.take(1, keys.dim), y_ = arena_.take(1, basis.rank);
        features_ = arena_.take(3, size_), sums_ = arena_.take(size_, keys.columns);
    }

    void take(int64_t row, MomentStates before, MomentStates behind) {
        const int64_t place = near_.start + rows_.block[row], end = place + near_.blocks, columns = keys_.columns;
        exact(row, place);
        const int64_t numbers = size_ * columns;
        const float log_scale = merge(before.sums + place * numbers, before.log_scale[place], behind.sums + end * numbers,
                                      behind.log_scale[end], sums_, numbers);
        const float log_mass = log_scale + expand(rows_.queries + row * keys_.dim);
        const float scale = float(std::exp(double(log_mass) - double(rows_.total[row])));
        for (int64_t f = 0; f < 3 * size_; f++) features_[f] *= scale;
        combine(features_, sums_, rows_.far + row * columns, rows_.count * columns, 3, columns, size_, false);
    }

private:
    void exact(int64_t row, int64_t place) {
        const float *query = rows_.queries + row * keys_.dim, *keys = keys_.keys + place * logical * keys_.dim;
        const int64_t inside = near_.blocks * logical, seen = inside + near_.heavy, columns = keys_.columns;
        for (int64_t j = 0; j < inside; j++)
            weights_[j] = dot(query, keys + j * keys_.dim, keys_.dim) + keys_.hidden[place * logical + j];
        for (int64_t j = 0; j < near_.heavy; j++)
            weights_[inside + j] = dot(query, near_.heavy_keys + j * keys_.dim, keys_.dim);
        for (int64_t j = 0; j < seen; j++) weights_[j] = exp(weights_[j] - rows_.total[row]);
        float* out = rows_.exact + row * columns;
        combine(weights_, keys_.values + place * logical * columns, out, columns, 1, columns, inside, false);
        combine(weights_ + inside, near_.heavy_values, out, columns, 1, columns, near_.heavy, true);
    }

    // Fills the features of three orders, and returns b + min(s², 4) / 2.
    float expand(const float* query) {
        const int64_t dim = keys_.dim, rank = basis_.rank, last = keys_.columns - 1;
        for (int64_t f = 0; f < dim; f++) x_[f] = query[f] - basis_.query_centre[f];
        for (int64_t i = 0; i < rank; i++) y_[i] = dot(basis_.query_map + i * dim, x_, dim);
        std::fill_n(low_, dim, 0.0f);
        for (int64_t i = 0; i < rank; i++)
            for (int64_t f = 0; f < dim; f++) low_[f] = __builtin_fmaf(y_[i], basis_.key_map[i * dim + f], low_[f]);
        const float mass = sums_[last], inverse = mass > 0 ? 1 / mass : 0;
        const auto sum = [&](int64_t row) { return sums_[row * keys_.columns + last] * inverse; };
        float mean = 0, low = 0, square = 0;
        float *order0 = features_, *order1 = features_ + size_, *order2 = features_ + 2 * size_;
        std::fill_n(features_, 3 * size_, 0.0f);
        for (int64_t f = 0; f < dim; f++) {
            mean = __builtin_fmaf(x_[f], sum(1 + f), mean);
            low = __builtin_fmaf(low_[f], sum(1 + f), low);
        }
        for (int64_t p = 0; p < pairs_of(rank); p++) {
            const float pair = y_[p % rank] * y_[(p % rank + p / rank) % rank];
            square = __builtin_fmaf(pair, sum(1 + dim + p), square);
            order2[1 + dim + p] = pair / 2;
        }
        const float variance = std::max(square - low * low, 0.0f);
        order0[0] = 1, order1[0] = -mean, order2[0] = (low * low - std::min(variance, 1.0f)) / 2;
        for (int64_t f = 0; f < dim; f++) order1[1 + f] = x_[f], order2[1 + f] = -low * low_[f];
        return mean + std::min(variance, 4.0f) / 2;
    }

    const Singles& rows_;
    const Keys& keys_;
    const Coordinates& basis_;
    const Near& near_;
    const int64_t size_;
    Arena arena_;
    float *weights_, *x_, *low_, *y_, *features_, *sums_;
};

}  // namespace logitd::LOGITD_ISA

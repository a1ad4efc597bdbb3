// What attention by moment states is made of: memory, lanes, transposes, and states that add up. The 64 queries or keys of a
// block are the lanes: a matrix here is [rows, 64].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include "attention.h"
#include "gemm.h"

namespace logitd::LOGITD_ISA {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float lowest = std::numeric_limits<float>::lowest();
static_assert(block_size == logical);

// Memory of one call, cut into pieces of whole cache lines.
class Arena {
public:
    explicit Arena(int64_t floats) {
        const size_t size = size_t(floats + 64) * sizeof(float) / 64 * 64 + 64;
        memory_.reset(static_cast<float*>(std::aligned_alloc(64, size)));
        if (!memory_) throw std::bad_alloc();
        next_ = memory_.get();
    }
    float* take(int64_t rows, int64_t columns = logical) {
        float* taken = next_;
        next_ += rows * columns;
        return taken;
    }

private:
    struct Free {
        void operator()(float* memory) const { std::free(memory); }
    };
    std::unique_ptr<float, Free> memory_;
    float* next_;
};

// Calls with every register of a line of 64 lanes.
template <typename Body>
inline void lanes(Body body) {
    for (int at = 0; at < logical; at += width) body(at);
}

inline void store(float* to, F x) { std::memcpy(to, &x, sizeof x); }

// e^x for x <= 0, and 0 below -87.
inline F exp(F x) {
    F t = x * splat(0x1.715476p0f);
    const F power = exp2(t);
    return t > splat(-126.0f) ? power : F{};
}

inline float exp(float x) { return exp(splat(x))[0]; }

// [rows, columns] into [columns, 64], the other lanes 0.
inline void transpose(const float* from, int64_t columns, float* to, int64_t rows = logical) {
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t i = 0; i < rows; i++) to[c * logical + i] = from[i * columns + c];
        for (int64_t i = rows; i < logical; i++) to[c * logical + i] = 0;
    }
}

// Divides sums [columns, 64] by their last row plus `more`, into rows [rows, columns - 1]; the answer is 0 where that fails.
inline void divide(float* sums, const float* weight, const float* more, int64_t columns, int64_t rows, float* out, bool* bad) {
    const int64_t last = columns - 1;
    bool failed[logical];
    lanes([&](int at) {
        const F total = fma(load(weight + at), load(more + at), load(sums + last * logical + at));
        I good = (total > F{}) & (total < splat(infinity));
        for (int64_t c = 0; c < last; c++) {
            float* value = sums + c * logical + at;
            store(value, load(value) / total);
            good &= (load(value) < splat(infinity)) & (load(value) > splat(-infinity));
        }
        for (int i = 0; i < width; i++) failed[at + i] = !good[i];
    });
    for (int64_t i = 0; i < rows; i++) {
        bad[i] = failed[i];
        for (int64_t c = 0; c < last; c++) out[i * last + c] = failed[i] ? 0 : sums[c * logical + i];
    }
}

inline int64_t pairs_of(int64_t rank) { return rank * (rank + 1) / 2; }
inline int64_t size_of(int64_t dim, int64_t rank) { return 1 + dim + pairs_of(rank); }

// The products y_i y_j of every lane times a factor, in the order of `pairs` in moment/read.py: by their distance around the
// ring. Those of different directions get `twice`.
inline void pair_products(const float* y, int64_t rank, const float* factor, float twice, float* out) {
    for (int64_t p = 0; p < pairs_of(rank); p++) {
        const int64_t i = p % rank, j = (i + p / rank) % rank;
        const F more = splat(p < rank ? 1.0f : twice);
        lanes([&](int at) {
            store(out + p * logical + at, load(y + i * logical + at) * load(y + j * logical + at) * load(factor + at) * more);
        });
    }
}

// Adds up two states on the larger scale: out may be either of them.
inline float merge(const float* one, float one_scale, const float* other, float other_scale, float* out, int64_t size) {
    const float scale = std::max(one_scale, other_scale), base = std::max(scale, lowest);
    const float first = exp(one_scale - base), second = exp(other_scale - base);
    int64_t i = 0;
    for (; i + width <= size; i += width) store(out + i, fma(load(one + i), splat(first), load(other + i) * splat(second)));
    for (; i < size; i++) out[i] = __builtin_fmaf(one[i], first, other[i] * second);
    return scale;
}

}  // namespace logitd::LOGITD_ISA

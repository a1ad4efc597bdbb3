// Attention by moment states for one instruction set. The 64 queries or keys of a block are the lanes: a matrix here is [rows, 64].
#include "attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>

#include "gemm.h"

namespace logitd::LOGITD_ISA {
namespace {

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
void transpose(const float* from, int64_t columns, float* to, int64_t rows = logical) {
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t i = 0; i < rows; i++) to[c * logical + i] = from[i * columns + c];
        for (int64_t i = rows; i < logical; i++) to[c * logical + i] = 0;
    }
}

// Divides sums [columns, 64] by their last row plus `more`, into rows [rows, columns - 1]; the answer is 0 where that fails.
void divide(float* sums, const float* weight, const float* more, int64_t columns, int64_t rows, float* out, bool* bad) {
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

int64_t pairs_of(int64_t rank) { return rank * (rank + 1) / 2; }
int64_t size_of(int64_t dim, int64_t rank) { return 1 + dim + pairs_of(rank); }

// The products y_i y_j of every lane times a factor, in the order of `pairs` in moment/read.py: by their distance around the
// ring. Those of different directions get `twice`.
void pair_products(const float* y, int64_t rank, const float* factor, float twice, float* out) {
    for (int64_t p = 0; p < pairs_of(rank); p++) {
        const int64_t i = p % rank, j = (i + p / rank) % rank;
        const F more = splat(p < rank ? 1.0f : twice);
        lanes([&](int at) {
            store(out + p * logical + at, load(y + i * logical + at) * load(y + j * logical + at) * load(factor + at) * more);
        });
    }
}

// Adds up two states on the larger scale: out may be either of them.
float merge(const float* one, float one_scale, const float* other, float other_scale, float* out, int64_t size) {
    const float scale = std::max(one_scale, other_scale), base = std::max(scale, lowest);
    const float first = exp(one_scale - base), second = exp(other_scale - base);
    int64_t i = 0;
    for (; i + width <= size; i += width) store(out + i, fma(load(one + i), splat(first), load(other + i) * splat(second)));
    for (; i < size; i++) out[i] = __builtin_fmaf(one[i], first, other[i] * second);
    return scale;
}

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

void sums(const Keys& keys, const Coordinates& basis, MomentStates before, MomentStates behind) {
    const int64_t numbers = size_of(keys.dim, basis.rank) * keys.columns;
    BlockSums blocks(keys, basis);
    if (behind.sums) {
        std::fill_n(behind.sums + keys.count * numbers, numbers, 0.0f);
        behind.log_scale[keys.count] = -infinity;
    }
    for (int64_t i = keys.count - 1; i >= 0; i--) {
        float* own = before.sums + (i + 1) * numbers;
        before.log_scale[i + 1] = blocks.write(i, own);
        if (behind.sums)
            behind.log_scale[i] = merge(behind.sums + (i + 1) * numbers, behind.log_scale[i + 1], own, before.log_scale[i + 1],
                                        behind.sums + i * numbers, numbers);
    }
    std::fill_n(before.sums, numbers, 0.0f);
    before.log_scale[0] = -infinity;
    for (int64_t i = 0; i < keys.count; i++) {
        float* next = before.sums + (i + 1) * numbers;
        before.log_scale[i + 1] =
            merge(before.sums + i * numbers, before.log_scale[i], next, before.log_scale[i + 1], next, numbers);
    }
}

void append(const Tokens& tokens, const Coordinates& basis, MomentStates state) {
    const int64_t dim = tokens.dim, columns = tokens.value_dim + 1, numbers = size_of(dim, basis.rank) * columns;
    Arena arena((dim + columns + 1) * logical + numbers);
    float *keys = arena.take(dim), *values = arena.take(columns), *hidden = arena.take(1), *sums = arena.take(1, numbers);
    const Keys block{keys, values, hidden, 1, dim, columns};
    BlockSums blocks(block, basis);
    std::fill_n(keys, (dim + columns) * logical, 0.0f);
    for (int64_t start = 0; start < tokens.count; start += logical) {
        for (int64_t i = 0; i < logical; i++) {
            const int64_t j = start + i;
            hidden[i] = j < tokens.count ? 0 : -infinity;
            if (j >= tokens.count) continue;
            for (int64_t f = 0; f < dim; f++) keys[i * dim + f] = tokens.k[j * dim + f] - tokens.key_centre[f];
            std::copy_n(tokens.v + j * tokens.value_dim, tokens.value_dim, values + i * columns);
            values[i * columns + tokens.value_dim] = 1;
        }
        const float scale = blocks.write(0, sums);
        *state.log_scale = merge(state.sums, *state.log_scale, sums, scale, state.sums, numbers);
    }
}

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

void read(const float* queries, int64_t count, int64_t dim, int64_t columns, float scale, const Coordinates& basis,
          MomentStates state, float* out, bool* bad) {
    Reader reader(basis, dim, columns);
    Arena arena((dim + columns + 1) * logical);
    float *q = arena.take(dim), *sums = arena.take(columns), *one = arena.take(1);
    std::fill_n(one, logical, 1.0f);
    for (int64_t start = 0; start < count; start += logical) {
        const int64_t rows = std::min<int64_t>(logical, count - start);
        transpose(queries + start * dim, dim, q, rows);
        for (int64_t i = 0; i < dim * logical; i += width) store(q + i, load(q + i) * splat(scale));
        reader.read(q, state.sums, *state.log_scale, {1, 1, 1});
        std::fill_n(sums, columns * logical, 0.0f);
        reader.add(state.sums, one, sums);
        divide(sums, one, reader.denominator, columns, rows, out + start * (columns - 1), bad + start);
    }
}

// Blocks of queries, one after the other.
class Blocks {
public:
    Blocks(const Keys& keys, const Coordinates& basis, const Near& near)
        : keys_(keys), near_(near), numbers_(size_of(keys.dim, basis.rank) * keys.columns), seen_(near.blocks * logical + near.heavy),
          reader_(basis, keys.dim, keys.columns),
          arena_((keys.dim + seen_ + keys.columns + 2) * logical + numbers_) {
        q_ = arena_.take(keys.dim), scores_ = arena_.take(seen_), out_ = arena_.take(keys.columns);
        scale_ = arena_.take(1), weight_ = arena_.take(1), far_ = arena_.take(1, numbers_);
    }

    void attend(const float* queries, int64_t block, MomentStates before, MomentStates behind, const float (&coefficients)[3],
                float* out, bool* bad) {
        const int64_t place = near_.start + block, end = place + near_.blocks;
        transpose(queries, keys_.dim, q_);
        score(place, near_.first + block);
        const float* sums = before.sums + place * numbers_;
        float log_scale = before.log_scale[place];
        if (behind.sums) {
            log_scale = merge(sums, log_scale, behind.sums + end * numbers_, behind.log_scale[end], far_, numbers_);
            sums = far_;
        }
        reader_.read(q_, sums, log_scale, coefficients);
        weigh();
        const int64_t columns = keys_.columns, inside = near_.blocks * logical;
        product({keys_.values + place * logical * columns, 1, columns}, scores_, logical, out_, logical, columns, logical, inside);
        product({near_.heavy_values, 1, columns}, scores_ + inside * logical, logical, out_, logical, columns, logical, near_.heavy,
                true);
        reader_.add(sums, weight_, out_);
        divide(out_, weight_, reader_.denominator, keys_.columns, logical, out, bad);
    }

private:
    // Fills scores [seen, 64]: the window's keys and the heavy ones, -inf where not seen.
    void score(int64_t place, int64_t number) {
        const int64_t dim = keys_.dim, inside = near_.blocks * logical;
        float* heavy = scores_ + inside * logical;
        product({keys_.keys + place * logical * dim, dim, 1}, q_, logical, scores_, logical, inside, logical, dim);
        product({near_.heavy_keys, dim, 1}, q_, logical, heavy, logical, near_.heavy, logical, dim);
        const float* hidden = keys_.hidden + place * logical;
        for (int64_t j = 0; j < inside; j++)
            if (hidden[j] != 0) std::fill_n(scores_ + j * logical, logical, -infinity);
        if (!near_.causal) return;
        float* own = heavy - logical * logical;
        for (int64_t j = 1; j < logical; j++) std::fill_n(own + j * logical, j, -infinity);
        for (int64_t j = 0; j < near_.heavy; j++) {
            const int64_t unseeing = std::clamp<int64_t>(near_.heavy_place[j] - number * logical, 0, logical);
            std::fill_n(heavy + j * logical, unseeing, -infinity);
        }
    }

    // Turns scores into weights on each query's scale: of its largest score, and of what is far.
    void weigh() {
        lanes([&](int at) {
            F scale = larger(load(reader_.log_mass + at), splat(lowest));  // where nothing is seen at all
            for (int64_t j = 0; j < seen_; j++) scale = larger(scale, load(scores_ + j * logical + at));
            store(scale_ + at, scale);
            store(weight_ + at, exp(load(reader_.log_mass + at) - scale));
        });
        for (int64_t j = 0; j < seen_; j++)
            lanes([&](int at) {
                float* score = scores_ + j * logical + at;
                store(score, exp(load(score) - load(scale_ + at)));
            });
    }

    const Keys& keys_;
    const Near& near_;
    const int64_t numbers_, seen_;
    Reader reader_;
    Arena arena_;
    float *q_, *scores_, *out_, *scale_, *weight_, *far_;
};

void attend(const float* queries, int64_t count, const Keys& keys, const Coordinates& basis, const Near& near,
            MomentStates before, MomentStates behind, const float (&coefficients)[3], float* out, bool* bad) {
    Blocks blocks(keys, basis, near);
    for (int64_t b = 0; b < count; b++)
        blocks.attend(queries + b * logical * keys.dim, b, before, behind, coefficients, out + b * logical * (keys.columns - 1),
                      bad + b * logical);
}

// Sums of products over 16 lanes, whatever the width, and what is left of n one by one.
float dot(const float* a, const float* b, int64_t n) {
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
void combine(const float* left, const float* right, float* out, int64_t out_row, int64_t rows, int64_t columns, int64_t depth,
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

void orders(const Singles& rows, const Keys& keys, const Coordinates& basis, const Near& near, MomentStates before,
            MomentStates behind) {
    Apart apart(rows, keys, basis, near);
    for (int64_t i = 0; i < rows.count; i++) apart.take(i, before, behind);
}

}  // namespace
}  // namespace logitd::LOGITD_ISA

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define LOGITD_FUSES true
#else
#define LOGITD_FUSES false
#endif
#define LOGITD_NAME_(isa) attention_##isa
#define LOGITD_NAME(isa) LOGITD_NAME_(isa)

namespace logitd {
extern const Attention LOGITD_NAME(LOGITD_ISA) = {
    LOGITD_FUSES, LOGITD_ISA::append, LOGITD_ISA::read, LOGITD_ISA::sums, LOGITD_ISA::attend, LOGITD_ISA::orders,
};
}  // namespace logitd

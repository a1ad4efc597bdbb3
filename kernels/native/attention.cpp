// Attention by moment states for one instruction set.
#include "attention.h"

#include "hybrid_apart.h"
#include "hybrid_blocks.h"
#include "moment_reader.h"
#include "moment_sums.h"

namespace logitd::LOGITD_ISA {
namespace {

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

void attend(const float* queries, int64_t count, const Keys& keys, const Coordinates& basis, const Near& near,
            MomentStates before, MomentStates behind, const float (&coefficients)[3], float* out, bool* bad) {
    Blocks blocks(keys, basis, near);
    for (int64_t b = 0; b < count; b++)
        blocks.attend(queries + b * logical * keys.dim, b, before, behind, coefficients, out + b * logical * (keys.columns - 1),
                      bad + b * logical);
}

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

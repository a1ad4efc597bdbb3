// Attention of one head by moment states, alone or beside keys that are exact. The formulas are those of
// logitd_kernels/attention/moment/read.py and hybrid/tile.py; positions go in blocks of 64.
#pragma once

#include <cstdint>

namespace logitd {

constexpr int64_t block_size = 64;

struct Keys {
    const float* keys;    // [count · 64, dim], less their centre
    const float* values;  // [count · 64, columns], the last column 1
    const float* hidden;  // [count · 64], added to scores: 0 or -inf
    int64_t count, dim, columns;
};

struct Coordinates {
    const float* query_centre;  // [dim]
    const float* key_map;       // [rank, dim]
    const float* query_map;     // [rank, dim]
    int64_t rank;
};

// Moment states [count, (1 + dim + rank (rank + 1) / 2) · columns] with their log-scales, -inf for an empty one.
struct MomentStates {
    float* sums;
    float* log_scale;
};

struct Near {
    int64_t start;   // the place among the blocks of keys where the window of the first block of queries begins
    int64_t blocks;  // of a window; it ends with the queries' own block if causal
    bool causal;
    int64_t first;               // the number of the first block of queries
    const float* heavy_keys;     // [heavy, dim], what every query sees
    const float* heavy_values;   // [heavy, columns]
    const int64_t* heavy_place;  // [heavy], their positions
    int64_t heavy;
};

// Queries by themselves, and what the exact keys and each order of the far ones add to their numerators and normalisers.
struct Singles {
    const float* queries;  // [count, dim], times the scale
    const int64_t* block;  // [count], among the blocks of queries
    const float* total;    // [count], logs of their normalisers
    int64_t count;
    float* exact;  // [count, columns]
    float* far;    // [3, count, columns]
};

// Vectors of one head as the caller has them.
struct Tokens {
    const float *k, *v;  // [count, dim] and [count, value_dim]
    int64_t count, dim, value_dim;
    const float* key_centre;  // [dim]
};

struct Attention {
    bool fuses;  // has multiply-adds: without, these loops are slower than any library
    // Adds keys to one state.
    void (*append)(const Tokens&, const Coordinates&, MomentStates);
    // Answers queries [count, dim] times a scale by one state into out [count, columns - 1]; bad [count] as below.
    void (*read)(const float* queries, int64_t count, int64_t dim, int64_t columns, float scale, const Coordinates&,
                 MomentStates, float* out, bool* bad);
    // Sums up the blocks of keys: before[i] holds all that precede block i, behind[i] block i and all that follow, for i in
    // [0, count]. `behind` may be null.
    void (*sums)(const Keys&, const Coordinates&, MomentStates before, MomentStates behind);
    // Attends with blocks of queries [count, 64, dim], times the scale, into out [count, 64, columns - 1]; bad [count, 64]
    // tells where there is no positive normaliser, and the answer is 0. Far from block b is before[start + b] and
    // behind[start + b + blocks].
    void (*attend)(const float* queries, int64_t count, const Keys&, const Coordinates&, const Near&, MomentStates before,
                   MomentStates behind, const float (&coefficients)[3], float* out, bool* bad);
    // Takes single queries apart, of a head that is not causal. All in units of e^total.
    void (*orders)(const Singles&, const Keys&, const Coordinates&, const Near&, MomentStates before, MomentStates behind);
};

}  // namespace logitd

// Blocks of queries: keys near and heavy ones exactly, the rest by moment states: hybrid/tile.py.
#pragma once

#include "moment_reader.h"

namespace logitd::LOGITD_ISA {

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

}  // namespace logitd::LOGITD_ISA

// Weighted radix selection: where a running count or mass along the total order crosses a target, linear in the row for any
// distribution. The first digit is a token's distance from the maximum; the others are digits of order-preserving keys.
#pragma once

#include "tokens.h"

namespace logitd::LOGITD_ISA {

struct Crossing {
    Token token;
    Prefix through;  // what ends with the token
};

// What a running sum must reach, or pass when not `inclusive`: a mass, or a count.
struct Goal {
    bool weighted;
    double target;
    bool inclusive;

    double of(const Prefix& one) const { return weighted ? one.mass : double(one.count); }
    bool met(const Prefix& through) const { return inclusive ? of(through) >= target : of(through) > target; }
};

// Keys that ascend as logits descend; -0.0 and 0.0 share one.
inline uint64_t order_key(double logit) {
    const double positive_zero = logit + 0.0;
    uint64_t bits;
    std::memcpy(&bits, &positive_zero, 8);
    return bits >> 63 ? bits : ~bits & 0x7fffffffffffffffu;
}

template <typename T>
class Radix {
public:
    using Real = typename Source<T>::Real;

    Radix(const Tokens<T>& row, Scratch& scratch) : row_(row), scratch_(scratch) {}

    // The token at which the goal is met; the last of any weight when it is not.
    Crossing cross(const Goal& goal) {
        const Digits& top = top_digits();
        Prefix before{0, 0, 0};
        int32_t* members = static_cast<int32_t*>(scratch_.take(4, (row_.source.vocab + block + row_.edits) * sizeof(int32_t)));
        int64_t size = members_of(descend(top, goal, before), members);
        while (size > leaf) {
            uint64_t differing = 0;
            const uint64_t one = order_key(row_.logit_of(members[0]));
            for (int64_t i = 1; i < size; i++) differing |= order_key(row_.logit_of(members[i])) ^ one;
            if (differing == 0) break;  // equals, in the order of their ids
            const int shift = std::max(64 - __builtin_clzll(differing) - digit_bits, 0);
            size = narrow_down(members, size, shift, goal, before);
        }
        return walk(members, size, goal, before);
    }

    // The float64 totals of all that is not edited.
    const Totals& totals() {
        top_digits();
        return totals_;
    }

private:
    static constexpr int64_t leaf = 2048;
    static constexpr int digit_bits = 9, digits = 1 << digit_bits;
    static constexpr double deepest = 40;  // nats that the first digits spread over; e^-40 is below any rounding

    struct Digits {
        Prefix at[digits + 1];  // the last takes what is hidden
    };

    // One more digit, below the bits that all members share: keeps those of the digit in which the target falls.
    int64_t narrow_down(int32_t* members, int64_t size, int shift, const Goal& goal, Prefix& before) {
        Digits& here = *(static_cast<Digits*>(scratch_.take(5, 2 * sizeof(Digits))) + 1);
        here = Digits{};
        const auto digit_of = [&](int32_t id) { return int(order_key(row_.logit_of(id)) >> shift & (digits - 1)); };
        for (int64_t i = 0; i < size; i++) here.at[digit_of(members[i])].add(row_.alone(row_.logit_of(members[i])));
        const int digit = descend(here, goal, before);
        int64_t kept = 0;
        for (int64_t i = 0; i < size; i++) {
            members[kept] = members[i];
            kept += digit_of(members[kept]) == digit;
        }
        return kept;
    }

    // Moves `before` to the digit in which the goal is met and returns it; the last with any weight, when beyond all.
    static int descend(const Digits& table, const Goal& goal, Prefix& before) {
        Prefix through = before;
        int last = -1;
        for (int digit = 0; digit < digits; digit++) {
            const Prefix& own = table.at[digit];
            if (own.count == 0) continue;
            if (last < 0 || goal.of(own) > 0) {
                last = digit;
                before = through;
            }
            through.add(own);
            if (goal.met(through)) break;
        }
        return last;
    }

    // The first digit: how far below the maximum, spread over the row's range or over what has any mass.
    int top_digit(double logit) const { return int(std::min((row_.max - logit) * spread_, double(digits - 1))); }

    void top_digits_of(const Real* logits, uint16_t* out) const {
        const double most = digits - 1;
        for (int i = 0; i < block; i++) {
            const double below = (row_.max - double(logits[i])) * spread_;
            const int32_t digit = int32_t(below < most ? below : most);
            out[i] = uint16_t(logits[i] > Source<T>::nothing ? digit : digits);
        }
    }

    // Every token summed by its first digit, which is kept for each; edited tokens after the row. Sums the row as well.
    const Digits& top_digits() {
        Digits* top = static_cast<Digits*>(scratch_.take(5, 2 * sizeof(Digits)));
        if (codes_) return *top;
        codes_ = static_cast<uint16_t*>(scratch_.take(8, row_.source.blocks() * block * sizeof(uint16_t)));
        *top = Digits{};
        spread_ = (digits - 1) / std::max(std::min(row_.max - row_.smallest(), deepest * row_.temperature), 1e-300);
        BlockSums sums;
        sweep64(row_.source, row_.max, row_.scale, [&](int64_t b, const Real* logits, const double* deltas, const double* masses) {
            uint16_t* own = codes_ + b * block;
            double energies[block];
            top_digits_of(logits, own);
            for (int i = 0; i < block; i++) energies[i] = -masses[i] * std::max(deltas[i], -1e6);
            for (int i = 0; i < block; i++) top->at[own[i]].add({1, masses[i], energies[i]});
            sums.add(deltas, masses);
        });
        for (int64_t i = 0; i < row_.edits; i++) top->at[top_digit(row_.edited[i].logit)].add(row_.alone(row_.edited[i].logit));
        totals_ = sums.totals();
        return *top;
    }

    int64_t members_of(int digit, int32_t* members) const {
        int64_t size = 0;
        for (int64_t begin = 0; begin < row_.source.blocks() * block; begin += 64) {
            int hits = 0;
            for (int64_t i = begin; i < begin + 64; i++) hits |= codes_[i] == digit;
            if (!hits) continue;
            for (int64_t i = begin; i < begin + 64; i++) {
                members[size] = int32_t(i);
                size += codes_[i] == digit;
            }
        }
        const int64_t plain = size;
        for (int64_t i = 0; i < row_.edits; i++) {
            members[size] = int32_t(row_.edited[i].id);
            size += top_digit(row_.edited[i].logit) == digit;
        }
        if (row_.places) std::sort(members + plain, members + size);
        std::inplace_merge(members, members + plain, members + size);
        return size;
    }

    // Sorts the few members left, or takes equals by id, and walks until the goal is met; past all, to the last of weight.
    Crossing walk(const int32_t* members, int64_t size, const Goal& goal, Prefix through) const {
        Candidate sorted[leaf];
        const bool equals = size > leaf;
        for (int64_t i = 0; i < (equals ? 1 : size); i++) sorted[i] = {row_.logit_of(members[i]), members[i]};
        if (!equals) std::sort(sorted, sorted + size, before);
        const Prefix alike = row_.alone(sorted[0].logit);
        Crossing last{{-1, 0, 0}, through};
        for (int64_t i = 0; i < size; i++) {
            const Candidate here = equals ? Candidate{sorted[0].logit, members[i]} : sorted[i];
            const double weight = goal.of(through);
            through.add(equals ? alike : row_.alone(here.logit));
            if (last.token.id < 0 || goal.of(through) > weight) last = {{here.id, here.logit, through.count - 1}, through};
            if (goal.met(through)) break;
        }
        return last;
    }

    const Tokens<T>& row_;
    Scratch& scratch_;
    uint16_t* codes_ = nullptr;  // each token's first digit
    double spread_ = 0;
    Totals totals_{};
};

}  // namespace logitd::LOGITD_ISA

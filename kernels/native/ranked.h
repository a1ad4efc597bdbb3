// A row along the total order (logit descending, token id ascending): its head, its totals, and prefixes of it.
//
// The head is a few sorted logits with running float64 sums. What lies beyond it is found by weighted radix selection on
// order-preserving 64-bit keys, linear in the row for any distribution. Whatever decides a token is float64; the float32
// sweep only reports, and where a decision falls within its error the totals are taken again in float64.
#pragma once

#include <algorithm>
#include <cmath>

#include "source.h"

namespace logitd::LOGITD_ISA {

struct Candidate {
    double logit;
    int64_t id;
};

inline bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

struct Prefix {
    int64_t count;
    double mass;
    double energy;

    double entropy() const { return std::max(0.0, std::log(mass) + energy / mass); }
    void add(const Prefix& more) {
        count += more.count;
        mass += more.mass;
        energy += more.energy;
    }
};

struct Token {
    int64_t id;
    double logit;
    int64_t rank;
};

struct Crossing {
    Token token;
    Prefix through;  // what ends with the token
};

// Keys that ascend as logits descend; -0.0 and 0.0 share one.
inline uint64_t order_key(double logit) {
    const double positive_zero = logit + 0.0;
    uint64_t bits;
    std::memcpy(&bits, &positive_zero, 8);
    return bits >> 63 ? bits : ~bits & 0x7fffffffffffffffu;
}

template <typename T>
class Ranked {
public:
    using Real = typename Source<T>::Real;

    Ranked(const Source<T>& source, const Overview<Real>& seen, Candidate* edited, int64_t edits, double temperature,
           Scratch& scratch)
        : source_(source), seen_(seen), edited_(edited), edits_(edits), temperature_(temperature), scale_(scale_of(temperature)), scratch_(scratch) {
        max_ = double(seen.largest);
        for (int64_t i = 0; i < edits; i++) max_ = std::max(max_, edited[i].logit);
        finite_ = seen.finite + edits;
    }

    double max() const { return max_; }
    int64_t finite() const { return finite_; }

    // The row's totals; their mass may be off by `error()` of itself until a decision needs more.
    Prefix everything() {
        if (!swept_) {
            if (finite_ == 1) {  // the sweep's smallest masses must not make this anything but certain
                totals_ = {1, 0};
                swept_ = true;
            } else if constexpr (std::is_same_v<T, double>) {
                exact();
            } else if (temperature_ < 1e-30 || temperature_ > 1e30) {
                exact();
            } else {
                approximate();
            }
        }
        return {finite_, totals_.mass, totals_.energy};
    }

    double error() const { return error_; }

    void exact() {
        if (swept_ && error_ == 0) return;
        if (too_long_) {
            top_digits();  // will be asked for, and sums the row on the way
        } else {
            take(totals64(source_, max_, scale_));
        }
    }

    // The largest logit, lowest id on ties.
    Token largest() {
        Candidate best{-std::numeric_limits<double>::infinity(), -1};
        for (int64_t i = 0; i < edits_; i++)
            if (best.id < 0 || before(edited_[i], best)) best = edited_[i];
        if (seen_.finite > 0 && double(seen_.largest) >= best.logit) {
            int64_t b = 0, i = 0;
            while (seen_.maxima[b] != seen_.largest) b++;
            Real buffer[block];
            const Real* logits = source_.read(b, buffer);
            while (logits[i] != seen_.largest) i++;
            const Candidate plain{double(seen_.largest), b * block + i};
            if (best.id < 0 || before(plain, best)) best = plain;
        }
        return {best.id, best.logit, 0};
    }

    Prefix first(int64_t count) {
        if (count >= finite_) return everything();
        if (widen_to_count(count)) return prefix(count);
        return cross(false, double(count), true).through;
    }

    Prefix above(double floor) {
        if (widen_to_floor(floor)) {
            int64_t count = 0;
            while (count < size_ && head_[count].logit >= floor) count++;
            return prefix(std::max<int64_t>(count, 1));
        }
        return sum_above(floor);
    }

    // The smallest prefix whose mass is at least `mass`.
    Prefix reaching(double mass) {
        if (widen_to_mass(mass)) return prefix(search(mass, true) + 1);
        const Prefix reached = cross(true, mass, true).through;
        if (reached.count < finite_) return reached;
        exact();
        return everything();
    }

    // The first token whose cumulative mass exceeds `mass`.
    Token at(double mass) {
        if (widen_to_mass(mass)) {
            const int64_t rank = search(mass, false);
            if (rank < size_) return token(rank);
        }
        return cross(true, mass, false).token;
    }

    // Whether a mass anywhere in [low, high] leads to the same token of the head, inclusive or not.
    bool settled(double low, double high, bool inclusive) {
        if (!widen_to_mass(high)) return false;
        const int64_t rank = search(low, inclusive);
        return rank < size_ && rank == search(high, inclusive);
    }

    Token ranked(int64_t rank) {
        if (widen_to_count(rank + 1)) return token(rank);
        return cross(false, double(rank + 1), true).token;
    }

private:
    static constexpr int64_t narrow = 64, widest = 1024, leaf = 2048;
    static constexpr int digit_bits = 9, digits = 1 << digit_bits;
    static constexpr double deepest = 40;  // nats that the first digits spread over; e^-40 is below any rounding

    struct Digits {
        Prefix at[digits + 1];  // the last takes what is hidden
    };

    double delta(double logit) const { return (logit - max_) * scale_; }

    // float32 lanes take M as a float; e^((m - M)/T) moves their sums to M itself.
    void approximate() {
        const double m = double(float(max_)), shift = (m - max_) * scale_, moved = std::exp(shift);
        totals_ = totals32(source_, m, scale_, error_);
        totals_ = {totals_.mass * moved, moved * (totals_.energy - shift * totals_.mass)};
        add_edited();
        swept_ = true;
    }

    // Takes float64 totals of the row.
    void take(const Totals& exact) {
        totals_ = exact;
        add_edited();
        error_ = 0;
        swept_ = true;
    }

    void add_edited() {
        for (int64_t i = 0; i < edits_; i++) {
            const Prefix one = alone(edited_[i].logit);
            totals_.mass += one.mass;
            totals_.energy += one.energy;
        }
    }

    Token token(int64_t rank) const { return {head_[rank].id, head_[rank].logit, rank}; }
    Prefix prefix(int64_t count) const { return {count, masses_[count - 1], energies_[count - 1]}; }
    bool complete() const { return size_ == finite_; }

    int64_t search(double mass, bool inclusive) const {
        int64_t low = 0, high = size_;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (inclusive ? masses_[middle] < mass : masses_[middle] <= mass) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    bool widen_to_count(int64_t count) {
        return widen(count, [&] { return size_ >= count; });
    }
    bool widen_to_floor(double floor) {
        return widen(narrow, [&] { return size_ > 0 && head_[size_ - 1].logit < floor; });
    }
    bool widen_to_mass(double mass) {
        return widen(narrow, [&] { return size_ > 0 && masses_[size_ - 1] > mass; });
    }

    // Grows the head until `enough`, the row is exhausted, or the head would be long; true when it answers.
    template <typename Enough>
    bool widen(int64_t count, Enough enough) {
        if (size_ > 0 && (enough() || complete())) return true;
        if (count > widest || too_long_) return false;
        if (size_ < count) collect(std::min(std::max(count, narrow), source_.blocks()));
        for (double window = 2; !enough() && !complete(); window *= 2) {
            if (window > 64 || !collect_above(head_[size_ - 1].logit - window * temperature_)) {
                too_long_ = true;
                return false;
            }
        }
        return true;
    }

    // The `count` largest, at most one a block: what reaches the count-th largest block maximum holds them, and fewer
    // than `count` blocks hold anything above it.
    void collect(int64_t count) {
        const int64_t blocks = source_.blocks();
        Real* sorted = static_cast<Real*>(scratch_.take(1, blocks * sizeof(Real)));
        std::memcpy(sorted, seen_.maxima, blocks * sizeof(Real));
        std::nth_element(sorted, sorted + count - 1, sorted + blocks, [](Real a, Real b) { return a > b; });
        const Real floor = sorted[count - 1];
        int32_t* ids = room();
        int64_t size = 0, ties = 0;
        scan(floor, [&](int64_t id, Real logit) {
            const bool tie = logit == floor && ties < count;
            ids[size] = int32_t(id);
            size += logit > floor || tie;
            ties += tie;
            return true;
        });
        for (int64_t i = 0; i < edits_; i++) ids[size++] = int32_t(edited_[i].id);
        if (size > count && (size != finite_ || size > widest)) {  // a short row is its own head
            std::nth_element(ids, ids + count, ids + size, [this](int32_t a, int32_t b) {
                return before({logit_of(a), a}, {logit_of(b), b});
            });
            size = count;
        }
        order(ids, size);
    }

    // Everything at or above a floor, unless that is too much for a head.
    bool collect_above(double floor) {
        int32_t* ids = room();
        int64_t size = 0;
        const bool fits = scan(not_below(floor), [&](int64_t id, Real) {
            ids[size++] = int32_t(id);
            return size <= widest;
        });
        if (!fits) return false;
        for (int64_t i = 0; i < edits_; i++) {
            ids[size] = int32_t(edited_[i].id);
            size += edited_[i].logit >= floor;
        }
        if (size > widest) return false;
        order(ids, size);
        return true;
    }

    // The smallest number of the row's precision that is at least `floor`, so that comparing rounds nothing.
    static Real not_below(double floor) {
        const Real rounded = Real(std::max(floor, -double(std::numeric_limits<Real>::max())));
        return double(rounded) >= floor ? rounded : std::nextafter(rounded, std::numeric_limits<Real>::infinity());
    }

    // Calls use(id, logit) for every finite token at or above a floor, by ascending id, until it answers false.
    template <typename Use>
    bool scan(Real floor, Use use) {
        Real buffer[block];
        for (int64_t b = 0; b < source_.blocks(); b++) {
            if (seen_.maxima[b] < floor || seen_.maxima[b] == Source<T>::nothing) continue;
            if constexpr (!std::is_same_v<T, double>) {
                if (source_.direct(b)) {
                    if (!scan_block(source_.at(b), b, floor, use)) return false;
                    continue;
                }
            }
            if (!scan_block(source_.read(b, buffer), b, floor, use)) return false;
        }
        return true;
    }

    template <typename P, typename Use>
    static bool scan_block(const P* logits, int64_t b, Real floor, Use& use) {
        constexpr int step = std::is_same_v<P, double> ? 16 : width;
        for (int i = 0; i < block; i += step) {
            if constexpr (!std::is_same_v<P, double>) {
                if (!any(logitd::LOGITD_ISA::not_below(load(logits + i), splat(floor)))) continue;
            }
            for (int j = i; j < i + step; j++) {
                const Real logit = scalar(logits[j]);
                if (logit >= floor && logit > Source<T>::nothing && !use(b * block + j, logit)) return false;
            }
        }
        return true;
    }

    int32_t* room() {
        return static_cast<int32_t*>(scratch_.take(4, (source_.vocab + block + edits_) * sizeof(int32_t)));
    }

    // Makes tokens the head: sorted, with running sums.
    void order(const int32_t* ids, int64_t size) {
        head_ = static_cast<Candidate*>(scratch_.take(2, size * sizeof(Candidate)));
        for (int64_t i = 0; i < size; i++) head_[i] = {logit_of(ids[i]), ids[i]};
        std::sort(head_, head_ + size, before);
        masses_ = static_cast<double*>(scratch_.take(3, 2 * size * sizeof(double)));
        energies_ = masses_ + size;
        double mass = 0, energy = 0;
        for (int64_t i = 0; i < size; i++) {
            const double d = delta(head_[i].logit), one = exp(d);
            masses_[i] = mass += one;
            energies_[i] = energy -= one * std::max(d, -1e6);
        }
        size_ = size;
    }

    // Every token with a logit of at least `floor`, summed over the whole row.
    Prefix sum_above(double floor) {
        BlockSums sums;
        Prefix edited{0, 0, 0};
        int64_t count = 0;
        for (int64_t i = 0; i < edits_; i++)
            if (edited_[i].logit >= floor) edited.add(alone(edited_[i].logit));
        sweep64(source_, max_, scale_, [&](int64_t, const Real* logits, double* deltas, double* masses) {
            int64_t own = 0;
            for (int64_t i = 0; i < block; i++) {
                const bool kept = double(logits[i]) >= floor;
                own += kept;
                masses[i] = kept ? masses[i] : 0.0;
            }
            count += own;
            sums.add(deltas, masses);
        });
        const Totals totals = sums.totals();
        edited.add({count, totals.mass, totals.energy});
        if (edited.count < finite_) return edited;
        exact();
        return everything();
    }

    // Where the running count or mass along the total order reaches a target (or passes it, when not inclusive).
    Crossing cross(bool weighted, double target, bool inclusive) {
        const Goal goal{weighted, target, inclusive};
        const Digits& top = top_digits();
        Prefix before{0, 0, 0};
        int32_t* members = room();
        int64_t size = members_of(descend(top, goal, before), members);
        while (size > leaf) {
            uint64_t differing = 0;
            const uint64_t one = order_key(logit_of(members[0]));
            for (int64_t i = 1; i < size; i++) differing |= order_key(logit_of(members[i])) ^ one;
            if (differing == 0) break;  // equals, in the order of their ids
            const int shift = std::max(64 - __builtin_clzll(differing) - digit_bits, 0);
            size = narrow_down(members, size, shift, goal, before);
        }
        return walk(members, size, goal, before);
    }

    struct Goal {
        bool weighted;
        double target;
        bool inclusive;

        double of(const Prefix& one) const { return weighted ? one.mass : double(one.count); }
        bool met(const Prefix& through) const { return inclusive ? of(through) >= target : of(through) > target; }
    };

    // One more digit, below the bits that all members share: keeps those of the digit in which the target falls.
    int64_t narrow_down(int32_t* members, int64_t size, int shift, const Goal& goal, Prefix& before) {
        Digits& here = *(static_cast<Digits*>(scratch_.take(5, 2 * sizeof(Digits))) + 1);
        here = Digits{};
        const auto digit_of = [&](int32_t id) { return int(order_key(logit_of(id)) >> shift & (digits - 1)); };
        for (int64_t i = 0; i < size; i++) here.at[digit_of(members[i])].add(alone(logit_of(members[i])));
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

    // One token as a prefix; what has no mass has no energy.
    Prefix alone(double logit) const {
        const double d = delta(logit), mass = exp(d);
        return {1, mass, -mass * std::max(d, -1e6)};
    }

    // The first digit: how far below the maximum, spread over the row's range or over what has any mass.
    int top_digit(double logit) const { return int(std::min((max_ - logit) * spread_, double(digits - 1))); }

    void top_digits_of(const Real* logits, uint16_t* out) const {
        const double most = digits - 1;
        for (int i = 0; i < block; i++) {
            const double below = (max_ - double(logits[i])) * spread_;
            const int32_t digit = int32_t(below < most ? below : most);
            out[i] = uint16_t(logits[i] > Source<T>::nothing ? digit : digits);
        }
    }

    // Every token summed by its first digit, which is kept for each; edited tokens after the row. Sums the row as well.
    const Digits& top_digits() {
        Digits* top = static_cast<Digits*>(scratch_.take(5, 2 * sizeof(Digits)));
        if (codes_) return *top;
        codes_ = static_cast<uint16_t*>(scratch_.take(8, source_.blocks() * block * sizeof(uint16_t)));
        *top = Digits{};
        spread_ = (digits - 1) / std::max(std::min(max_ - smallest(), deepest * temperature_), 1e-300);
        BlockSums sums;
        sweep64(source_, max_, scale_, [&](int64_t b, const Real* logits, const double* deltas, const double* masses) {
            uint16_t* own = codes_ + b * block;
            double energies[block];
            top_digits_of(logits, own);
            for (int i = 0; i < block; i++) energies[i] = -masses[i] * std::max(deltas[i], -1e6);
            for (int i = 0; i < block; i++) top->at[own[i]].add({1, masses[i], energies[i]});
            sums.add(deltas, masses);
        });
        for (int64_t i = 0; i < edits_; i++) top->at[top_digit(edited_[i].logit)].add(alone(edited_[i].logit));
        take(sums.totals());
        return *top;
    }

    double smallest() const {
        double least = max_;
        for (int64_t i = 0; i < edits_; i++) least = std::min(least, edited_[i].logit);
        if (seen_.smallest > Source<T>::nothing) return std::min(least, double(seen_.smallest));
        Real buffer[block];
        for (int64_t b = 0; b < source_.blocks(); b++) {
            const Real* logits = source_.read(b, buffer);
            Real own = seen_.largest;
            for (int i = 0; i < block; i++) own = (logits[i] > Source<T>::nothing) & (logits[i] < own) ? logits[i] : own;
            least = std::min(least, double(own));
        }
        return least;
    }

    int64_t members_of(int digit, int32_t* members) const {
        int64_t size = 0;
        for (int64_t begin = 0; begin < source_.blocks() * block; begin += 64) {
            int hits = 0;
            for (int64_t i = begin; i < begin + 64; i++) hits |= codes_[i] == digit;
            if (!hits) continue;
            for (int64_t i = begin; i < begin + 64; i++) {
                members[size] = int32_t(i);
                size += codes_[i] == digit;
            }
        }
        for (int64_t i = 0; i < edits_; i++) {
            members[size] = int32_t(edited_[i].id);
            size += top_digit(edited_[i].logit) == digit;
        }
        if (edits_ > 0) std::sort(members, members + size, [](int32_t a, int32_t b) { return a < b; });
        return size;
    }

    // Sorts the few members left, or takes equals by id, and walks until the goal is met; past all, to the last of weight.
    Crossing walk(const int32_t* members, int64_t size, const Goal& goal, Prefix through) const {
        Candidate sorted[leaf];
        const bool equals = size > leaf;
        for (int64_t i = 0; i < (equals ? 1 : size); i++) sorted[i] = {logit_of(members[i]), members[i]};
        if (!equals) std::sort(sorted, sorted + size, before);
        const Prefix alike = alone(sorted[0].logit);
        Crossing last{{-1, 0, 0}, through};
        for (int64_t i = 0; i < size; i++) {
            const Candidate here = equals ? Candidate{sorted[0].logit, members[i]} : sorted[i];
            const double weight = goal.of(through);
            through.add(equals ? alike : alone(here.logit));
            if (last.token.id < 0 || goal.of(through) > weight) last = {{here.id, here.logit, through.count - 1}, through};
            if (goal.met(through)) break;
        }
        return last;
    }

    double logit_of(int64_t id) const {
        if (edits_ > 0 && !source_.allowed(id)) {
            int64_t low = 0, high = edits_ - 1;
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (edited_[middle].id < id) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            return edited_[low].logit;
        }
        return double(source_.raw(id));
    }

    const Source<T>& source_;
    const Overview<Real>& seen_;
    Candidate* edited_;  // tokens with a finite bias, by id; `source_` hides them
    int64_t edits_;
    double temperature_, scale_;
    Scratch& scratch_;
    double max_;
    int64_t finite_;

    bool swept_ = false;
    Totals totals_{};
    double error_ = 0;
    uint16_t* codes_ = nullptr;  // each token's first digit
    double spread_ = 0;

    bool too_long_ = false;
    Candidate* head_ = nullptr;
    double* masses_ = nullptr;
    double* energies_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace logitd::LOGITD_ISA

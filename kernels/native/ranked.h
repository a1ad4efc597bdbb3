// A row along the total order: its totals, and prefixes of it, from the head where that is deep enough, else by radix
// selection. Whatever decides a token is float64; the float32 sweep only reports, and where a decision falls within its
// error the totals are taken again in float64.
#pragma once

#include "head.h"
#include "radix.h"

namespace logitd::LOGITD_ISA {

template <typename T>
class Ranked {
public:
    using Real = typename Source<T>::Real;

    Ranked(const Tokens<T>& row, Scratch& scratch) : row_(row), head_(row, scratch), radix_(row, scratch) {}

    // The row's totals; their mass may be off by `error()` of itself until a decision needs more.
    Prefix everything() {
        if (!swept_) {
            if (row_.finite == 1) {  // the sweep's smallest masses must not make this anything but certain
                totals_ = {1, 0};
                swept_ = true;
            } else if constexpr (std::is_same_v<T, double>) {
                exact();
            } else if (row_.temperature < 1e-30 || row_.temperature > 1e30) {
                exact();
            } else {
                approximate();
            }
        }
        return {row_.finite, totals_.mass, totals_.energy};
    }

    double error() const { return error_; }
    bool rough(const Prefix& kept) const { return kept.count == row_.finite && error_ > 0; }

    void exact() {
        if (swept_ && error_ == 0) return;
        if (head_.too_long()) {
            take(radix_.totals());  // it will be asked, and sums the row on the way
        } else {
            take(totals64(row_.source, row_.max, row_.scale));
        }
    }

    Prefix first(int64_t count) {
        if (count >= row_.finite) return everything();
        if (head_.widen_to_count(count)) return head_.prefix(count);
        return radix_.cross({false, double(count), true}).through;
    }

    Prefix above(double floor) {
        if (head_.widen_to_floor(floor)) {
            int64_t count = 0;
            while (count < head_.size() && head_.logit(count) >= floor) count++;
            return head_.prefix(std::max<int64_t>(count, 1));
        }
        return sum_above(floor);
    }

    // The smallest prefix whose mass is at least `mass`.
    Prefix reaching(double mass) {
        if (head_.widen_to_mass(mass)) return head_.prefix(head_.search(mass, true) + 1);
        const Prefix reached = radix_.cross({true, mass, true}).through;
        if (reached.count < row_.finite) return reached;
        exact();
        return everything();
    }

    // The first token whose cumulative mass exceeds `mass`.
    Token at(double mass) {
        if (head_.widen_to_mass(mass)) {
            const int64_t rank = head_.search(mass, false);
            if (rank < head_.size()) return head_.token(rank);
        }
        return radix_.cross({true, mass, false}).token;
    }

    // Whether a mass anywhere in [low, high] leads to the same token of the head, inclusive or not.
    bool settled(double low, double high, bool inclusive) {
        if (!head_.widen_to_mass(high)) return false;
        const int64_t rank = head_.search(low, inclusive);
        return rank < head_.size() && rank == head_.search(high, inclusive);
    }

    Token ranked(int64_t rank) {
        if (head_.widen_to_count(rank + 1)) return head_.token(rank);
        return radix_.cross({false, double(rank + 1), true}).token;
    }

private:
    // float32 lanes take M as a float; e^((m - M)/T) moves their sums to M itself. An edit can make M too large for that.
    void approximate() {
        const double m = double(float(row_.max)), shift = (m - row_.max) * row_.scale, moved = std::exp(shift);
        if (!(std::abs(shift) < 1)) return exact();
        totals_ = totals32(row_.source, m, row_.scale, error_);
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
        if (row_.edits == 0) return;
        const Totals more = row_.edited_totals();
        totals_.mass += more.mass;
        totals_.energy += more.energy;
    }

    // Every token with a logit of at least `floor`, summed over the whole row.
    Prefix sum_above(double floor) {
        BlockSums sums;
        Prefix edited{0, 0, 0};
        int64_t count = 0;
        for (int64_t i = 0; i < row_.edits; i++)
            if (row_.edited[i].logit >= floor) edited.add(row_.alone(row_.edited[i].logit));
        sweep64(row_.source, row_.max, row_.scale, [&](int64_t, const Real* logits, double* deltas, double* masses) {
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
        if (edited.count < row_.finite) return edited;
        exact();
        return everything();
    }

    const Tokens<T>& row_;
    Head<T> head_;
    Radix<T> radix_;
    bool swept_ = false;
    Totals totals_{};
    double error_ = 0;
};

}  // namespace logitd::LOGITD_ISA

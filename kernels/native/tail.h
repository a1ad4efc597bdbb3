// What a head and log Z say about the tail that was not sent: logitd_kernels/tail.py, operation by operation, so that
// both have the same bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace logitd {

// A closed interval; of logs, so that `low` may be -inf.
struct Interval {
    double low, high;

    // Intersects; rounding may leave the two a hair apart, then the gap itself is the answer.
    Interval meet(const Interval& other) const {
        const double most = std::max(low, other.low), least = std::min(high, other.high);
        return most <= least ? Interval{most, least} : Interval{least, most};
    }
};

// The tail of one row: at most `count` tokens, each logit <= `ceiling` (relative to the row's maximum).
class Tail {
public:
    int64_t count = 0;
    double ceiling = 0;

    void start(int64_t tokens, double largest) {
        count = tokens;
        ceiling = largest;
        known_.clear();
    }

    // Learns log Z (of the whole row, unshifted) at one temperature, where the head's own mass is `head` and its last
    // (x - M)/T is `last`; false when log Z cannot belong to this head.
    bool learn(double log_z, bool is_float32, double temperature, double max, double head, double last) {
        if (!std::isfinite(log_z)) return false;
        const double shift = max / temperature;
        const double margin = slack_of_sums + (is_float32 ? 0x1p-24 : 0x1p-50) * (std::fabs(log_z) + std::fabs(shift));
        const double whole = std::exp(std::min(log_z - shift, 700.0));
        const double slack = std::expm1(std::min(margin, 700.0)) * (whole + head);
        const double log_capacity = count ? std::log(double(count)) + last : nothing;
        const double rest = whole - head;
        if (rest + slack < 0 || rest - slack > std::exp(log_capacity) * (1 + slack_of_sums)) return false;
        remember(beta_of(temperature), {log_of(rest - slack), std::min(log_of(rest + slack), log_capacity)});
        return true;
    }

    // The interval of log R_T, R_T the sum of the tail's e^(z/T).
    Interval log_mass(double temperature) const {
        if (count == 0) return {nothing, nothing};
        const double beta = beta_of(temperature);
        for (const Known& one : known_)
            if (one.beta == beta) return one.log_r;
        Interval bound{nothing, std::log(double(count)) + ceiling * beta};
        for (const Known& one : known_) bound = bound.meet(carried(one, beta));
        for (const Known& a : known_)
            for (const Known& b : known_)
                if (&a != &b) bound = bound.meet(chord(a, b, beta));
        return bound;
    }

    // The interval of the tail's energy at a given mass: all at `highest` (a ceiling <= 0), or all alike.
    Interval energy_bounds(double mass, double temperature, double highest) const {
        if (count == 0 || mass <= 0) return {0, 0};
        const double low = mass * -highest / temperature;
        return {low, std::max(low, mass * std::log(double(count) / mass))};
    }

private:
    struct Known {
        double beta;
        Interval log_r;
    };

    static constexpr double slack_of_sums = 0x1p-22;  // of float32 sums, on either side of the wire
    static constexpr double infinity = std::numeric_limits<double>::infinity(), nothing = -infinity;

    static double beta_of(double temperature) { return std::min(1 / temperature, std::numeric_limits<double>::max()); }
    static double log_of(double value) { return value > 0 ? std::log(value) : nothing; }

    void remember(double beta, const Interval& log_r) {
        for (Known& one : known_)
            if (one.beta == beta) {
                one.log_r = log_r;
                return;
            }
        known_.push_back({beta, log_r});
    }

    // log R carried from one temperature to another: by Jensen's inequality, and with every tail logit at the ceiling.
    Interval carried(const Known& sent, double beta) const {
        const double ratio = beta / sent.beta, log_n = std::log(double(count));
        const auto jensen = [&](double value) { return log_n + ratio * (value - log_n); };
        const auto capped = [&](double value) { return value + ceiling * (beta - sent.beta); };
        if (ratio >= 1) return {jensen(sent.log_r.low), capped(sent.log_r.high)};
        return {capped(sent.log_r.low), jensen(sent.log_r.high)};
    }

    // A convex function at `beta`, bounded by the line through its values at a and b.
    static Interval chord(const Known& a, const Known& b, double beta) {
        const double share = (beta - a.beta) / (b.beta - a.beta);
        if (0 < share && share < 1) return {nothing, a.log_r.high * (1 - share) + b.log_r.high * share};
        if (share > 1 && b.log_r.low > nothing && nothing < a.log_r.high)
            return {b.log_r.low + (b.log_r.low - a.log_r.high) * (share - 1), infinity};
        return {nothing, infinity};
    }

    std::vector<Known> known_;
};

}  // namespace logitd

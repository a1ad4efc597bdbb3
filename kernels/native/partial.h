// The hot chain on a row of which only the head is known, at both ends of what its tail may weigh: sampling/partial.py
// and select/partial.py, operation by operation, so that both have the same bits.
#pragma once

#include <functional>

#include "tail.h"

namespace logitd {

// A head to sample, with the names and the layout of HEAD_REQUEST in logitd_kernels/hot_heads.py.
struct HeadRequest {
    int64_t row, plane;
    double temperature, min_p;
    int64_t top_k;
    double top_p, uniform;
    bool ties_all;
};

// Why a head has no answer here, by the names in logitd_kernels/hot_heads.py.
enum class HeadStatus : int32_t {
    ok,
    elsewhere,
    needs_first,
    needs_head,
    needs_floor,
    needs_mass,
    needs_draw,
    token,
    kept,
};

// As HEAD_ANSWER; a number that the tail leaves open is NaN, such a count -1.
struct HeadAnswer {
    HeadStatus status;
    int64_t token;
    double logprob, entropy, entropy_kept;
    int64_t kept;
    double kept_mass;
    int64_t asked, certain;  // where `status` is about them
    double floor;
};

// A running prefix of the total order: see logitd_kernels/head.py.
struct HeadPrefix {
    int64_t count;
    double mass, energy;

    double entropy() const { return std::max(0.0, std::log(mass) + energy / mass); }
};

// The finite part of a head at one temperature, with running sums.
struct KnownHead {
    const double* logits;  // [size], descending
    const double* masses;  // [size], running
    const double* energies;
    int64_t size;
    int64_t tail_count;

    HeadPrefix prefix(int64_t count) const { return {count, masses[count - 1], energies[count - 1]}; }
    bool complete() const { return tail_count == 0; }
};

struct HeadDraw {
    int64_t rank;
    double logprob;
    HeadPrefix everything, kept;
};

class HeadChain {
public:
    HeadChain(const KnownHead& head, const HeadRequest& asked, HeadAnswer& answer)
        : head_(head), asked_(asked), answer_(answer) {}

    // Truncates and draws with one assumed mass of the tail.
    HeadStatus run(double tail_mass, HeadDraw& drawn) {
        HeadPrefix& kept = drawn.kept;
        kept = head_.prefix(head_.size);
        kept.count += head_.tail_count;
        kept.mass += tail_mass;
        drawn.everything = kept;
        HeadStatus status = HeadStatus::ok;
        if (asked_.min_p != 0) status = cut_above(head_.logits[0] + asked_.temperature * std::log(asked_.min_p), kept);
        if (status == HeadStatus::ok && asked_.top_k > 0 && asked_.top_k < kept.count) status = cut_top_k(kept);
        if (status == HeadStatus::ok && asked_.top_p != 1) status = cut_reaching(asked_.top_p * kept.mass, kept);
        return status == HeadStatus::ok ? draw(drawn) : status;
    }

private:
    static void shorten(HeadPrefix& kept, const HeadPrefix& other) {
        if (other.count < kept.count) kept = other;
    }

    HeadStatus cut_above(double floor, HeadPrefix& kept) {
        const double* end = head_.logits + head_.size;
        const int64_t count = std::upper_bound(head_.logits, end, floor, std::greater<double>()) - head_.logits;
        if (count == head_.size && !head_.complete()) {
            answer_.floor = floor;
            return HeadStatus::needs_floor;
        }
        shorten(kept, head_.prefix(std::max<int64_t>(count, 1)));
        return HeadStatus::ok;
    }

    HeadStatus cut_top_k(HeadPrefix& kept) {
        if (asked_.top_k > head_.size) {  // of a head with a tail: else no more than the head is kept
            answer_.asked = asked_.top_k;
            answer_.certain = head_.size;
            return asked_.ties_all ? HeadStatus::needs_head : HeadStatus::needs_first;
        }
        if (asked_.ties_all) return cut_above(head_.logits[asked_.top_k - 1], kept);
        kept = head_.prefix(asked_.top_k);
        return HeadStatus::ok;
    }

    HeadStatus cut_reaching(double mass, HeadPrefix& kept) {
        const int64_t index = std::lower_bound(head_.masses, head_.masses + head_.size, mass) - head_.masses;
        if (index >= head_.size && !head_.complete()) return HeadStatus::needs_mass;
        shorten(kept, head_.prefix(std::min(index + 1, head_.size)));
        return HeadStatus::ok;
    }

    HeadStatus draw(HeadDraw& drawn) {
        const HeadPrefix& kept = drawn.kept;
        const double *begin = head_.masses, *end = begin + head_.size;
        const double below = std::nextafter(kept.mass, 0.0);  // u rounds to 1 once in 2^53 draws
        int64_t rank = std::upper_bound(begin, end, std::min(asked_.uniform * kept.mass, below)) - begin;
        if (rank >= head_.size) {
            if (!head_.complete()) return HeadStatus::needs_draw;
            rank = std::lower_bound(begin, end, end[-1]) - begin;
        }
        drawn.rank = std::min(rank, kept.count - 1);
        const double delta = (head_.logits[drawn.rank] - head_.logits[0]) / asked_.temperature;
        drawn.logprob = std::min(0.0, delta - std::log(kept.mass));
        return HeadStatus::ok;
    }

    const KnownHead& head_;
    const HeadRequest& asked_;
    HeadAnswer& answer_;
};

// The middle of what the two ends say, NaN when they leave it open.
inline double settled(double a, double b) {
    const double low = std::min(a, b), high = std::max(a, b);
    return high - low <= 1e-3 ? (low + high) / 2 : std::numeric_limits<double>::quiet_NaN();
}

// Bounds the entropy of the whole row over every tail in the interval.
inline Interval entropy_of(const KnownHead& head, const Tail& tail, const Interval& mass, double temperature,
                           const HeadPrefix& low, const HeadPrefix& high) {
    const double e = 2.718281828459045, max = head.logits[0];
    const double fattest = std::min(mass.high, std::max(mass.low, double(tail.count) / e));
    const double highest = std::min(max + tail.ceiling - max, 0.0);
    const Interval first = tail.energy_bounds(mass.low, temperature, highest);
    const Interval second = tail.energy_bounds(mass.high, temperature, highest);
    const Interval third = tail.energy_bounds(fattest, temperature, highest);
    const double least = std::min(std::min(first.low, second.low), third.low);
    const double most = std::max(std::max(first.high, second.high), third.high);
    return {std::log(low.mass) + (low.energy + least) / high.mass, std::log(high.mass) + (high.energy + most) / low.mass};
}

// The interval of the tail's mass relative to the row's largest logit.
inline Interval tail_mass(const Tail& tail, double temperature) {
    if (tail.count == 0) return {0, 0};
    const auto mass = [](double log) { return std::exp(std::min(log, 700.0)); };
    const Interval log_r = tail.log_mass(temperature);
    return {std::max(0.0, mass(log_r.low)), std::min(mass(log_r.high), double(tail.count) * mass(tail.ceiling / temperature))};
}

// Answers with a temperature > 0. `finite` is the row's own count of finite logits, -1 when unknown.
inline void sample_head(const KnownHead& head, const Tail& tail, int64_t finite, const HeadRequest& asked, HeadAnswer& answer) {
    const Interval mass = tail_mass(tail, asked.temperature);
    const double slack = 0x1p-40 * (head.masses[head.size - 1] + mass.high);  // of the dense sum, however it was added
    HeadChain chain(head, asked, answer);
    HeadDraw low, high;
    answer.status = chain.run(mass.low - std::min(slack, 0.5), low);
    if (answer.status == HeadStatus::ok) answer.status = chain.run(mass.high + slack, high);
    if (answer.status != HeadStatus::ok) return;
    if (low.rank != high.rank) {
        answer.status = HeadStatus::token;
        return;
    }
    if (low.kept.count != high.kept.count) {
        answer.status = HeadStatus::kept;
        return;
    }
    const Interval entropy = entropy_of(head, tail, mass, asked.temperature, low.everything, high.everything);
    const bool whole = low.kept.count == low.everything.count && low.kept.count != 1;  // nothing was cut: the tail is kept
    answer.logprob = settled(low.logprob, high.logprob);
    answer.entropy = settled(std::max(0.0, entropy.low), std::max(0.0, entropy.high));
    answer.entropy_kept = whole ? settled(std::max(0.0, entropy.low), entropy.high) : low.kept.entropy();
    answer.kept = whole ? finite : low.kept.count;
    const auto share = [](const HeadDraw& drawn) { return std::min(1.0, drawn.kept.mass / drawn.everything.mass); };
    answer.kept_mass = settled(share(low), share(high));
    answer.token = low.rank;
}

}  // namespace logitd

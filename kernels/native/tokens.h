// What a row's tokens are and weigh, edited ones among them; and the row in the total order (logit descending, token id
// ascending): candidates, tokens with their ranks, prefixes.
#pragma once

#include <algorithm>
#include <cmath>

#include "overview.h"
#include "sweep.h"

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

template <typename T>
struct Tokens {
    using Real = typename Source<T>::Real;

    const Source<T>& source;
    const Overview<Real>& seen;
    const Candidate* edited;  // tokens with an edit that leaves them; `source` hides them
    int64_t edits;
    const uint32_t* places;  // of each token in `edited`, counted from 1; null where these are by ascending id
    double temperature;
    double scale;
    double max;
    int64_t finite;

    Tokens(const Source<T>& source, const Overview<Real>& seen, const Candidate* edited, int64_t edits, const uint32_t* places,
           double temperature)
        : source(source), seen(seen), edited(edited), edits(edits), places(places), temperature(temperature),
          scale(scale_of(temperature)), max(largest_logit(seen, edited, edits)), finite(seen.finite + edits) {}

    // In eight lanes: one would wait for itself at every edit.
    static double largest_logit(const Overview<Real>& seen, const Candidate* edited, int64_t edits) {
        constexpr int lanes = 8;
        double tops[lanes];
        std::fill_n(tops, lanes, double(seen.largest));
        for (int64_t i = 0; i < edits / lanes * lanes; i += lanes)
            for (int j = 0; j < lanes; j++) tops[j] = std::max(tops[j], edited[i + j].logit);
        for (int64_t i = edits / lanes * lanes; i < edits; i++) tops[0] = std::max(tops[0], edited[i].logit);
        return *std::max_element(tops, tops + lanes);
    }

    double delta(double logit) const { return (logit - max) * scale; }

    // One token as a prefix; what has no mass has no energy.
    Prefix alone(double logit) const {
        const double d = delta(logit), mass = exp(d);
        return {1, mass, -mass * std::max(d, -1e6)};
    }

    // Mass and energy of all edited tokens.
    Totals edited_totals() const {
        BlockSums sums;
        alignas(64) double deltas[block], masses[block];
        for (int64_t begin = 0; begin < edits; begin += block) {
            const int64_t count = std::min<int64_t>(block, edits - begin);
            for (int64_t i = 0; i < count; i++) deltas[i] = delta(edited[begin + i].logit);
            for (int64_t i = count; i < block; i++) deltas[i] = -std::numeric_limits<double>::infinity();
            exponentials(deltas, masses);
            sums.add(deltas, masses);
        }
        return sums.totals();
    }

    double logit_of(int64_t id) const {
        if (edits > 0 && !source.allowed(id)) {
            if (places) return edited[places[id] - 1].logit;
            int64_t low = 0, high = edits - 1;
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (edited[middle].id < id) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            return edited[low].logit;
        }
        return double(source.raw(id));
    }

    double smallest() const {
        double least = max;
        for (int64_t i = 0; i < edits; i++) least = std::min(least, edited[i].logit);
        if (seen.smallest > Source<T>::nothing) return std::min(least, double(seen.smallest));
        Real buffer[block];
        for (int64_t b = 0; b < source.blocks(); b++) {
            const Real* logits = source.read(b, buffer);
            Real own = seen.largest;
            for (int i = 0; i < block; i++) own = (logits[i] > Source<T>::nothing) & (logits[i] < own) ? logits[i] : own;
            least = std::min(least, double(own));
        }
        return least;
    }

    // The largest logit, lowest id on ties.
    Token largest() const {
        Candidate best{-std::numeric_limits<double>::infinity(), -1};
        for (int64_t i = 0; i < edits; i++)
            if (best.id < 0 || before(edited[i], best)) best = edited[i];
        if (seen.finite > 0 && double(seen.largest) >= best.logit) {
            int64_t b = 0, i = 0;
            while (seen.maxima[b] != seen.largest) b++;
            Real buffer[block];
            const Real* logits = source.read(b, buffer);
            while (logits[i] != seen.largest) i++;
            const Candidate plain{double(seen.largest), b * block + i};
            if (best.id < 0 || before(plain, best)) best = plain;
        }
        return {best.id, best.logit, 0};
    }
};

}  // namespace logitd::LOGITD_ISA

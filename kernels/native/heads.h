// One head of a batch at a time: from the exponentials of its logits to an answer.
#pragma once

#include <optional>

#include "matrix.h"
#include "partial.h"

namespace logitd {

// What is known of the heads of a batch beside their logits.
struct KnownOfHeads {
    Matrix log_z;  // [rows, temperatures]
    const double* temperatures;
    int64_t count;
    std::optional<Matrix> finite_counts;  // [rows, 1]
    int64_t vocab;
};

// Writes (x - M)/T of a row's logits.
inline void deltas_of(const std::vector<double>& logits, double temperature, double* out) {
    const int64_t size = int64_t(logits.size());
    const double max = logits[0];
    for (int64_t j = 0; j < size; j++) {
        const double delta = logits[j] - max;
        out[j] = delta <= 0 ? delta : 0;  // a bad row's may be anything
    }
    if (temperature != 1)
        for (int64_t j = 0; j < size; j++) out[j] /= temperature;
}

class Heads {
public:
    Heads(const KnownOfHeads& known, int64_t size) : logits(size), known_(known), sums_(2 * size) {}

    std::vector<double> logits;  // of the row in question

    // Answers one request with the token's rank, or leaves it to the formulas. `deltas` and `masses` [planes, size] are
    // of its row.
    void answer(const HeadRequest& asked, const double* deltas, const double* masses, HeadAnswer& answer) {
        answer = {HeadStatus::elsewhere, -1, 0, 0, 0, -1, 0, 0, 0, 0};
        const double max = logits[0];
        const int64_t size = int64_t(logits.size());
        int64_t numbers = 0, finite = 0;
        for (double x : logits) {
            numbers += x == x;
            finite += x > -std::numeric_limits<double>::infinity();
        }
        if (!std::isfinite(max) || numbers < size) return;
        const bool told = finite < size || known_.finite_counts;  // a head with -inf in it holds all that is finite
        int64_t whole = finite;
        if (finite == size) whole = told ? known_.finite_counts->whole(asked.row, 0) : known_.vocab;
        if (whole < finite || whole > known_.vocab) return;
        tail_.start(whole - finite, logits[finite - 1] - max);
        const int64_t other = asked.plane == 0 ? known_.count - 1 : 0;
        const double others = sum(deltas + asked.plane * size, masses + asked.plane * size, masses + other * size, finite);
        for (int64_t k = 0; k < known_.count; k++) {
            double head = k == asked.plane ? sums_[finite - 1] : k == other ? others : 0;
            if (k != asked.plane && k != other)
                for (int64_t j = 0; j < finite; j++) head += masses[k * size + j];
            const double log_z = known_.log_z.real(asked.row, k), last = deltas[k * size + finite - 1];
            if (!tail_.learn(log_z, known_.log_z.item_bytes == 4, known_.temperatures[k], max, head, last)) return;
        }
        if (asked.temperature == 0) {
            answer = {HeadStatus::ok, 0, 0, 0, 0, 1, 1, 0, 0, 0};
        } else {
            const KnownHead head{logits.data(), sums_.data(), sums_.data() + size, finite, tail_.count};
            sample_head(head, tail_, told || tail_.count == 0 ? whole : -1, asked, answer);
        }
    }

private:
    // Running sums, number after number as numpy's; and in their shadow the sum of other masses, which is returned.
    double sum(const double* deltas, const double* masses, const double* other, int64_t finite) {
        double *mass = sums_.data(), *energy = mass + logits.size(), all = 0, all_energy = -0.0, others = 0;
        for (int64_t j = 0; j < finite; j++) {
            mass[j] = all += masses[j];
            energy[j] = all_energy += masses[j] * -std::max(deltas[j], -1e6);
            others += other[j];
        }
        return others;
    }

    const KnownOfHeads& known_;
    std::vector<double> sums_;
    Tail tail_;
};

}  // namespace logitd

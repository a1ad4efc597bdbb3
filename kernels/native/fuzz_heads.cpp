// Heads cut out of random rows, against the whole rows: what is answered must be what the row answers. Built with
// sanitizers by `make sanitize`; exits 1 at the first difference.
//
//   fuzz_heads ROUNDS [SEED]
#include <cstdio>
#include <cstdlib>
#include <random>

#include "heads.h"
#include "order.h"

using namespace logitd;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Random {
    std::mt19937_64 bits;
    double uniform() { return double(bits() >> 11) * 0x1p-53; }
    int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
    bool chance(double p) { return uniform() < p; }
    double normal() { return std::normal_distribution<double>()(bits); }
};

double logit(Random& random, int kind) {
    switch (kind) {
        case 0: return random.normal() * 3;
        case 1: return std::round(random.normal() * 2);
        case 2: return random.chance(0.7) ? -infinity : random.normal();
        case 3: return 0;
        case 4: return random.chance(0.05) ? random.normal() + 9 : random.normal() * 0.1;
        default: return 1e5 + random.normal();
    }
}

// A row in the total order, and the running sums of its masses.
struct Whole {
    std::vector<double> logits;
    std::vector<int64_t> ids;
    int64_t finite = 0;

    double log_z(double temperature) const {
        double mass = 0;
        for (double x : logits) mass += std::exp((x - logits[0]) / temperature);
        return logits[0] / temperature + std::log(mass);
    }
};

Whole make(Random& random) {
    const int kind = int(random.below(6));
    const int64_t vocab = 1 + random.below(random.chance(0.2) ? 3000 : 60);
    std::vector<std::pair<double, int64_t>> tokens(vocab);
    for (int64_t id = 0; id < vocab; id++) tokens[id] = {-double(float(logit(random, kind))), id};
    if (!std::isfinite(tokens[0].first)) tokens[0].first = 0;
    std::sort(tokens.begin(), tokens.end());
    Whole row;
    for (const auto& [negated, id] : tokens) {
        row.logits.push_back(-negated);
        row.ids.push_back(id);
        row.finite += negated < infinity;
    }
    return row;
}

struct Truth {
    int64_t kept, rank;
};

// What the whole row answers at T > 0; kept 0 where that is within rounding of something else.
Truth truth_of(const Whole& row, const HeadRequest& asked) {
    std::vector<double> through;
    double mass = 0;
    for (int64_t i = 0; i < row.finite; i++) through.push_back(mass += std::exp((row.logits[i] - row.logits[0]) / asked.temperature));
    const auto reach = [&](double target, int64_t most) {
        const double slack = 1e-11 * through.back();
        const auto first = [&](double sum) { return std::min<int64_t>(std::lower_bound(through.begin(), through.end(), sum) - through.begin(), most - 1); };
        return first(target - slack) == first(target + slack) ? first(target) : -1;
    };
    int64_t kept = row.finite;
    if (asked.min_p > 0) {
        const double floor = row.logits[0] + asked.temperature * std::log(asked.min_p);
        int64_t count = 0;
        while (count < kept && row.logits[count] >= floor) count++;
        kept = std::max<int64_t>(count, 1);
    }
    if (asked.top_k > 0 && asked.top_k < kept) {
        int64_t count = asked.top_k;
        while (asked.ties_all && count < kept && row.logits[count] == row.logits[asked.top_k - 1]) count++;
        kept = count;
    }
    if (asked.top_p < 1) {
        const int64_t last = reach(asked.top_p * through[kept - 1], kept);
        if (last < 0) return {0, 0};
        kept = last + 1;
    }
    const int64_t rank = reach(asked.uniform * through[kept - 1], kept);
    return {rank < 0 ? 0 : kept, rank};
}

int fail(int64_t round, const char* what) {
    std::fprintf(stderr, "round %lld: %s\n", static_cast<long long>(round), what);
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    const int64_t rounds = count > 1 ? std::atoll(arguments[1]) : 1000;
    Random random{std::mt19937_64(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1)};
    int64_t answered = 0;
    for (int64_t round = 0; round < rounds; round++) {
        const Whole row = make(random);
        const int64_t vocab = int64_t(row.ids.size()), size = 1 + random.below(random.chance(0.3) ? vocab : std::min<int64_t>(vocab, 8));
        const double temperatures[] = {1, 0.7, 0.05, 1.3, 20};
        const double sent[] = {1, temperatures[random.below(5)]};
        const int64_t planes = 1 + random.below(2);
        HeadRequest asked{0, planes, temperatures[random.below(5)], random.chance(0.3) ? random.uniform() : 0,
                          random.chance(0.4) ? random.below(vocab + 2) : 0, random.chance(0.4) ? std::max(random.uniform(), 1e-9) : 1,
                          random.uniform(), random.chance(0.3)};
        for (int64_t k = 0; k < planes; k++)
            if (sent[k] == asked.temperature) asked.plane = k;
        std::vector<double> log_z;
        std::vector<float> narrow;
        for (int64_t k = 0; k < planes; k++) narrow.push_back(float(log_z.emplace_back(row.log_z(sent[k]))));
        const bool is_float = random.chance(0.5), told = random.chance(0.5);
        const char* where = is_float ? reinterpret_cast<const char*>(narrow.data()) : reinterpret_cast<const char*>(log_z.data());
        KnownOfHeads known{{where, is_float ? 4 : 8, planes, 1}, sent, planes, std::nullopt, vocab};
        if (told) known.finite_counts = Matrix{reinterpret_cast<const char*>(&row.finite), 8, 1, 1};

        Heads heads(known, size);
        heads.logits.assign(row.logits.begin(), row.logits.begin() + size);
        const std::vector<int64_t> ids(row.ids.begin(), row.ids.begin() + size);
        IdSet seen(vocab);
        if (!in_order(heads.logits, ids) || !seen.distinct(ids)) return fail(round, "an honest head is out of order");
        std::vector<double> deltas((planes + 1) * size), masses(deltas.size());
        for (int64_t k = 0; k <= planes; k++) deltas_of(heads.logits, k < planes ? sent[k] : asked.temperature, &deltas[k * size]);
        for (size_t i = 0; i < deltas.size(); i++) masses[i] = std::exp(deltas[i]);
        HeadAnswer answer{};
        heads.answer(asked, deltas.data(), masses.data(), answer);
        if (answer.status == HeadStatus::elsewhere) return fail(round, "an honest head is not believed");
        if (answer.status != HeadStatus::ok) continue;
        answered++;
        const Truth truth = truth_of(row, asked);
        if (truth.kept == 0) continue;
        if (answer.token != truth.rank) return fail(round, "wrong token");
        if (answer.kept >= 0 && answer.kept != truth.kept) return fail(round, "wrong kept count");
        if (!(answer.logprob <= 0) && answer.logprob == answer.logprob) return fail(round, "impossible log-probability");
    }
    if (answered * 4 < rounds) return fail(rounds, "hardly any head is answered");
    std::printf("%lld rounds, %lld heads answered, no difference\n", static_cast<long long>(rounds), static_cast<long long>(answered));
    return 0;
}

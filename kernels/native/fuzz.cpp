// Random rows and parameters through every instruction set, against a plain sort. Built with sanitizers by
// `make sanitize`; exits 1 at the first difference.
//
//   fuzz ROUNDS [SEED]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "pool.h"
#include "row.h"

using namespace logitd;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Case {
    std::vector<float> logits;
    std::vector<uint32_t> mask;
    std::vector<int64_t> ids;
    std::vector<double> bias;
    std::vector<int32_t> prompt, output;
    Row row{};
};

struct Random {
    std::mt19937_64 bits;
    double uniform() { return double(bits() >> 11) * 0x1p-53; }
    int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
    bool chance(double p) { return uniform() < p; }
    double normal() { return std::normal_distribution<double>()(bits); }
};

float logit(Random& random, int kind) {
    switch (kind) {
        case 0: return float(random.normal() * 3);
        case 1: return std::round(float(random.normal() * 2));
        case 2: return random.chance(0.9) ? -float(infinity) : float(random.normal());
        case 3: return float(random.normal()) * 1e-40f;
        case 4: return random.chance(0.5) ? 3e38f : -3e38f;
        case 5: return 1e5f + float(random.normal());
        case 6: return 0.0f * (random.chance(0.5) ? -1.0f : 1.0f);
        default: {
            const uint32_t any = uint32_t(random.bits());
            float out;
            std::memcpy(&out, &any, 4);
            return out;
        }
    }
}

// Token ids, some of them often, -1 anywhere among them.
std::vector<int32_t> history(Random& random, int64_t vocab) {
    std::vector<int32_t> ids(random.below(random.chance(0.1) ? 6000 : 80));
    const int64_t few = 1 + random.below(vocab);
    for (int32_t& id : ids) id = random.chance(0.2) ? -1 : int32_t(random.below(random.chance(0.5) ? few : vocab));
    return ids;
}

void penalise(Random& random, Case& made) {
    Row& row = made.row;
    made.prompt = history(random, row.vocab);
    made.output = history(random, row.vocab);
    row.prompt = {made.prompt.data(), int64_t(made.prompt.size())};
    row.output = {made.output.data(), int64_t(made.output.size())};
    row.repetition = 1;
    for (uint8_t* sides : {&row.repeated, &row.counted, &row.present})
        if (random.chance(0.6)) *sides = uint8_t(1 + random.below(3));
    if (row.repeated) row.repetition = random.chance(0.1) ? 1e-300 : 0.3 + 2 * random.uniform();
    if (row.counted) row.frequency = random.normal();
    if (row.present) row.presence = random.normal();
}

Case make(Random& random) {
    Case made;
    const int64_t vocab = 1 + (random.chance(0.2) ? random.below(20000) : random.below(1200));
    const int kind = int(random.below(random.chance(0.05) ? 8 : 7));
    made.logits.resize(vocab);
    for (float& x : made.logits) x = logit(random, kind);
    if (random.chance(0.3)) {
        made.mask.resize((vocab + 31) / 32);
        for (uint32_t& word : made.mask) word = random.chance(0.1) ? 0 : uint32_t(random.bits());
    }
    if (random.chance(0.4)) {
        const double share = random.uniform() * random.uniform();
        for (int64_t id = 0; id < vocab; id++)
            if (random.chance(share)) {
                made.ids.push_back(id);
                made.bias.push_back(random.chance(0.3) ? -infinity : random.normal() * 5);
            }
    }
    const double temperatures[] = {0, 1, 0.7, 1e-38, 1e300, 20, 1e-310};
    made.row = {made.logits.data(), 1, vocab, Dtype::f32, made.mask.empty() ? nullptr : made.mask.data(),
                made.ids.data(), made.bias.data(), int64_t(made.ids.size()), temperatures[random.below(7)],
                random.chance(0.3) ? random.uniform() : 0, random.chance(0.4) ? random.below(vocab + 3) : 0,
                random.chance(0.2), random.chance(0.5) ? std::max(random.uniform(), 1e-12) : 1, random.uniform(),
                {}, {}, 1, 0, 0, 0, 0, 0};
    if (random.chance(0.4)) penalise(random, made);
    return made;
}

// How often a token came in the sides that are counted.
int64_t times(const Case& made, int64_t id, uint8_t sides) {
    int64_t count = 0;
    if (sides & 1) count += std::count(made.prompt.begin(), made.prompt.end(), int32_t(id));
    if (sides & 2) count += std::count(made.output.begin(), made.output.end(), int32_t(id));
    return count;
}

// Whether the repetition penalty stands between a bias and the other two, which are else added up first.
bool repeats(const Case& made) {
    const auto token = [](int32_t id) { return id >= 0; };
    return ((made.row.repeated & 1) && std::any_of(made.prompt.begin(), made.prompt.end(), token)) ||
           ((made.row.repeated & 2) && std::any_of(made.output.begin(), made.output.end(), token));
}

double edited(const Case& made, int64_t id, double logit, double bias, bool apart) {
    const Row& row = made.row;
    double sum = apart ? 0.0 : bias;
    if (apart) {
        logit += bias;
        if (times(made, id, row.repeated)) logit = logit > 0 ? logit / row.repetition : logit * row.repetition;
    }
    if (row.counted) sum += -row.frequency * double(times(made, id, row.counted));
    if (row.present && times(made, id, row.present)) sum += -row.presence;
    return logit + sum;
}

// What the kept set must be, by sorting everything; -1 for a row that has no answer.
int64_t expected_kept(const Case& made) {
    std::vector<double> left;
    size_t edit = 0;
    const bool apart = repeats(made);
    bool beyond = false;
    std::vector<bool> seen(made.row.vocab);
    for (const auto& ids : {made.prompt, made.output})
        for (int32_t id : ids)
            if (id >= 0) seen[id] = true;
    for (int64_t id = 0; id < made.row.vocab; id++) {
        double x = made.logits[id];
        if (!(x < infinity)) return -1;
        const double bias = edit < made.ids.size() && made.ids[edit] == id ? made.bias[edit++] : 0.0;
        x = seen[id] ? edited(made, id, x, bias, apart) : x + bias;
        const bool allowed = made.mask.empty() || (made.mask[id >> 5] >> (id & 31) & 1);
        if (allowed && !(x < infinity)) beyond = true;
        if (allowed && x > -infinity) left.push_back(x);
    }
    if (left.empty() || beyond) return -1;
    const Row& row = made.row;
    if (row.temperature == 0) return 1;
    std::sort(left.begin(), left.end(), std::greater<double>());
    size_t kept = left.size();
    if (row.min_p > 0) {
        const double floor = left[0] + row.temperature * std::log(row.min_p);
        size_t count = 0;
        while (count < kept && left[count] >= floor) count++;
        kept = std::max<size_t>(count, 1);
    }
    if (row.top_k > 0 && size_t(row.top_k) < kept) {
        size_t count = size_t(row.top_k);
        while (row.ties_all && count < kept && left[count] == left[row.top_k - 1]) count++;
        kept = count;
    }
    if (row.top_p < 1) {
        std::vector<double> through;
        double mass = 0;
        for (size_t i = 0; i < kept; i++) through.push_back(mass += std::exp((left[i] - left[0]) / row.temperature));
        kept = size_t(std::lower_bound(through.begin(), through.end(), row.top_p * mass) - through.begin()) + 1;
        const double slack = 1e-9 * mass;  // a boundary within rounding may fall either way
        const size_t least = size_t(std::lower_bound(through.begin(), through.end(), row.top_p * mass - slack) - through.begin());
        const size_t most = size_t(std::lower_bound(through.begin(), through.end(), row.top_p * mass + slack) - through.begin());
        if (least != most) return 0;
    }
    return int64_t(kept);
}

// The same logits as float64, each followed by one that must not be read.
std::vector<double> strided(const Case& made) {
    std::vector<double> out(2 * made.logits.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t i = 0; i < made.logits.size(); i++) out[2 * i] = double(made.logits[i]);
    return out;
}

int fail(int64_t round, const char* what) {
    std::fprintf(stderr, "round %lld: %s\n", static_cast<long long>(round), what);
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    const int64_t rounds = count > 1 ? std::atoll(arguments[1]) : 1000;
    Random random{std::mt19937_64(count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1)};
    std::vector<const Kernels*> all{&kernels_portable};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&kernels_avx2);
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) all.push_back(&kernels_avx512);
#endif
    Scratch scratch;
    for (int64_t round = 0; round < rounds; round++) {
        const Case made = make(random);
        const int64_t kept = expected_kept(made);
        Answer first{};
        Thermo seen{};
        for (const Kernels* kernels : all) {
            Answer answer{};
            std::vector<float> values(made.row.vocab);
            kernels->sample(made.row, scratch, answer);
            if (kernels == all.front()) first = answer;
            if (std::memcmp(&first.token, &answer.token, sizeof(Answer) - offsetof(Answer, token)) != 0)
                return fail(round, "instruction sets differ");
            if (kept < 0 ? answer.status == Status::ok : answer.status != Status::ok) return fail(round, "wrong status");
            if (kept > 0 && answer.kept != kept) return fail(round, "wrong kept count");
            if (answer.status == Status::ok && (answer.token < 0 || answer.token >= made.row.vocab || !(answer.logprob <= 0)))
                return fail(round, "impossible answer");
            const std::vector<double> spread = strided(made);
            Row wide = made.row;
            wide.logits = spread.data();
            wide.stride = 2;
            wide.dtype = Dtype::f64;
            kernels->sample(wide, scratch, answer);
            if (std::memcmp(&first.token, &answer.token, sizeof(Answer) - offsetof(Answer, token)) != 0)
                return fail(round, "a float64 row of floats differs");
            Row plain = made.row;
            plain.temperature = std::max(plain.temperature, 1e-3);
            kernels->softmax(plain, round % 2 == 0, values.data(), scratch, answer);
            if (answer.status != Status::ok) continue;
            Thermo sums{};
            kernels->thermo(plain, *std::max_element(made.logits.begin(), made.logits.end()), sums);
            if (kernels == all.front()) seen = sums;
            if (std::memcmp(&seen, &sums, sizeof sums) != 0) return fail(round, "instruction sets differ in a sum");
            if (!(sums.mass >= 1 && sums.gap >= 0 && sums.entropy >= 0 && sums.variance >= 0))
                return fail(round, "impossible sums");
        }
    }
    std::printf("%lld rounds, %zu instruction sets, no difference\n", static_cast<long long>(rounds), all.size());
    return 0;
}

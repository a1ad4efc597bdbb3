// The hot chain on one row, compiled once for each instruction set: see sampling/ for the formulas it is tested equal to.
#include <cmath>

#include "history.h"
#include "ranked.h"
#include "thermo.h"

namespace logitd::LOGITD_ISA {
namespace {

// The caller's mask without the tokens that have an edit: those are ranked apart, in float64.
template <typename T>
void hide_edits(Source<T>& source, const Row& row, const Tally& tally, Scratch& scratch) {
    source.mask = row.mask;
    if (tally.size() == 0) return;
    const int64_t words = (row.vocab + 31) / 32;
    uint32_t* mask = static_cast<uint32_t*>(scratch.take(6, words * sizeof(uint32_t)));
    if (row.mask) {
        std::copy_n(row.mask, words, mask);
    } else {
        std::fill_n(mask, words, ~0u);
        source.hides = tally.size();
    }
    tally.hide(mask);
    source.mask = mask;
}

template <typename T>
void find_bad(const Source<T>& source, Answer& answer) {
    answer.status = Status::posinf;
    for (int64_t i = 0; i < source.vocab; i++) {
        const auto x = source.raw(i);
        if (x < std::numeric_limits<decltype(x)>::infinity()) continue;
        if (answer.place < 0) answer.place = i;
        if (x != x) {
            answer.status = Status::nan;
            return;
        }
    }
}

void report(Answer& answer, const Token& token, double logprob, double entropy, const Prefix& kept, double kept_mass) {
    answer.token = token.id;
    answer.logprob = logprob;
    answer.entropy = entropy;
    answer.entropy_kept = kept.entropy();
    answer.kept = kept.count;
    answer.kept_mass = std::min(1.0, kept_mass);
}

const Prefix& shorter(const Prefix& a, const Prefix& b) { return a.count < b.count ? a : b; }

template <typename T>
Prefix top_p(Ranked<T>& row, const Prefix& kept, double p) {
    if (row.rough(kept)) {
        const double slack = kept.mass * row.error();
        if (!row.settled(p * (kept.mass - slack), p * (kept.mass + slack), true)) row.exact();
        return row.reaching(p * row.everything().mass);
    }
    return row.reaching(p * kept.mass);
}

template <typename T>
Token draw(Ranked<T>& row, Prefix& kept, double uniform) {
    if (row.rough(kept)) {
        const double slack = kept.mass * row.error();
        if (!row.settled(uniform * (kept.mass - slack), uniform * (kept.mass + slack), false)) row.exact();
        kept = row.everything();
    }
    const double below = std::nextafter(kept.mass, 0.0);  // u rounds to 1 once in 2^53 draws
    const Token token = row.at(std::min(uniform * kept.mass, below));
    return token.rank < kept.count ? token : row.ranked(kept.count - 1);
}

template <typename T>
void chain(Ranked<T>& ranked, const Tokens<T>& tokens, const Row& row, Answer& answer) {
    Prefix kept = ranked.everything();
    if (row.min_p > 0) {
        const double floor = tokens.max + row.temperature * std::log(row.min_p);
        // Where top_k cuts above the floor, nobody asks what lies above it.
        const bool cut = row.top_k > 0 && row.top_k < kept.count && ranked.ranked(row.top_k - 1).logit >= floor;
        if (!cut) kept = shorter(ranked.above(floor), kept);
    }
    if (row.top_k > 0 && row.top_k < kept.count) {
        kept = row.ties_all ? shorter(ranked.above(ranked.ranked(row.top_k - 1).logit), kept) : ranked.first(row.top_k);
    }
    if (row.top_p < 1) kept = shorter(top_p(ranked, kept, row.top_p), kept);
    const Token token = draw(ranked, kept, row.uniform);
    const Prefix everything = ranked.everything();
    if (kept.count == everything.count) kept = everything;
    const double logprob = (token.logit - tokens.max) / row.temperature - std::log(kept.mass);
    report(answer, token, std::min(0.0, logprob), everything.entropy(), kept, kept.mass / everything.mass);
}

template <typename T>
void sample_as(const Row& row, Scratch& scratch, Answer& answer) {
    answer = {Status::ok, -1, -1, 0, 0, 0, 0, 0};
    Source<T> source{static_cast<const T*>(row.logits), row.stride, row.vocab, nullptr};
    Tally tally(row, scratch);
    hide_edits(source, row, tally, scratch);
    auto* maxima = static_cast<typename Source<T>::Real*>(scratch.take(0, source.blocks() * sizeof(double)));
    const auto seen = overview(source, maxima);
    if (seen.bad) return find_bad(source, answer);
    auto* edited = static_cast<Candidate*>(scratch.take(7, (tally.size() + 1) * sizeof(Candidate)));
    const int64_t edits = tally.edited(source, edited);
    const double temperature = row.temperature > 0 ? row.temperature : 1.0;
    const Tokens<T> tokens(source, seen, edited, edits, tally.places(), temperature);
    if (tokens.max == std::numeric_limits<double>::infinity()) {  // a sum beyond float64
        answer.status = Status::posinf;
        answer.place = tokens.largest().id;
        return;
    }
    if (tokens.finite == 0) {
        answer.status = Status::all_masked;
        return;
    }
    if (row.temperature == 0) return report(answer, tokens.largest(), 0.0, 0.0, {1, 1.0, 0.0}, 1.0);
    Ranked<T> ranked(tokens, scratch);
    chain(ranked, tokens, row, answer);
}

// Whether all logits of a float64 row are floats: then it has the float row's bits, the same answer however it was sent.
bool all_floats(const Row& row) {
    const double* logits = static_cast<const double*>(row.logits);
    for (int64_t begin = 0; begin < row.vocab; begin += block) {
        bool wide = false;
        for (int64_t i = begin; i < std::min(begin + block, row.vocab); i++) {
            const double x = logits[i * row.stride];
            wide |= (double(float(x)) != x) & (x == x);
        }
        if (wide) return false;
    }
    return true;
}

void sample(const Row& row, Scratch& scratch, Answer& answer) {
    switch (row.dtype) {
        case Dtype::f32: return sample_as<float>(row, scratch, answer);
        case Dtype::f16: return sample_as<half>(row, scratch, answer);
        case Dtype::bf16: return sample_as<uint16_t>(row, scratch, answer);
        case Dtype::f64:
            if (all_floats(row)) return sample_as<narrow>(row, scratch, answer);
            return sample_as<double>(row, scratch, answer);
    }
}

template <typename T>
void softmax_as(const Row& row, bool logarithm, void* values, Scratch& scratch, Answer& answer) {
    using Real = typename Source<T>::Real;
    answer = {Status::ok, -1, -1, 0, 0, 0, 0, 0};
    Source<T> source{static_cast<const T*>(row.logits), row.stride, row.vocab, nullptr};
    auto* maxima = static_cast<Real*>(scratch.take(0, source.blocks() * sizeof(double)));
    const auto seen = overview(source, maxima);
    if (seen.bad) return find_bad(source, answer);
    if (seen.finite == 0) {
        answer.status = Status::all_masked;
        return;
    }
    const double max = double(seen.largest);
    const double scale = scale_of(row.temperature);
    const Totals totals = totals64(source, max, scale);
    const double log_sum = std::log(totals.mass), share = 1.0 / totals.mass;
    answer.entropy = std::max(0.0, log_sum + totals.energy / totals.mass);
    answer.logprob = max / row.temperature + log_sum;
    if (!values) return;
    Real* out = static_cast<Real*>(values);
    sweep64(source, max, scale, [&](int64_t b, const Real*, const double* deltas, const double* masses) {
        const int64_t begin = b * block, count = std::min<int64_t>(block, source.vocab - begin);
        for (int64_t i = 0; i < count; i++) out[begin + i] = Real(logarithm ? deltas[i] - log_sum : masses[i] * share);
    });
}

void softmax(const Row& row, bool logarithm, void* values, Scratch& scratch, Answer& answer) {
    switch (row.dtype) {
        case Dtype::f32: return softmax_as<float>(row, logarithm, values, scratch, answer);
        case Dtype::f16: return softmax_as<half>(row, logarithm, values, scratch, answer);
        case Dtype::bf16: return softmax_as<uint16_t>(row, logarithm, values, scratch, answer);
        case Dtype::f64: return softmax_as<double>(row, logarithm, values, scratch, answer);
    }
}

double floor_pass(const float* logits, int64_t vocab) {
    Source<float> source{logits, 1, vocab, nullptr};
    Scratch scratch;
    const auto seen = overview(source, static_cast<float*>(scratch.take(0, source.blocks() * sizeof(float))));
    Sum mass;
    const F m = splat(seen.largest);
    for (int64_t b = 0; b < vocab / block;) {
        F masses[registers] = {};
        const int64_t end = std::min<int64_t>(b + fold / block, vocab / block);
        for (; b < end; b++)
            for (int g = 0; g < block; g += logical)
                for (int r = 0; r < registers; r++) {
                    F t = (load(source.at(b) + g + r * width) - m) * splat(0x1.715476p0f);
                    masses[r] = masses[r] + exp2(t);
                }
        mass.fold(masses);
    }
    return mass.value();
}

}  // namespace
}  // namespace logitd::LOGITD_ISA

#define LOGITD_NAME_(isa) kernels_##isa
#define LOGITD_NAME(isa) LOGITD_NAME_(isa)
#define LOGITD_ATTENTION_(isa) attention_##isa
#define LOGITD_ATTENTION(isa) LOGITD_ATTENTION_(isa)
#define LOGITD_TEXT_(isa) #isa
#define LOGITD_TEXT(isa) LOGITD_TEXT_(isa)

namespace logitd {
extern const Attention LOGITD_ATTENTION(LOGITD_ISA);
extern const Kernels LOGITD_NAME(LOGITD_ISA) = {
    LOGITD_TEXT(LOGITD_ISA),
    LOGITD_ISA::sample,
    LOGITD_ISA::softmax,
    LOGITD_ISA::thermo,
    LOGITD_ISA::floor_pass,
    &LOGITD_ATTENTION(LOGITD_ISA),
};
}  // namespace logitd

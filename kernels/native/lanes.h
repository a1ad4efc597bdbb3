// Sixteen-lane arithmetic in whatever width the instruction set has, with the same bits in all of them.
//
// Sums run over 64 logical lanes. A register holds `width` of them, so an instruction set differs only in how many
// registers make 64; every addition pairs the same lanes in the same order. Multiply-adds are explicit, contraction is off.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace logitd::LOGITD_ISA {

#if defined(__AVX512F__)
constexpr int bytes = 64;
#elif defined(__AVX2__)
constexpr int bytes = 32;
#else
constexpr int bytes = 16;
#endif

typedef float F __attribute__((vector_size(bytes)));
typedef int32_t I __attribute__((vector_size(bytes)));
typedef double D __attribute__((vector_size(bytes)));
typedef int64_t L __attribute__((vector_size(bytes)));

constexpr int width = bytes / 4;         // floats in a register
constexpr int wide = bytes / 8;          // doubles in a register
constexpr int logical = 64;              // lanes of a sum
constexpr int registers = logical / width;
constexpr int block = 256;               // logits between two maxima
constexpr int fold = 1024;               // logits between two foldings of float lanes into double ones

inline F splat(float x) { return x - F{}; }
inline D splat(double x) { return x - D{}; }

inline F fma(F a, F b, F c) {
#if defined(__AVX512F__)
    return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
    return (F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    F out;
    for (int i = 0; i < width; i++) out[i] = std::fmaf(a[i], b[i], c[i]);
    return out;
#endif
}

inline D fma(D a, D b, D c) {
#if defined(__AVX512F__)
    return (D)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (D)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__ARM_NEON)
    return (D)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    D out;
    for (int i = 0; i < wide; i++) out[i] = std::fma(a[i], b[i], c[i]);
    return out;
#endif
}

inline F larger(F a, F b) { return a > b ? a : b; }

inline F smaller(F a, F b) { return a < b ? a : b; }

// The lanes whose bit is 1, the first lane's the lowest, and `other` in the rest.
inline F only(F x, uint32_t bits, F other) {
#if defined(__AVX512F__)
    return (F)_mm512_mask_blend_ps(__mmask16(bits), (__m512)other, (__m512)x);
#else
    I lane;
    for (int i = 0; i < width; i++) lane[i] = int32_t(1u << i);
    return ((I{} + int32_t(bits)) & lane) != 0 ? x : other;
#endif
}

inline float largest_of(F x) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)x);
#else
    float out = x[0];
    for (int i = 1; i < width; i++) out = x[i] > out ? x[i] : out;
    return out;
#endif
}

inline float smallest_of(F x) { return -largest_of(-x); }

// A set of lanes, gathered from comparisons.
#if defined(__AVX512F__)
typedef __mmask16 Flags;
inline Flags not_below(F x, F bound) { return _mm512_cmp_ps_mask((__m512)x, (__m512)bound, _CMP_NLT_UQ); }
inline bool any(Flags flags) { return flags != 0; }
#else
typedef I Flags;
inline Flags not_below(F x, F bound) { return ~(I)(x < bound); }
inline bool any(Flags flags) {
#if defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)flags, (__m256i)flags);
#else
    int32_t found = 0;
    for (int i = 0; i < width; i++) found |= flags[i];
    return found != 0;
#endif
}
#endif

inline F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof x);
    return x;
}

inline F load(const uint16_t* p) {  // bfloat16: the upper half of a float
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return (F)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#elif defined(__AVX2__)
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return (F)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
#else
    I out;
    for (int i = 0; i < width; i++) out[i] = int32_t(uint32_t(p[i]) << 16);
    return (F)out;
#endif
}

inline float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    uint32_t bits;
    if (magnitude >= 0x7c00u) {
        bits = sign | 0x7f800000u | (magnitude & 0x3ffu) << 13;
    } else if (magnitude >= 0x400u) {
        bits = sign | ((magnitude << 13) + 0x38000000u);
    } else {
        const float value = float(magnitude) * 0x1p-24f;  // subnormal
        std::memcpy(&bits, &value, 4);
        bits |= sign;
    }
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

struct half {
    uint16_t bits;
};

inline F load(const half* p) {
#if defined(__AVX512F__)
    return (F)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
    return (F)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    F out;
    for (int i = 0; i < width; i++) out[i] = half_to_float(p[i].bits);
    return out;
#endif
}

// A double that is a float.
struct narrow {
    double value;
};

inline F load(const narrow* p) {
#if defined(__AVX512F__)
    const __m512d* halves = reinterpret_cast<const __m512d*>(p);
    const __m256 low = _mm512_cvtpd_ps(_mm512_loadu_pd(halves)), high = _mm512_cvtpd_ps(_mm512_loadu_pd(halves + 1));
    return (F)_mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
#elif defined(__AVX2__)
    const double* halves = reinterpret_cast<const double*>(p);
    return (F)_mm256_set_m128(_mm256_cvtpd_ps(_mm256_loadu_pd(halves + 4)), _mm256_cvtpd_ps(_mm256_loadu_pd(halves)));
#else
    F out;
    for (int i = 0; i < width; i++) out[i] = float(p[i].value);
    return out;
#endif
}

inline float scalar(float x) { return x; }
inline float scalar(narrow x) { return float(x.value); }
inline float scalar(half x) { return half_to_float(x.bits); }
inline float scalar(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
inline double scalar(double x) { return x; }

// 2^t for t <= 0, and 2^-126 for all below: t = n + f, Taylor to f^6 on [-1/2, 1/2] (relative error 2^-22), n added to the
// exponent as bits. What is that small is lost beside the maximum's own mass of 1. `t` is clamped in place.
inline F exp2(F& t) {
    const F magic = splat(0x1.8p23f);
    t = larger(t, splat(-126.0f));
    const F shifted = t + magic;
    const F f = t - (shifted - magic);
    F p = splat(0x1.430912f86p-13f);
    p = fma(p, f, splat(0x1.5d87fe78ap-10f));
    p = fma(p, f, splat(0x1.3b2ab6fbap-7f));
    p = fma(p, f, splat(0x1.c6b08d704p-5f));
    p = fma(p, f, splat(0x1.ebfbdff82p-3f));
    p = fma(p, f, splat(0x1.62e42fefap-1f));
    p = fma(p, f, splat(1.0f));
    return (F)((I)p + ((I)shifted << 23));
}

// e^d in float64 for d in [-708, 0] and 0 below: the same with Taylor to r^13 (relative error 2^-52).
// The scalar version does the same operations, so a token has the same mass wherever it is met.
template <typename V, typename N>
inline V exp64(V d, V (*constant)(double), V (*multiply_add)(V, V, V)) {
    const V magic = constant(0x1.8p52);
    const V low = constant(-708.0);
    const V clamped = d > low ? d : low;
    const V t = multiply_add(clamped, constant(0x1.71547652b82fep0), magic);
    const V n = t - magic;
    V r = multiply_add(n, constant(-0x1.62e42fefa3800p-1), clamped);
    r = multiply_add(n, constant(-0x1.ef35793c76730p-45), r);
    V p = constant(1.0 / 6227020800.0);
    const double taylor[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
                             1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5,         1.0,
                             1.0};
    for (double c : taylor) p = multiply_add(p, r, constant(c));
    N p_bits, t_bits;
    std::memcpy(&p_bits, &p, sizeof p);
    std::memcpy(&t_bits, &t, sizeof t);
    const N scaled = p_bits + (t_bits << 52);
    V out;
    std::memcpy(&out, &scaled, sizeof out);
    return d >= low ? out : constant(0.0);
}

inline D exp(D d) { return exp64<D, L>(d, [](double c) { return splat(c); }, [](D a, D b, D c) { return fma(a, b, c); }); }
inline double exp(double d) {
    return exp64<double, uint64_t>(
        d, [](double c) { return c; }, [](double a, double b, double c) { return __builtin_fma(a, b, c); });
}

// Sums of 64 logical float lanes, folded into 16 double ones every `fold` logits.
struct Sum {
    double total[16] = {};

    void fold(F (&lanes)[registers]) {
        for (int half = registers / 2; half * 4 >= registers; half /= 2)
            for (int i = 0; i < half; i++) lanes[i] = lanes[i] + lanes[i + half];
        float sixteen[16];
        std::memcpy(sixteen, lanes, sizeof sixteen);
        for (int i = 0; i < 16; i++) total[i] += double(sixteen[i]);
    }

    double value() const {
        double sum[16];
        std::memcpy(sum, total, sizeof sum);
        for (int half = 8; half >= 1; half /= 2)
            for (int i = 0; i < half; i++) sum[i] += sum[i + half];
        return sum[0];
    }
};

// Sums of 16 logical double lanes.
struct WideSum {
    static constexpr int count = 16 / wide;
    D lanes[count] = {};

    double value() const {
        double sum[16];
        std::memcpy(sum, lanes, sizeof sum);
        for (int half = 8; half >= 1; half /= 2)
            for (int i = 0; i < half; i++) sum[i] += sum[i + half];
        return sum[0];
    }
};

}  // namespace logitd::LOGITD_ISA

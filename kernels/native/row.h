// What one row is, and what it answers: the boundary between dispatch and the kernels of each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitd {

enum class Dtype : int { f32 = 0, f16 = 1, bf16 = 2, f64 = 3 };
enum class Status : int32_t { ok = 0, nan = 1, posinf = 2, all_masked = 3 };

struct History {
    const int32_t* ids;  // -1 is none
    int64_t count;
};

// A row to sample. Edits: ids ascend; the bias is added in float64, -inf forbids. `mask` may be null: all allowed.
struct Row {
    const void* logits;
    int64_t stride;  // in elements
    int64_t vocab;
    Dtype dtype;
    const uint32_t* mask;  // [ceil(vocab / 32)], least significant bit first, 1 = allowed
    const int64_t* edit_ids;
    const double* edit_bias;
    int64_t edits;
    double temperature;  // 0 is greedy
    double min_p;        // 0 is off
    int64_t top_k;       // 0 is off
    bool ties_all;
    double top_p;  // 1 is off
    double uniform;
    History prompt, output;
    double repetition, frequency, presence;
    uint8_t repeated, counted, present;  // which ids each of these counts: 1 the prompt's, 2 the output's
};

struct Answer {
    Status status;
    int64_t place;  // the first logit that is NaN or +inf, else -1
    int64_t token;
    double logprob;
    double entropy;
    double entropy_kept;
    int64_t kept;
    double kept_mass;
};

// A row at one temperature T, with d = (x - M)/T and averages under softmax(x/T).
struct Thermo {
    double mass;      // sum of e^d
    double gap;       // mean of M - x
    double entropy;   // nats, from a sum of its own
    double variance;  // of d
};

// Memory of one thread, grown to the longest row it has seen and kept: 4 bytes a token for members of a histogram digit, 2
// for its first digit, an eighth of one for a mask, some for each block's maximum, each edit and each token of a history (and
// then 4 bytes a token to count them), and tables of fixed size.
class Scratch {
public:
    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch();
    // Returns at least `bytes` of 64-byte aligned memory; one region for each `slot`, contents undefined.
    void* take(int slot, size_t bytes);
    // The same, all zeros, as whoever takes it leaves it.
    void* zeroed(int slot, size_t bytes);
    size_t held() const;  // bytes

private:
    static constexpr int slots = 11;
    void* regions_[slots] = {};
    size_t sizes_[slots] = {};
};

// The kernels of one instruction set. All give the same bits.
struct Kernels {
    const char* isa;
    void (*sample)(const Row&, Scratch&, Answer&);
    // Softmax (or its logarithm) at a temperature > 0 into out [vocab]; float64 rows write double, others float.
    // values may be null. Fills status, place, entropy, and log Z as logprob.
    void (*softmax)(const Row&, bool logarithm, void* values, Scratch&, Answer&);
    // The Boltzmann view at row.temperature > 0 of a row whose largest logit, finite, is `max`; see thermo.h.
    void (*thermo)(const Row&, double max, Thermo&);
    // Block maxima and one sum of exponentials: the least any sampler must do.
    double (*floor_pass)(const float*, int64_t);
    const struct Attention* attention;  // attention, see attention.h
};

extern const Kernels kernels_portable;
#if defined(__x86_64__)
extern const Kernels kernels_avx2;
extern const Kernels kernels_avx512;
#endif

}  // namespace logitd

// The Python face: arrays in, arrays out, the interpreter's lock released meanwhile.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "philox.h"
#include "pool.h"
#include "row.h"

namespace nb = nanobind;

namespace logitd {
namespace {

template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<const Kernels*> runnable() {
    std::vector<const Kernels*> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        found.push_back(&kernels_avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        found.push_back(&kernels_avx2);
#endif
    found.push_back(&kernels_portable);
    return found;
}

const Kernels* active = runnable().front();

void use_isa(const std::string& name) {
    for (const Kernels* kernels : runnable())
        if (name == kernels->isa) {
            active = kernels;
            return;
        }
    throw nb::value_error(("this machine does not run " + name).c_str());
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (const Kernels* kernels : runnable()) names.emplace_back(kernels->isa);
    return names;
}

// The batch as `logitd_kernels.hot.HotBatch` has it; `logits` is an address that the caller keeps alive.
void sample(uintptr_t logits, int dtype, int64_t item_bytes, int64_t row_stride, int64_t stride, int64_t vocab,
            Array<const int64_t> rows, nb::object mask, Array<const int64_t> edit_offsets, Array<const int64_t> edit_ids,
            Array<const double> edit_bias, Array<const double> temperature, Array<const double> min_p,
            Array<const int64_t> top_k, Array<const bool> ties_all, Array<const double> top_p,
            Array<const uint64_t> seed, Array<const uint32_t> stream, Array<const uint32_t> step,
            Array<int32_t> status, Array<int64_t> place, Array<int64_t> token, Array<double> logprob,
            Array<double> entropy, Array<double> entropy_kept, Array<int64_t> kept, Array<double> kept_mass) {
    const uint32_t* words = nullptr;
    Array<const uint32_t> held;
    if (!mask.is_none()) {
        held = nb::cast<Array<const uint32_t>>(mask);
        words = held.data();
    }
    const int64_t count = int64_t(rows.shape(0)), mask_words = (vocab + 31) / 32;
    const Kernels* kernels = active;
    nb::gil_scoped_release released;
    Pool::shared().run(count, [&](int64_t i, Scratch& scratch) {
        Row row{};
        row.logits = reinterpret_cast<const char*>(logits) + rows.data()[i] * row_stride * item_bytes;
        row.stride = stride;
        row.vocab = vocab;
        row.dtype = Dtype(dtype);
        row.mask = words ? words + i * mask_words : nullptr;
        row.edits = edit_offsets.data()[i + 1] - edit_offsets.data()[i];
        row.edit_ids = edit_ids.data() + edit_offsets.data()[i];
        row.edit_bias = edit_bias.data() + edit_offsets.data()[i];
        row.temperature = temperature.data()[i];
        row.min_p = min_p.data()[i];
        row.top_k = top_k.data()[i];
        row.ties_all = ties_all.data()[i];
        row.top_p = top_p.data()[i];
        row.uniform = uniform(seed.data()[i], stream.data()[i], step.data()[i], 0, 0);
        Answer answer{};
        kernels->sample(row, scratch, answer);
        status.data()[i] = int32_t(answer.status);
        place.data()[i] = answer.place;
        token.data()[i] = answer.token;
        logprob.data()[i] = answer.logprob;
        entropy.data()[i] = answer.entropy;
        entropy_kept.data()[i] = answer.entropy_kept;
        kept.data()[i] = answer.kept;
        kept_mass.data()[i] = answer.kept_mass;
    });
}

// Softmax of each row of a batch into `values`, an address of [B, vocab] (0 leaves them out).
void softmax(uintptr_t logits, int dtype, int64_t item_bytes, int64_t row_stride, int64_t stride, int64_t vocab,
             Array<const double> temperature, bool logarithm, uintptr_t values, Array<int32_t> status,
             Array<int64_t> place, Array<double> log_z, Array<double> entropy) {
    const int64_t count = int64_t(temperature.shape(0));
    const int64_t out_bytes = Dtype(dtype) == Dtype::f64 ? 8 : 4;
    const Kernels* kernels = active;
    nb::gil_scoped_release released;
    Pool::shared().run(count, [&](int64_t i, Scratch& scratch) {
        Row row{};
        row.logits = reinterpret_cast<const char*>(logits) + i * row_stride * item_bytes;
        row.stride = stride;
        row.vocab = vocab;
        row.dtype = Dtype(dtype);
        row.temperature = temperature.data()[i];
        Answer answer{};
        void* out = values ? reinterpret_cast<char*>(values) + i * vocab * out_bytes : nullptr;
        kernels->softmax(row, logarithm, out, scratch, answer);
        status.data()[i] = int32_t(answer.status);
        place.data()[i] = answer.place;
        log_z.data()[i] = answer.logprob;
        entropy.data()[i] = answer.entropy;
    });
}

double floor_pass(Array<const float> logits) {
    nb::gil_scoped_release released;
    return active->floor_pass(logits.data(), int64_t(logits.shape(0)));
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("sample", &sample, nb::arg("logits"), nb::arg("dtype"), nb::arg("item_bytes"), nb::arg("row_stride"),
               nb::arg("stride"), nb::arg("vocab"), nb::arg("rows"), nb::arg("mask").none(), nb::arg("edit_offsets"),
               nb::arg("edit_ids"), nb::arg("edit_bias"), nb::arg("temperature"), nb::arg("min_p"), nb::arg("top_k"),
               nb::arg("ties_all"), nb::arg("top_p"), nb::arg("seed"), nb::arg("stream"), nb::arg("step"),
               nb::arg("status"), nb::arg("place"), nb::arg("token"), nb::arg("logprob"), nb::arg("entropy"),
               nb::arg("entropy_kept"), nb::arg("kept"), nb::arg("kept_mass"));
    module.def("softmax", &softmax);
    module.def("floor_pass", &floor_pass);
    module.def("isa", [] { return std::string(active->isa); });
    module.def("isas", &isas);
    module.def("use_isa", &use_isa);
    module.def("threads", [] { return Pool::shared().threads(); });
    module.def("set_threads", [](int threads) {
        if (threads < 1 || threads > 1024) throw nb::value_error("threads must be in [1, 1024]");
        nb::gil_scoped_release released;
        Pool::shared().resize(threads);
    });
}

}  // namespace logitd

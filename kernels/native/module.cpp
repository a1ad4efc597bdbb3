// The Python face: arrays in, arrays out, the interpreter's lock released meanwhile.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bindings.h"
#include "items.h"
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

// A row to sample, with the names and the layout of REQUEST in logitd_kernels/hot.py.
struct Request {
    int64_t row, edits_begin, edits_end;
    double temperature, min_p;
    int64_t top_k;
    double top_p, repetition, frequency, presence;
    uint64_t seed;
    uint32_t stream, step;
    bool ties_all;
    uint8_t repeated, counted, present;
};

// The batch as `logitd_kernels.hot.HotBatch` has it; `logits` is an address that the caller keeps alive.
void sample(uintptr_t logits, int dtype, int64_t item_bytes, int64_t row_stride, int64_t stride, int64_t vocab,
            nb::handle requests, nb::handle mask, nb::handle edit_ids, nb::handle edit_bias, nb::handle prompt_ids,
            int64_t prompt_size, nb::handle output_ids, int64_t output_size, nb::handle answers) {
    const Items<const Request> wanted(requests);
    const Items<const int32_t> prompts(prompt_ids), outputs(output_ids);
    const Items<const uint32_t> words(mask);
    const Items<const int64_t> ids(edit_ids);
    const Items<const double> bias(edit_bias);
    const Items<Answer> out(answers);
    const int64_t count = wanted.size(), mask_words = (vocab + 31) / 32;
    if (out.size() != count || (words.data() && words.size() != count * mask_words) || ids.size() != bias.size())
        throw nb::value_error("arrays of a batch disagree in length");
    const Kernels* kernels = active;
    nb::gil_scoped_release released;
    Pool::shared().run(count, [&](int64_t i, Scratch& scratch) {
        const Request& request = wanted.data()[i];
        Row row{};
        row.logits = reinterpret_cast<const char*>(logits) + request.row * row_stride * item_bytes;
        row.stride = stride;
        row.vocab = vocab;
        row.dtype = Dtype(dtype);
        row.mask = words.data() ? words.data() + i * mask_words : nullptr;
        row.edits = request.edits_end - request.edits_begin;
        row.edit_ids = ids.data() + request.edits_begin;
        row.edit_bias = bias.data() + request.edits_begin;
        row.temperature = request.temperature;
        row.min_p = request.min_p;
        row.top_k = request.top_k;
        row.ties_all = request.ties_all;
        row.top_p = request.top_p;
        row.prompt = {prompts.data() + request.row * prompt_size, prompt_size};
        row.output = {outputs.data() + request.row * output_size, output_size};
        row.repetition = request.repetition;
        row.frequency = request.frequency;
        row.presence = request.presence;
        row.repeated = request.repeated;
        row.counted = request.counted;
        row.present = request.present;
        row.uniform = uniform(request.seed, request.stream, request.step, 0, 0);
        kernels->sample(row, scratch, out.data()[i]);
    });
}

// Rows that lie one behind the other in a buffer, from `offset` bytes on, without mask and edits.
void sample_plain(nb::handle body, int64_t offset, int dtype, int64_t item_bytes, int64_t vocab, nb::handle requests,
                  nb::handle answers) {
    const Items<const char> bytes(body);
    const Items<const Request> wanted(requests);
    int64_t rows = 0;
    for (int64_t i = 0; i < wanted.size(); ++i) {
        const Request& request = wanted.data()[i];
        if (request.row < 0 || request.edits_begin != request.edits_end)
            throw nb::value_error("plain rows have no edits, and places in the buffer");
        rows = std::max(rows, request.row + 1);
    }
    if (offset < 0 || offset > bytes.size() || item_bytes < 1 || vocab < 1 ||
        rows > (bytes.size() - offset) / item_bytes / vocab)
        throw nb::value_error("the buffer does not hold the rows");
    const nb::object none = nb::none();
    sample(reinterpret_cast<uintptr_t>(bytes.data()) + uintptr_t(offset), dtype, item_bytes, vocab, 1, vocab, requests,
           none, none, none, none, 0, none, 0, answers);
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

// The Boltzmann view of some rows of a batch, each at K temperatures: `temperatures` [R, K], `rows` and `largest` [R].
void thermo(uintptr_t logits, int dtype, int64_t item_bytes, int64_t row_stride, int64_t stride, int64_t vocab,
            nb::handle rows, nb::handle largest, nb::handle temperatures, nb::handle answers) {
    const Items<const int64_t> wanted(rows);
    const Items<const double> maxima(largest), hot(temperatures);
    const Items<Thermo> out(answers);
    const int64_t count = hot.size(), each = wanted.size() ? count / wanted.size() : 0;
    if (maxima.size() != wanted.size() || each * wanted.size() != count || out.size() != count)
        throw nb::value_error("arrays of a batch disagree in length");
    const Kernels* kernels = active;
    nb::gil_scoped_release released;
    Pool::shared().run(count, [&](int64_t i, Scratch&) {
        Row row{};
        row.logits = reinterpret_cast<const char*>(logits) + wanted.data()[i / each] * row_stride * item_bytes;
        row.stride = stride;
        row.vocab = vocab;
        row.dtype = Dtype(dtype);
        row.temperature = hot.data()[i];
        kernels->thermo(row, maxima.data()[i / each], out.data()[i]);
    });
}

double floor_pass(Array<const float> logits) {
    nb::gil_scoped_release released;
    return active->floor_pass(logits.data(), int64_t(logits.shape(0)));
}

}  // namespace

NB_MODULE(_native, module) {
    module.def("sample", &sample, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg());
    module.def("sample_plain", &sample_plain);
    module.attr("request_bytes") = sizeof(Request);
    module.attr("answer_bytes") = sizeof(Answer);
    module.def("softmax", &softmax);
    module.def("thermo", &thermo);
    module.def("floor_pass", &floor_pass);
    bind_attention(module, [] { return active->attention; });
    bind_heads(module);
    module.def("scratch_bytes", [] { return own_scratch().held(); });
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

// The Python face of the head form: whether heads are in the total order, and the hot chain on them.
//
// The exponentials are numpy's, between `head_deltas` and `sample_heads`: so both ways to answer a head, this and the
// formulas in sampling/, have the same bits. Compiled without contraction, once for every instruction set.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "heads.h"
#include "items.h"
#include "order.h"
#include "philox.h"

namespace nb = nanobind;

namespace logitd {
namespace {

constexpr int64_t brief = 1 << 14;          // numbers that are read without letting another thread take over
constexpr int64_t longest_vocab = 1 << 24;  // whose set of ids is kept as bits

void expect(bool holds, const char* what) {
    if (!holds) throw nb::value_error(what);
}

// Where numbers of 4 or 8 bytes are: address, bytes of a number, row stride and stride in numbers.
using Where = std::tuple<uintptr_t, int64_t, int64_t, int64_t>;

Matrix matrix_at(const Where& where) {
    const auto [address, item_bytes, row_stride, stride] = where;
    expect(item_bytes == 4 || item_bytes == 8, "expected numbers of 4 or 8 bytes");
    return {reinterpret_cast<const char*>(address), item_bytes, row_stride, stride};
}

// The first row of [rows, size] heads that may break the total order or name a token twice or none; `rows` for none.
int64_t first_suspect(int64_t rows, int64_t size, int64_t vocab, const Where& logits, const Where& ids) {
    const Matrix all_logits = matrix_at(logits), all_ids = matrix_at(ids);
    expect(rows >= 0 && size >= 0, "sizes below 0");
    if (vocab < 1 || vocab > longest_vocab) return 0;
    std::optional<nb::gil_scoped_release> released;
    if (rows * size > brief) released.emplace();
    IdSet seen(vocab);
    std::vector<double> own_logits(size);
    std::vector<int64_t> own_ids(size);
    for (int64_t row = 0; row < rows; row++) {
        all_logits.logits(row, own_logits);
        all_ids.ids(row, own_ids);
        if (in_order(own_logits, own_ids) && seen.distinct(own_ids)) continue;
        if (!any_nan(own_logits)) return row;  // else the row itself is bad, and answered so
    }
    return rows;
}

// Writes (x - M)/T of every request's row into out [requests, planes, size]: a plane for each of `temperatures`, and the
// request's own in the one that it names when that is none of these.
void head_deltas(int64_t rows, int64_t size, const Where& logits, nb::handle requests, nb::handle temperatures,
                 nb::handle deltas) {
    const Matrix all_logits = matrix_at(logits);
    const Items<const HeadRequest> asked(requests);
    const Items<const double> sent(temperatures);
    const Items<double> out(deltas);
    expect(rows >= 0 && size > 0 && asked.size() > 0 && sent.size() > 0, "nothing to read");
    const int64_t planes = out.size() / (asked.size() * size);
    expect(planes >= sent.size() && out.size() == asked.size() * planes * size, "arrays disagree in length");
    std::optional<nb::gil_scoped_release> released;
    if (out.size() > brief) released.emplace();
    std::vector<double> own(size);
    for (int64_t i = 0; i < asked.size(); i++) {
        const HeadRequest& request = asked.data()[i];
        expect(request.row >= 0 && request.row < rows && request.plane < planes, "a request for another batch");
        all_logits.logits(request.row, own);
        expect(request.temperature == 0 || request.plane >= sent.size() ||
                   (request.plane >= 0 && sent.data()[request.plane] == request.temperature),
               "a plane of another temperature");
        for (int64_t plane = 0; plane < planes; plane++) {
            double* to = out.data() + (i * planes + plane) * size;
            if (plane < sent.size()) {
                deltas_of(own, sent.data()[plane], to);
            } else if (plane == request.plane) {
                deltas_of(own, request.temperature, to);
            } else {
                std::fill(to, to + size, 0.0);
            }
        }
    }
}

// Answers requests for heads [rows, size]; `deltas` as from `head_deltas`, `masses` their exponentials.
void sample_heads(int64_t rows, int64_t size, int64_t vocab, const Where& logits, const Where& ids, const Where& log_z,
                  const std::optional<Where>& finite_count, nb::handle temperatures, nb::handle requests, nb::handle deltas,
                  nb::handle masses, nb::handle answers) {
    const Matrix all_logits = matrix_at(logits), all_ids = matrix_at(ids);
    const Items<const double> sent(temperatures), all_deltas(deltas), all_masses(masses);
    const Items<const HeadRequest> asked(requests);
    const Items<HeadAnswer> out(answers);
    expect(rows >= 0 && size > 0 && vocab >= size && asked.size() > 0 && sent.size() > 0, "nothing to read");
    const int64_t planes = all_deltas.size() / (asked.size() * size);
    expect(planes >= sent.size() && all_deltas.size() == asked.size() * planes * size &&
               all_masses.size() == all_deltas.size() && out.size() == asked.size(),
           "arrays disagree in length");
    std::optional<nb::gil_scoped_release> released;
    if (all_deltas.size() > brief) released.emplace();
    KnownOfHeads known{matrix_at(log_z), sent.data(), sent.size(), std::nullopt, vocab};
    if (finite_count) known.finite_counts = matrix_at(*finite_count);
    Heads heads(known, size);
    for (int64_t i = 0; i < asked.size(); i++) {
        const HeadRequest& request = asked.data()[i];
        expect(request.row >= 0 && request.row < rows && request.plane >= 0 && request.plane < planes,
               "a request for another batch");
        all_logits.logits(request.row, heads.logits);
        const int64_t at = i * planes * size;
        HeadAnswer& answer = out.data()[i];
        heads.answer(request, all_deltas.data() + at, all_masses.data() + at, answer);
        if (answer.status == HeadStatus::ok) answer.token = all_ids.whole(request.row, answer.token);
    }
}

}  // namespace

void bind_heads(nb::module_& module) {
    module.def("first_suspect", &first_suspect);
    module.def("head_deltas", &head_deltas);
    module.def("sample_heads", &sample_heads, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
               nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg());
    module.attr("head_request_bytes") = sizeof(HeadRequest);
    module.attr("head_answer_bytes") = sizeof(HeadAnswer);
    module.def("uniform", &uniform, nb::arg("seed"), nb::arg("stream") = 0, nb::arg("step") = 0, nb::arg("draw") = 0,
               nb::arg("purpose") = 0);
}

}  // namespace logitd

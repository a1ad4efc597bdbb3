// The Python face of attention by moment states: one head of one sequence.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include <array>
#include <optional>

#include "bindings.h"

namespace nb = nanobind;

namespace logitd {
namespace {

template <typename T, int dims>
using Tensor = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;

const Attention* (*active)();

void expect(bool holds, const char* what) {
    if (!holds) throw nb::value_error(what);
}

using Vector = Tensor<const float, 1>;
using Matrix = Tensor<const float, 2>;

Coordinates coordinates_of(const Vector& query_centre, const Matrix& key_map, const Matrix& query_map, size_t dim) {
    expect(query_centre.shape(0) == dim && key_map.shape(1) == dim && query_map.shape(1) == dim &&
               query_map.shape(0) == key_map.shape(0),
           "a basis for another dim");
    return {query_centre.data(), key_map.data(), query_map.data(), int64_t(key_map.shape(0))};
}

// A head laid out in blocks as hybrid/head.py has it, with the memory for its states. Holds on to its arrays.
class HybridHead {
public:
    HybridHead(Tensor<const float, 3> keys, Tensor<const float, 3> values, Matrix hidden,
               Vector query_centre, Matrix key_map, Matrix query_map,
               Matrix heavy_keys, Matrix heavy_values, Tensor<const int64_t, 1> heavy_place,
               int64_t start, int64_t blocks, bool causal, int64_t first, Tensor<float, 2> before, Tensor<float, 1> before_scale,
               std::optional<Tensor<float, 2>> behind, std::optional<Tensor<float, 1>> behind_scale)
        : keys_(keys), values_(values), hidden_(hidden), query_centre_(query_centre), key_map_(key_map), query_map_(query_map),
          heavy_keys_(heavy_keys), heavy_values_(heavy_values), heavy_place_(heavy_place), before_(before),
          before_scale_(before_scale), behind_(behind), behind_scale_(behind_scale) {
        const size_t count = keys.shape(0), dim = keys.shape(2), columns = values.shape(2), rank = key_map.shape(0);
        const size_t heavy = heavy_place.shape(0), size = (1 + dim + rank * (rank + 1) / 2) * columns;
        expect(keys.shape(1) == block_size && values.shape(1) == block_size && hidden.shape(1) == block_size &&
                   values.shape(0) == count && hidden.shape(0) == count && columns >= 1,
               "keys, values and hidden disagree in shape");
        expect(heavy_keys.shape(0) == heavy && heavy_keys.shape(1) == dim && heavy_values.shape(0) == heavy &&
                   heavy_values.shape(1) == columns,
               "heavy keys and values disagree in shape");
        expect(start >= 0 && blocks >= 0 && (!causal || blocks >= 1), "a window that is none");
        expect(causal != behind.has_value() && behind.has_value() == behind_scale.has_value(), "what is behind, unless causal");
        const auto hold = [&](const Tensor<float, 2>& sums, const Tensor<float, 1>& log_scale) {
            return sums.shape(0) == count + 1 && sums.shape(1) == size && log_scale.shape(0) == count + 1;
        };
        expect(hold(before, before_scale) && (causal || hold(*behind, *behind_scale)), "expected a state for each edge");
        all_ = {keys.data(), values.data(), hidden.data(), int64_t(count), int64_t(dim), int64_t(columns)};
        basis_ = coordinates_of(query_centre, key_map, query_map, dim);
        near_ = {start, blocks, causal, first, heavy_keys.data(), heavy_values.data(), heavy_place.data(), int64_t(heavy)};
        up_ = {before.data(), before_scale.data()};
        if (behind) down_ = {behind->data(), behind_scale->data()};
    }

    void sum() {
        nb::gil_scoped_release released;
        active()->sums(all_, basis_, up_, down_);
    }

    void attend(Tensor<const float, 3> queries, std::array<float, 3> coefficients, Tensor<float, 3> out, Tensor<bool, 2> bad) {
        const size_t count = queries.shape(0);
        expect(queries.shape(1) == block_size && int64_t(queries.shape(2)) == all_.dim && out.shape(0) == count &&
                   out.shape(1) == block_size && int64_t(out.shape(2)) == all_.columns - 1 && bad.shape(0) == count &&
                   bad.shape(1) == block_size,
               "queries and output disagree in shape");
        expect(near_.start + near_.blocks + int64_t(count) <= all_.count + 1, "windows pass the keys");
        const float chosen[3] = {coefficients[0], coefficients[1], coefficients[2]};
        nb::gil_scoped_release released;
        active()->attend(queries.data(), int64_t(count), all_, basis_, near_, up_, down_, chosen, out.data(), bad.data());
    }

    void orders(Matrix queries, Tensor<const int64_t, 1> blocks, Vector total,
                Tensor<float, 2> exact, Tensor<float, 3> far) {
        const size_t count = queries.shape(0), columns = size_t(all_.columns);
        expect(!near_.causal, "a causal head has no orders");
        expect(int64_t(queries.shape(1)) == all_.dim && blocks.shape(0) == count && total.shape(0) == count &&
                   exact.shape(0) == count && exact.shape(1) == columns && far.shape(0) == 3 && far.shape(1) == count &&
                   far.shape(2) == columns,
               "queries and sums disagree in shape");
        for (size_t i = 0; i < count; i++)
            expect(blocks.data()[i] >= 0 && near_.start + blocks.data()[i] + near_.blocks <= all_.count, "a window passes the keys");
        const Singles rows{queries.data(), blocks.data(), total.data(), int64_t(count), exact.data(), far.data()};
        nb::gil_scoped_release released;
        active()->orders(rows, all_, basis_, near_, up_, down_);
    }

private:
    Tensor<const float, 3> keys_, values_;
    Matrix hidden_;
    Vector query_centre_;
    Matrix key_map_, query_map_, heavy_keys_, heavy_values_;
    Tensor<const int64_t, 1> heavy_place_;
    Tensor<float, 2> before_;
    Tensor<float, 1> before_scale_;
    std::optional<Tensor<float, 2>> behind_;
    std::optional<Tensor<float, 1>> behind_scale_;
    Keys all_;
    Coordinates basis_;
    Near near_;
    MomentStates up_{}, down_{};
};

MomentStates state_of(const Tensor<float, 2>& sums, const Tensor<float, 1>& log_scale, size_t dim, size_t rank, size_t columns) {
    expect(sums.shape(0) == 1 + dim + rank * (rank + 1) / 2 && sums.shape(1) == columns && log_scale.shape(0) == 1,
           "a state of another size");
    return {sums.data(), log_scale.data()};
}

// See `Attention::append`; sums are [1 + dim + rank (rank + 1) / 2, value dim + 1], log_scale [1].
void append(Matrix k, Matrix v, Vector key_centre, Vector query_centre, Matrix key_map, Matrix query_map,
            Tensor<float, 2> sums, Tensor<float, 1> log_scale) {
    const size_t dim = k.shape(1);
    expect(v.shape(0) == k.shape(0) && key_centre.shape(0) == dim, "keys and values disagree in shape");
    const Coordinates basis = coordinates_of(query_centre, key_map, query_map, dim);
    const MomentStates state = state_of(sums, log_scale, dim, key_map.shape(0), v.shape(1) + 1);
    const Tokens tokens{k.data(), v.data(), int64_t(k.shape(0)), int64_t(dim), int64_t(v.shape(1)), key_centre.data()};
    nb::gil_scoped_release released;
    active()->append(tokens, basis, state);
}

// See `Attention::read`.
void read(Matrix q, float scale, Vector query_centre, Matrix key_map, Matrix query_map, Tensor<float, 2> sums,
          Tensor<float, 1> log_scale, Tensor<float, 2> out, Tensor<bool, 1> bad) {
    const size_t dim = q.shape(1), columns = out.shape(1) + 1;
    expect(out.shape(0) == q.shape(0) && bad.shape(0) == q.shape(0), "queries and output disagree in shape");
    const Coordinates basis = coordinates_of(query_centre, key_map, query_map, dim);
    const MomentStates state = state_of(sums, log_scale, dim, key_map.shape(0), columns);
    nb::gil_scoped_release released;
    active()->read(q.data(), int64_t(q.shape(0)), int64_t(dim), int64_t(columns), scale, basis, state, out.data(), bad.data());
}

}  // namespace

void bind_attention(nb::module_& module, const Attention* (*running)()) {
    active = running;
    const auto given = nb::arg().noconvert();  // a copy in another dtype would take the answer with it
    const auto maybe = nb::arg().noconvert().none();
    nb::class_<HybridHead>(module, "HybridHead")
        .def(nb::init<Tensor<const float, 3>, Tensor<const float, 3>, Matrix, Vector,
                      Matrix, Matrix, Matrix, Matrix,
                      Tensor<const int64_t, 1>, int64_t, int64_t, bool, int64_t, Tensor<float, 2>, Tensor<float, 1>,
                      std::optional<Tensor<float, 2>>, std::optional<Tensor<float, 1>>>(),
             given, given, given, given, given, given, given, given, given, nb::arg(), nb::arg(), nb::arg(), nb::arg(), given, given, maybe, maybe)
        .def("sum", &HybridHead::sum)
        .def("attend", &HybridHead::attend, given, nb::arg(), given, given)
        .def("orders", &HybridHead::orders, given, given, given, given, given);
    module.def("append", &append, given, given, given, given, given, given, given, given);
    module.def("read", &read, given, nb::arg(), given, given, given, given, given, given, given);
    module.def("fuses", [] { return active()->fuses; });
}

}  // namespace logitd

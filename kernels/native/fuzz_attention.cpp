// Random heads through attention of every instruction set: the bits must be the same. Built with sanitizers by `make sanitize`;
// exits 1 at the first difference.
//
//   fuzz_attention ROUNDS [SEED]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "attention.h"
#include "row.h"

using namespace logitd;

namespace {

using Floats = std::vector<float>;

struct Random {
    std::mt19937_64 bits;
    int64_t below(int64_t n) { return int64_t(bits() % uint64_t(n)); }
    Floats normal(int64_t count, float spread) {
        Floats drawn(static_cast<size_t>(count));
        for (float& x : drawn) x = spread * std::normal_distribution<float>()(bits);
        return drawn;
    }
};

struct States {
    Floats sums, log_scale;
    States(int64_t count, int64_t size) : sums(size_t(count * size)), log_scale(size_t(count), -std::numeric_limits<float>::infinity()) {}
    MomentStates face() { return {sums.data(), log_scale.data()}; }
};

// A head, laid out exactly as large as it says: a sanitizer sees each read past it.
struct Case {
    int64_t dim, value_dim, rank, count, queries, heavy, blocks, start;
    bool causal;
    Floats q, k, v, hidden, centre, key_map, query_map, heavy_k, heavy_v;
    std::vector<int64_t> places, block;

    explicit Case(Random& random) {
        dim = 1 + random.below(40), value_dim = 1 + random.below(40), rank = 1 + random.below(dim);
        causal = random.below(2), blocks = causal + random.below(4), start = random.below(3);
        queries = 1 + random.below(4), count = start + blocks + queries - 1 + random.below(3), heavy = random.below(9);
        q = random.normal(queries * block_size * dim, 0.5f), k = random.normal(count * block_size * dim, 0.5f);
        v = random.normal(count * block_size * (value_dim + 1), 1), hidden = Floats(size_t(count * block_size));
        for (float& x : hidden)
            if (random.below(5) == 0) x = -std::numeric_limits<float>::infinity();
        for (int64_t j = 0; j < count * block_size; j++) v[size_t(j * (value_dim + 1) + value_dim)] = 1;
        centre = random.normal(dim, 0.3f), key_map = random.normal(rank * dim, 0.3f), query_map = random.normal(rank * dim, 0.3f);
        heavy_k = random.normal(heavy * dim, 0.5f), heavy_v = random.normal(heavy * (value_dim + 1), 1);
        for (int64_t j = 0; j < heavy; j++) places.push_back(random.below(queries * block_size));
        for (int64_t j = 0; j < 7; j++) block.push_back(random.below(queries));
    }

    int64_t size() const { return (1 + dim + rank * (rank + 1) / 2) * (value_dim + 1); }

    Floats run(const Attention& attention) const {
        const Keys keys{k.data(), v.data(), hidden.data(), count, dim, value_dim + 1};
        const Coordinates basis{centre.data(), key_map.data(), query_map.data(), rank};
        const Near near{start, blocks, causal, 0, heavy_k.data(), heavy_v.data(), places.data(), heavy};
        States before(count + 1, size()), behind(count + 1, size()), state(1, size());
        const MomentStates none{nullptr, nullptr}, down = causal ? none : behind.face();
        attention.sums(keys, basis, before.face(), down);
        Floats out(size_t(queries * block_size * value_dim));
        const std::unique_ptr<bool[]> bad(new bool[size_t(queries * block_size)]);
        attention.attend(q.data(), queries, keys, basis, near, before.face(), down, {0.9f, 1.1f, 0.8f}, out.data(), bad.get());
        Floats all = out;
        if (!causal) {
            Floats exact(7 * size_t(value_dim + 1)), far(3 * exact.size()), total(7, 3.0f);
            attention.orders({q.data(), block.data(), total.data(), 7, exact.data(), far.data()}, keys, basis, near,
                             before.face(), down);
            all.insert(all.end(), exact.begin(), exact.end());
            all.insert(all.end(), far.begin(), far.end());
        }
        const int64_t tokens = count * block_size - start;
        const Floats values(v.begin(), v.begin() + tokens * value_dim);
        attention.append({k.data(), values.data(), tokens, dim, value_dim, centre.data()}, basis, state.face());
        attention.read(q.data(), queries * block_size - 5, dim, value_dim + 1, 0.5f, basis, state.face(), out.data(), bad.get());
        all.insert(all.end(), out.begin(), out.end());
        return all;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 300;
    Random random{std::mt19937_64(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1)};
    std::vector<const Kernels*> all{&kernels_portable};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&kernels_avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) all.push_back(&kernels_avx512);
#endif
    for (int round = 0; round < rounds; round++) {
        const Case made(random);
        const Floats wanted = made.run(*all[0]->attention);
        for (const Kernels* kernels : all) {
            const Floats found = made.run(*kernels->attention);
            for (size_t i = 0; i < wanted.size(); i++)
                if (std::memcmp(&found[i], &wanted[i], 4) != 0) {
                    std::printf("round %d, %s, number %zu: %g, portable has %g\n", round, kernels->isa, i, double(found[i]),
                                double(wanted[i]));
                    return 1;
                }
        }
    }
    std::printf("%d heads, %zu instruction sets: no difference\n", rounds, all.size());
}

// Philox4x32-10 (Salmon et al. 2011, Random123) and the 53-bit uniform of one draw; see logitd_kernels/philox.py.
#pragma once

#include <cstdint>

namespace logitd {

inline double uniform(uint64_t seed, uint32_t stream, uint32_t step, uint32_t draw, uint32_t purpose) {
    uint32_t c0 = step, c1 = stream, c2 = draw, c3 = purpose, k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
        c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
        c1 = uint32_t(p1);
        c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c3 = uint32_t(p0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const uint64_t bits = (uint64_t(c0 >> 5) << 26) + (c1 >> 6);
    return (double(bits) + 0.5) / 9007199254740992.0;
}

}  // namespace logitd

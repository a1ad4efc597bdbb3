// What one pass over a row finds: the largest logit of each block and of all, whether any is bad, how many are finite.
#pragma once

#include "source.h"

namespace logitd::LOGITD_ISA {

// What one pass over a row finds.
template <typename Real>
struct Overview {
    Real* maxima;  // of each block
    Real largest;
    Real smallest;  // in the row as sent
    int64_t finite;
    bool bad;  // a NaN or +inf, in the row as sent
};

template <typename Real>
inline bool any_bad(const Real* values) {
    bool bad = false;
    for (int i = 0; i < block; i++) bad |= !(values[i] < std::numeric_limits<Real>::infinity());
    return bad;
}

// A block that had to be written out first.
template <typename T>
inline void summarise(const Source<T>& source, const typename Source<T>::Real* values, int64_t b,
                      Overview<typename Source<T>::Real>& found) {
    typename Source<T>::Real largest = Source<T>::nothing, smallest = -largest;
    const int64_t begin = b * block, count = std::min<int64_t>(block, source.vocab - begin);
    for (int64_t i = 0; i < count; i++) {
        const bool allowed = source.allowed(begin + i);
        largest = allowed && values[i] > largest ? values[i] : largest;
        smallest = values[i] < smallest ? values[i] : smallest;
    }
    found.maxima[b] = largest;
    found.largest = largest > found.largest ? largest : found.largest;
    found.smallest = smallest < found.smallest ? smallest : found.smallest;
}

// A whole block in registers. Where it may hide something, only the maximum minds.
template <bool masked, typename T>
inline float summarise_whole(const Source<T>& source, int64_t b, Flags& bad, F& smallest) {
    const F infinity = splat(std::numeric_limits<float>::infinity());
    F largest[2] = {-infinity, -infinity}, least[2] = {smallest, smallest};
    Flags found = bad;
    for (int i = 0; i < block; i += 2 * width)
        for (int j = 0; j < 2; j++) {
            const F x = load(source.at(b) + i + j * width), more = larger(x, largest[j]);
            found |= not_below(x, infinity);
            largest[j] = masked ? only(more, source.bits(b, i + j * width), largest[j]) : more;
            least[j] = smaller(x, least[j]);
        }
    bad = found;
    smallest = smaller(least[0], least[1]);
    return largest_of(larger(largest[0], largest[1]));
}

template <typename T>
inline int64_t count_finite(const Source<T>& source) {
    typename Source<T>::Real buffer[block];
    int64_t finite = 0;
    for (int64_t b = 0; b < source.blocks(); b++) {
        const auto* logits = source.read(b, buffer);
        int32_t own = 0;
        for (int i = 0; i < block; i++) own += logits[i] > Source<T>::nothing;
        finite += own;
    }
    return finite;
}

template <typename T>
inline Overview<typename Source<T>::Real> overview(const Source<T>& source, typename Source<T>::Real* maxima) {
    using Real = typename Source<T>::Real;
    Overview<Real> found{maxima, Source<T>::nothing, -Source<T>::nothing, 0, false};
    Flags bad{};
    F smallest = splat(std::numeric_limits<float>::infinity());
    Real buffer[block];
    for (int64_t b = 0; b < source.blocks(); b++) {
        if constexpr (!std::is_same_v<T, double>) {
            if (source.whole(b)) {
                maxima[b] = source.mask ? summarise_whole<true>(source, b, bad, smallest)
                                        : summarise_whole<false>(source, b, bad, smallest);
                found.largest = maxima[b] > found.largest ? maxima[b] : found.largest;
                continue;
            }
        }
        source.fill(b, buffer);
        found.bad |= any_bad(buffer);
        summarise(source, buffer, b, found);
    }
    found.bad |= any(bad);
    if constexpr (!std::is_same_v<T, double>) found.smallest = std::min(found.smallest, smallest_of(smallest));
    const bool all = found.smallest > Source<T>::nothing;
    found.finite = all ? source.vocab - source.hidden() : found.bad ? 0 : count_finite(source);
    return found;
}

}  // namespace logitd::LOGITD_ISA

// The head of a row: its largest logits, sorted, with running sums. It grows until it answers, or would be long.
#pragma once

#include "tokens.h"

namespace logitd::LOGITD_ISA {

template <typename T>
class Head {
public:
    using Real = typename Source<T>::Real;

    Head(const Tokens<T>& row, Scratch& scratch) : row_(row), scratch_(scratch) {}

    int64_t size() const { return size_; }
    bool too_long() const { return too_long_; }
    double logit(int64_t rank) const { return head_[rank].logit; }
    Token token(int64_t rank) const { return {head_[rank].id, head_[rank].logit, rank}; }
    Prefix prefix(int64_t count) const { return {count, masses_[count - 1], energies_[count - 1]}; }

    // The first rank whose running mass reaches `mass` (or passes it, when not inclusive); `size()` for none.
    int64_t search(double mass, bool inclusive) const {
        int64_t low = 0, high = size_;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (inclusive ? masses_[middle] < mass : masses_[middle] <= mass) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    bool widen_to_count(int64_t count) {
        return widen(count, [&] { return size_ >= count; });
    }
    bool widen_to_floor(double floor) {
        return widen(narrow, [&] { return size_ > 0 && head_[size_ - 1].logit < floor; });
    }
    bool widen_to_mass(double mass) {
        return widen(narrow, [&] { return size_ > 0 && masses_[size_ - 1] > mass; });
    }

private:
    static constexpr int64_t narrow = 64, widest = 1024;

    bool complete() const { return size_ == row_.finite; }

    // Grows the head until `enough`, the row is exhausted, or the head would be long; true when it answers.
    template <typename Enough>
    bool widen(int64_t count, Enough enough) {
        if (size_ > 0 && (enough() || complete())) return true;
        if (count > widest || too_long_) return false;
        if (size_ < count) collect(std::min(std::max(count, narrow), row_.source.blocks()));
        for (double window = 2; !enough() && !complete(); window *= 2) {
            if (window > 64 || !collect_above(head_[size_ - 1].logit - window * row_.temperature)) {
                too_long_ = true;
                return false;
            }
        }
        return true;
    }

    // The `count` largest, at most one a block: what reaches the count-th largest block maximum holds them, and fewer
    // than `count` blocks hold anything above it.
    void collect(int64_t count) {
        const int64_t blocks = row_.source.blocks();
        Real* sorted = static_cast<Real*>(scratch_.take(1, blocks * sizeof(Real)));
        std::memcpy(sorted, row_.seen.maxima, blocks * sizeof(Real));
        std::nth_element(sorted, sorted + count - 1, sorted + blocks, [](Real a, Real b) { return a > b; });
        const Real floor = sorted[count - 1];
        int32_t* ids = room();
        int64_t size = 0, ties = 0;
        scan(floor, [&](int64_t id, Real logit) {
            const bool tie = logit == floor && ties < count;
            ids[size] = int32_t(id);
            size += logit > floor || tie;
            ties += tie;
            return true;
        });
        for (int64_t i = 0; i < row_.edits; i++) {
            ids[size] = int32_t(row_.edited[i].id);
            size += row_.edited[i].logit >= double(floor);
        }
        const int64_t most = size == row_.finite && size <= widest ? size : count;  // a short row is its own head
        if (size > 2 * widest) {
            std::nth_element(ids, ids + most, ids + size, [this](int32_t a, int32_t b) {
                return before({row_.logit_of(a), a}, {row_.logit_of(b), b});
            });
            size = most;
        }
        order(ids, size, most);
    }

    // Everything at or above a floor, unless that is too much for a head.
    bool collect_above(double floor) {
        int32_t* ids = room();
        int64_t size = 0;
        const bool fits = scan(not_below(floor), [&](int64_t id, Real) {
            ids[size++] = int32_t(id);
            return size <= widest;
        });
        if (!fits) return false;
        for (int64_t i = 0; i < row_.edits; i++) {
            ids[size] = int32_t(row_.edited[i].id);
            size += row_.edited[i].logit >= floor;
        }
        if (size > widest) return false;
        order(ids, size, size);
        return true;
    }

    // The smallest number of the row's precision that is at least `floor`, so that comparing rounds nothing.
    static Real not_below(double floor) {
        const Real rounded = Real(std::max(floor, -double(std::numeric_limits<Real>::max())));
        return double(rounded) >= floor ? rounded : std::nextafter(rounded, std::numeric_limits<Real>::infinity());
    }

    // Calls use(id, logit) for every finite token at or above a floor, by ascending id, until it answers false.
    template <typename Use>
    bool scan(Real floor, Use use) {
        Real buffer[block];
        for (int64_t b = 0; b < row_.source.blocks(); b++) {
            if (row_.seen.maxima[b] < floor || row_.seen.maxima[b] == Source<T>::nothing) continue;
            const bool fits = row_.source.whole(b) && !std::is_same_v<T, double>
                                  ? scan_whole(b, floor, use)
                                  : scan_read(row_.source.read(b, buffer), b, floor, use);
            if (!fits) return false;
        }
        return true;
    }

    // A whole block where it lies: few of its registers hold anything at or above the floor.
    template <typename Use>
    bool scan_whole(int64_t b, Real floor, Use& use) {
        if constexpr (!std::is_same_v<T, double>) {
            const Source<T>& source = row_.source;
            const T* logits = source.at(b);
            for (int i = 0; i < block; i += width) {
                if (!any(logitd::LOGITD_ISA::not_below(load(logits + i), splat(floor)))) continue;
                for (int j = i; j < i + width; j++) {
                    const Real logit = scalar(logits[j]);
                    const int64_t id = b * block + j;
                    if (logit >= floor && logit > Source<T>::nothing && source.allowed(id) && !use(id, logit)) return false;
                }
            }
        }
        return true;
    }

    template <typename Use>
    static bool scan_read(const Real* logits, int64_t b, Real floor, Use& use) {
        for (int i = 0; i < block; i++)
            if (logits[i] >= floor && logits[i] > Source<T>::nothing && !use(b * block + i, logits[i])) return false;
        return true;
    }

    int32_t* room() {
        return static_cast<int32_t*>(scratch_.take(4, (row_.source.vocab + block + row_.edits) * sizeof(int32_t)));
    }

    // Makes tokens the head, the first `most` of them: sorted, with running sums.
    void order(const int32_t* ids, int64_t size, int64_t most) {
        head_ = static_cast<Candidate*>(scratch_.take(2, size * sizeof(Candidate)));
        for (int64_t i = 0; i < size; i++) head_[i] = {row_.logit_of(ids[i]), ids[i]};
        if (size > most) std::nth_element(head_, head_ + most, head_ + size, before);
        size = std::min(size, most);
        std::sort(head_, head_ + size, before);
        masses_ = static_cast<double*>(scratch_.take(3, 2 * size * sizeof(double)));
        energies_ = masses_ + size;
        double mass = 0, energy = 0;
        for (int64_t i = 0; i < size; i++) {
            const double d = row_.delta(head_[i].logit), one = exp(d);
            masses_[i] = mass += one;
            energies_[i] = energy -= one * std::max(d, -1e6);
        }
        size_ = size;
    }

    const Tokens<T>& row_;
    Scratch& scratch_;
    bool too_long_ = false;
    Candidate* head_ = nullptr;
    double* masses_ = nullptr;
    double* energies_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace logitd::LOGITD_ISA

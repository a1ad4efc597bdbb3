// Whether a head is in the total order (logit descending, token id ascending) and names each token once.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace logitd {

inline bool any_nan(const std::vector<double>& numbers) {
    bool found = false;
    for (double x : numbers) found |= x != x;
    return found;
}

inline bool in_order(const std::vector<double>& logits, const std::vector<int64_t>& ids) {
    const double nothing = -std::numeric_limits<double>::infinity();
    for (size_t i = 1; i < logits.size(); i++) {
        if (logits[i] < logits[i - 1]) continue;
        if (logits[i] != logits[i - 1] || !(ids[i] > ids[i - 1] || logits[i] == nothing)) return false;
    }
    return true;
}

// A set of token ids, empty again after each question.
class IdSet {
public:
    explicit IdSet(int64_t vocab) : vocab_(vocab), words_((vocab + 63) / 64) {}

    // Whether all are tokens of the vocabulary, none twice.
    bool distinct(const std::vector<int64_t>& ids) {
        uint64_t outside = 0;  // below 0 or above the last id, in the sign bit
        for (int64_t id : ids) outside |= uint64_t(id) | (uint64_t(vocab_ - 1) - uint64_t(id));
        if (outside >> 63) return false;
        uint64_t twice = 0;
        for (int64_t id : ids) {
            uint64_t& word = words_[id >> 6];
            const uint64_t bit = uint64_t(1) << (id & 63);
            twice |= word & bit;
            word |= bit;
        }
        for (int64_t id : ids) words_[id >> 6] = 0;
        return twice == 0;
    }

private:
    int64_t vocab_;
    std::vector<uint64_t> words_;
};

}  // namespace logitd

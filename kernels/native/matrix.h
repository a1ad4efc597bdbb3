// A matrix of 4- or 8-byte numbers in memory that others own: a tensor of the caller's, perhaps shared with his process.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace logitd {

// The caller keeps it alive. Strides are in numbers.
struct Matrix {
    const char* address;
    int64_t item_bytes, row_stride, stride;

    void logits(int64_t row, std::vector<double>& out) const { copy<float>(row, out); }
    void ids(int64_t row, std::vector<int64_t>& out) const { copy<int32_t>(row, out); }

    // Copies a row, because another process may write to it meanwhile.
    template <typename Narrow, typename Wide>
    void copy(int64_t row, std::vector<Wide>& out) const {
        if (item_bytes == sizeof(Wide)) {
            copy_from<Wide>(row, out);
        } else {
            copy_from<Narrow>(row, out);
        }
    }
    int64_t whole(int64_t row, int64_t place) const {
        return item_bytes == 8 ? read<int64_t>(at(row, place)) : read<int32_t>(at(row, place));
    }
    double real(int64_t row, int64_t place) const {
        return item_bytes == 8 ? read<double>(at(row, place)) : read<float>(at(row, place));
    }

private:
    const char* at(int64_t row, int64_t place) const { return address + (row * row_stride + place * stride) * item_bytes; }

    template <typename T>
    static T read(const char* at) {
        T number;
        std::memcpy(&number, at, sizeof(T));
        return number;
    }

    template <typename T, typename Wide>
    void copy_from(int64_t row, std::vector<Wide>& out) const {
        const char* begin = address + row * row_stride * item_bytes;
        const int64_t size = int64_t(out.size());
        if (stride == 1) {
            for (int64_t i = 0; i < size; i++) out[i] = Wide(read<T>(begin + i * int64_t(sizeof(T))));
        } else {
            for (int64_t i = 0; i < size; i++) out[i] = Wide(read<T>(begin + i * stride * int64_t(sizeof(T))));
        }
    }
};

}  // namespace logitd

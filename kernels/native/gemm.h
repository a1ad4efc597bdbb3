// Products of small matrices, in registers: every element is summed up over the depth in order, by one chain of multiply-adds.
#pragma once

#include "lanes.h"

namespace logitd::LOGITD_ISA {

// The left factor: element (i, k) stands at i · row + k · column, so that it may be a transpose.
struct Left {
    const float* at;
    int64_t row, column;
};

constexpr int lane_panel = 16;  // columns of a product come in panels of so many
constexpr int panel_registers = lane_panel / width;
constexpr int broad = panel_registers == 1 ? 4 : panel_registers;  // registers of a tile's row
#if defined(__AVX2__) || defined(__ARM_NEON)
constexpr int tall = 6;  // rows of a tile: accumulators must fit the registers
#else
constexpr int tall = 2;
#endif

template <int rows, int across>
inline void product_tile(Left left, const float* right, int64_t right_row, float* out, int64_t out_row, int64_t depth, bool add) {
    F sums[rows][across];
    for (int i = 0; i < rows; i++)
        for (int r = 0; r < across; r++) sums[i][r] = add ? load(out + i * out_row + r * width) : F{};
    for (int64_t k = 0; k < depth; k++) {
        F line[across];
        for (int r = 0; r < across; r++) line[r] = load(right + k * right_row + r * width);
        for (int i = 0; i < rows; i++) {
            const F factor = splat(left.at[i * left.row + k * left.column]);
            for (int r = 0; r < across; r++) sums[i][r] = fma(factor, line[r], sums[i][r]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int r = 0; r < across; r++) std::memcpy(out + i * out_row + r * width, &sums[i][r], sizeof(F));
}

template <int across>
inline void product_panel(Left left, const float* right, int64_t right_row, float* out, int64_t out_row, int64_t rows,
                          int64_t depth, bool add) {
    int64_t i = 0;
    const auto at = [&](int64_t row) { return Left{left.at + row * left.row, left.row, left.column}; };
    for (; i + tall <= rows; i += tall)
        product_tile<tall, across>(at(i), right, right_row, out + i * out_row, out_row, depth, add);
    for (; i + 2 <= rows; i += 2) product_tile<2, across>(at(i), right, right_row, out + i * out_row, out_row, depth, add);
    for (; i < rows; i++) product_tile<1, across>(at(i), right, right_row, out + i * out_row, out_row, depth, add);
}

// out [rows, columns] = left · right [depth, columns], or that much more of it with `add`. Columns are whole panels.
inline void product(Left left, const float* right, int64_t right_row, float* out, int64_t out_row, int64_t rows,
                    int64_t columns, int64_t depth, bool add = false) {
    int64_t c = 0;
    for (; c + broad * width <= columns; c += broad * width)
        product_panel<broad>(left, right + c, right_row, out + c, out_row, rows, depth, add);
    for (; c < columns; c += lane_panel)
        product_panel<panel_registers>(left, right + c, right_row, out + c, out_row, rows, depth, add);
}

}  // namespace logitd::LOGITD_ISA

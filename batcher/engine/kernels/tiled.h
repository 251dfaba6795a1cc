/*
 * Tiled: matrix products of float activations with quantized weights: what of them lies where, and the products of each instruction set.
 *
 * Weights lie in tiles of 16 rows; a tile holds its blocks one after the other along the columns, so that a product reads memory once,
 * front to back. One block of a tile, with B = block columns (16 or 32):
 *
 *   16 scales   (float16 or float32, one a row)
 *   16 offsets  (the same type; absent in 8-bit blocks)
 *   levels      4 bits: 4 groups of 64 bytes; byte 4 * row + i of group j holds column 4 j + i (low half) and 16 + 4 j + i (high half)
 *               8 bits: B / 4 groups of 64 bytes; byte 4 * row + i of group j holds column 4 j + i, signed
 *
 *   weight = scale * level + offset
 *
 * Activations are rounded to 8 bits with a scale for each block, as onnxruntime's and llama.cpp's kernels do. Every row of the result is
 * computed by the same operations in the same order whatever the other rows are, however the work is split and whatever the instruction
 * set: the same bits at every batch size on every host.
 */
#ifndef SLUICE_TILED_H
#define SLUICE_TILED_H

#include <stddef.h>
#include <stdint.h>

enum { TILE_ROWS = 16 };

/* Rows of activations in 8 bits: levels [rows][columns]; scales and sums (scale times the sum of the levels) [rows][blocks]. */
typedef struct {
  int8_t *levels;
  float *scales;
  float *sums;
} Activations;

typedef struct {
  int64_t columns;
  /* Rows of the matrix; with `is_gated`, tiles of gate and up take turns, and there are half as many results. */
  int64_t matrix_rows;
  int bits;
  int block;
  int is_half;
  int is_gated;
} MatrixShape;

typedef struct {
  const MatrixShape *shape;
  const float *x;
  const uint8_t *weights;
  float *y;
  int64_t rows;
  Activations activations;
  int64_t part_rows;
  /* Results of a part: whole tiles, or pairs of them. */
  int64_t part_tiles;
} Product;

/* One part of a product whose activations are rounded. The second is for processors with AVX-512 F, BW, DQ, VL and VNNI. */
void multiply_part_avx2(void *product, size_t part);
void multiply_part_vnni(void *product, size_t part);

static inline int64_t tile_bytes(const MatrixShape *s) {
  const int64_t scale_bytes = TILE_ROWS * (s->is_half ? 2 : 4);
  const int64_t block_bytes = s->bits == 4 ? 2 * scale_bytes + TILE_ROWS * 16 : scale_bytes + TILE_ROWS * (int64_t)s->block;
  return s->columns / s->block * block_bytes;
}

#endif

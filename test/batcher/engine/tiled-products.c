/*
 * Products of random tiles with random activations, by each instruction set of this processor, beside the same sums written out one by one in the
 * same order: prints how many results were compared, and ends with 1 at the first that differs in a bit.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lanes.h"
#include "tiled.h"

enum { MOST_ROWS = 19, MOST_COLUMNS = 256, MOST_MATRIX_ROWS = 96 };

static uint32_t state = 1;
static uint32_t random_bits(void) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}
static float random_float(void) { return ((float)(random_bits() & 0xffff) - 32768.0f) / 16384.0f; }

TARGET static uint16_t half_of(float x) { return (uint16_t)_cvtss_sh(x, 0); }
TARGET static float float_of(uint16_t half) { return _cvtsh_ss(half); }

static void fill_tiles(const MatrixShape *s, uint8_t *at) {
  const int scale_count = TILE_ROWS * (s->bits == 4 ? 2 : 1);
  const int level_bytes = TILE_ROWS * (s->bits == 4 ? 16 : s->block);
  for (int64_t block = 0; block < s->matrix_rows / TILE_ROWS * (s->columns / s->block); block++) {
    for (int i = 0; i < scale_count; i++) {
      const float scale = random_float() / 8;
      const uint16_t half = half_of(scale);
      if (s->is_half) memcpy(at, &half, 2);
      else memcpy(at, &scale, 4);
      at += s->is_half ? 2 : 4;
    }
    for (int i = 0; i < level_bytes; i++) *at++ = (uint8_t)random_bits();
  }
}

static float scale_at(const uint8_t *at, int index, int is_half) {
  uint16_t half;
  float scale;
  memcpy(&half, at + 2 * index, 2);
  if (is_half) return float_of(half);
  memcpy(&scale, at + 4 * index, 4);
  return scale;
}

static float expected(const Product *p, int64_t row, int64_t matrix_row) {
  const MatrixShape *s = p->shape;
  const int lane = (int)(matrix_row % TILE_ROWS), scale_bytes = TILE_ROWS * (s->is_half ? 2 : 4);
  const int64_t blocks = s->columns / s->block;
  const uint8_t *at = p->weights + matrix_row / TILE_ROWS * tile_bytes(s);
  float y = 0;
  for (int64_t b = 0; b < blocks; b++) {
    const int8_t *levels = p->activations.levels + row * s->columns + b * s->block;
    const uint8_t *quants = at + scale_bytes * (s->bits == 4 ? 2 : 1);
    int32_t dot = 0;
    for (int column = 0; column < s->block; column++) {
      const uint8_t byte = quants[4 * TILE_ROWS * (column % (s->bits == 4 ? 16 : 32) / 4) + 4 * lane + column % 4];
      const int weight = s->bits == 8 ? (int8_t)byte : column < 16 ? byte & 15 : byte >> 4;
      dot += weight * levels[column];
    }
    y = fmaf((float)dot * scale_at(at, lane, s->is_half), p->activations.scales[row * blocks + b], y);
    if (s->bits == 4) y = fmaf(scale_at(at + scale_bytes, lane, s->is_half), p->activations.sums[row * blocks + b], y);
    at = quants + TILE_ROWS * (s->bits == 4 ? 16 : s->block);
  }
  return y;
}

static long compare(const MatrixShape *s, int64_t rows, void (*multiply_part)(void *, size_t)) {
  static uint8_t weights[MOST_MATRIX_ROWS * MOST_COLUMNS * 2];
  static int8_t levels[MOST_ROWS * MOST_COLUMNS];
  static float scales[MOST_ROWS * MOST_COLUMNS], sums[MOST_ROWS * MOST_COLUMNS];
  static float y[MOST_ROWS * MOST_MATRIX_ROWS], by_avx2[MOST_ROWS * MOST_MATRIX_ROWS];
  fill_tiles(s, weights);
  for (int64_t i = 0; i < rows * s->columns; i++) levels[i] = (int8_t)(random_bits() % 255 - 127);
  for (int64_t i = 0; i < rows * s->columns / s->block; i++) scales[i] = fabsf(random_float()), sums[i] = random_float();
  const int64_t width = s->is_gated ? s->matrix_rows / 2 : s->matrix_rows;
  Product p = {s, NULL, weights, y, rows, {levels, scales, sums}, 0, 2};
  const int64_t parts = (width / TILE_ROWS + 1) / 2;
  for (int64_t part = 0; part < parts; part++) multiply_part(&p, (size_t)part);
  if (s->is_gated) {
    p.y = by_avx2;
    for (int64_t part = 0; part < parts; part++) multiply_part_avx2(&p, (size_t)part);
    if (memcmp(y, by_avx2, (size_t)(rows * width) * sizeof *y) == 0) return rows * width;
    printf("gated products of %d bits differ from those by AVX2\n", s->bits);
    exit(1);
  }
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t column = 0; column < width; column++) {
      const float wanted = expected(&p, row, column);
      if (memcmp(&wanted, &y[row * width + column], sizeof wanted) == 0) continue;
      printf("%d bits, blocks of %d, half %d, %d rows: %.9g instead of %.9g\n", s->bits, s->block, s->is_half, (int)rows,
             (double)y[row * width + column], (double)wanted);
      exit(1);
    }
  }
  return rows * width;
}

static long compare_all(void (*multiply_part)(void *, size_t)) {
  static const int forms[][2] = {{4, 32}, {8, 32}, {8, 16}};
  long count = 0;
  for (int form = 0; form < 3; form++)
    for (int is_half = 0; is_half < 2; is_half++)
      for (int is_gated = 0; is_gated < 2; is_gated++)
        for (int64_t rows = 1; rows <= MOST_ROWS; rows++) {
          const MatrixShape s = {32 * (1 + random_bits() % 8), MOST_MATRIX_ROWS, forms[form][0], forms[form][1], is_half, is_gated};
          count += compare(&s, rows, multiply_part);
        }
  return count;
}

int main(void) {
  printf("avx2 %ld\n", compare_all(multiply_part_avx2));
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
    printf("vnni %ld\n", compare_all(multiply_part_vnni));
  return 0;
}

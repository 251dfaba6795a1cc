/*
 * TiledProducts: products of a tile with rows of activations, for each file that says with what instructions: the lanes, MULTIPLY_PART, the rows
 * of a group (a multiple of 4), and how products of levels are summed up, 4 of a row in each lane.
 */
#include <string.h>

LANEWISE Ints four_levels(const int8_t *levels) {
  int32_t word;
  memcpy(&word, levels, 4);
  return ints_of(word);
}

/* Bytes of weights asked for ahead of their use, measured; and blocks after which the sides of a tile take turns. */
enum { PREFETCH_BYTES = 2560, BLOCK_RUN = 6 };

/* Where the rows keep the processor busy, it would ask for the weights too late by itself; where they do not, it is quicker alone. */
LANEWISE void prefetch_block(const uint8_t *at, int bytes, int rows) {
  if (rows < 4) return;
  for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)at + PREFETCH_BYTES + i, _MM_HINT_T0);
}

/* A tile has as many rows as the widest instructions have lanes; others take its sides one after the other. */
enum { SIDES = TILE_ROWS / LANES };

/* Blocks [first, end) of LANES rows of the tile, from `lane` on: y[r] goes on with row r of the activations, which are `columns` apart. */
LANEWISE void blocks_of_4_bits(const uint8_t *tile, int lane, int is_half, int64_t columns, const Activations *a, int64_t row, int rows,
                               int64_t first, int64_t end, Floats *y) {
  const int64_t blocks = columns / 32;
  const int scale_bytes = TILE_ROWS * (is_half ? 2 : 4), block_bytes = 2 * scale_bytes + TILE_ROWS * 16;
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  const float *sums = a->sums + row * blocks;
  const uint8_t *at = tile + first * block_bytes;
  for (int64_t b = first; b < end; b++, at += block_bytes) {
    if (lane == 0) prefetch_block(at, block_bytes, rows);
    const Floats scale = load_numbers(at, lane, is_half);
    const Floats offset = load_numbers(at + scale_bytes, lane, is_half);
    const uint8_t *quants = at + 2 * scale_bytes + 4 * lane;
    Ints dots[ROW_GROUP];
    for (int r = 0; r < rows; r++) dots[r] = ints_of(0);
    for (int j = 0; j < 4; j++) {
      const Ints both = load_ints(quants + 4 * TILE_ROWS * j);
      const Ints low = low_halves(both), high = high_halves(both);
      for (int r = 0; r < rows; r++) {
        const int8_t *four = levels + r * columns + 32 * b + 4 * j;
        dots[r] = add_4_bits(dots[r], low, four_levels(four));
        dots[r] = add_4_bits(dots[r], high, four_levels(four + 16));
      }
    }
    for (int r = 0; r < rows; r++) {
      const Floats dot = floats_from(total_of_4_bits(dots[r]));
      y[r] = multiply_add(multiply(dot, scale), floats_of(scales[r * blocks + b]), y[r]);
      y[r] = multiply_add(offset, floats_of(sums[r * blocks + b]), y[r]);
    }
  }
}

LANEWISE void blocks_of_8_bits(const uint8_t *tile, int lane, int is_half, int block, int64_t columns, const Activations *a, int64_t row, int rows,
                               int64_t first, int64_t end, Floats *y) {
  const int64_t blocks = columns / block;
  const int scale_bytes = TILE_ROWS * (is_half ? 2 : 4), block_bytes = scale_bytes + TILE_ROWS * block;
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  const uint8_t *at = tile + first * block_bytes;
  for (int64_t b = first; b < end; b++, at += block_bytes) {
    if (lane == 0) prefetch_block(at, block_bytes, rows);
    const Floats scale = load_numbers(at, lane, is_half);
    const uint8_t *quants = at + scale_bytes + 4 * lane;
    Ints dots[ROW_GROUP];
    for (int r = 0; r < rows; r++) dots[r] = ints_of(0);
    for (int j = 0; j < block / 4; j++) {
      const Ints weights = load_ints(quants + 4 * TILE_ROWS * j);
      for (int r = 0; r < rows; r++) dots[r] = add_8_bits(dots[r], weights, four_levels(levels + r * columns + block * b + 4 * j));
    }
    for (int r = 0; r < rows; r++) {
      const Floats dot = floats_from(dots[r]);
      y[r] = multiply_add(multiply(dot, scale), floats_of(scales[r * blocks + b]), y[r]);
    }
  }
}

/* gate * sigmoid(gate) * up */
LANEWISE Floats gated(Floats gate, Floats up) {
  const Floats one = floats_of(1.0f);
  /* sigmoid(-|g|) is small / (1 + small); that of |g| is 1 / (1 + small). */
  const Floats small = exp_of_negative(negative_size_of(gate));
  return multiply(multiply(gate, up), divide(if_negative(gate, small, one), add(one, small)));
}

/* y[side][r] = results of row r, for the rows of the tile LANES at a time. */
LANEWISE void tile_of(const MatrixShape *s, int bits, int block, int is_half, const uint8_t *tile, const Activations *a, int64_t row, int rows,
                      Floats y[SIDES][ROW_GROUP]) {
  for (int side = 0; side < SIDES; side++) {
    for (int r = 0; r < rows; r++) y[side][r] = floats_of(0);
  }
  /* Several sides take turns, so that memory is read front to back all the same. */
  const int64_t blocks = s->columns / block, run = SIDES == 1 ? blocks : BLOCK_RUN;
  for (int64_t first = 0; first < blocks; first += run) {
    const int64_t end = first + run < blocks ? first + run : blocks;
    for (int side = 0; side < SIDES; side++) {
      if (bits == 4) blocks_of_4_bits(tile, side * LANES, is_half, s->columns, a, row, rows, first, end, y[side]);
      else blocks_of_8_bits(tile, side * LANES, is_half, block, s->columns, a, row, rows, first, end, y[side]);
    }
  }
}

LANEWISE void any_tile(const MatrixShape *s, const uint8_t *tile, const Activations *a, int64_t row, int rows, Floats y[SIDES][ROW_GROUP]) {
  if (s->bits == 4) {
    if (s->is_half) tile_of(s, 4, 32, 1, tile, a, row, rows, y);
    else tile_of(s, 4, 32, 0, tile, a, row, rows, y);
  } else if (s->block == 32) {
    if (s->is_half) tile_of(s, 8, 32, 1, tile, a, row, rows, y);
    else tile_of(s, 8, 32, 0, tile, a, row, rows, y);
  } else {
    if (s->is_half) tile_of(s, 8, 16, 1, tile, a, row, rows, y);
    else tile_of(s, 8, 16, 0, tile, a, row, rows, y);
  }
}

LANEWISE void result_of(const Product *p, int64_t result_tile, int64_t row, int rows) {
  const MatrixShape *s = p->shape;
  const int64_t bytes = tile_bytes(s);
  const int factors = s->is_gated ? 2 : 1;
  const int64_t width = s->matrix_rows / factors;
  /* Of the gate and of what it lets through; or of the matrix. */
  Floats y[2][SIDES][ROW_GROUP];
  /* A loop, since the code of a tile is long. */
#pragma GCC unroll 1
  for (int f = 0; f < factors; f++) any_tile(s, p->weights + (factors * result_tile + f) * bytes, &p->activations, row, rows, y[f]);
  for (int side = 0; side < SIDES; side++) {
    for (int r = 0; r < rows; r++) {
      const Floats result = s->is_gated ? gated(y[0][side][r], y[1][side][r]) : y[0][side][r];
      store_floats(p->y + (row + r) * width + result_tile * TILE_ROWS + side * LANES, result);
    }
  }
}

TARGET void MULTIPLY_PART(void *data, size_t part) {
  const Product *p = data;
  const int64_t tiles = p->shape->matrix_rows / TILE_ROWS / (p->shape->is_gated ? 2 : 1);
  const int64_t first = (int64_t)part * p->part_tiles;
  const int64_t end = first + p->part_tiles < tiles ? first + p->part_tiles : tiles;
  /* A tile stays in the first-level cache while all rows pass. */
  for (int64_t tile = first; tile < end; tile++) {
    int64_t row = 0;
    for (; row + ROW_GROUP <= p->rows; row += ROW_GROUP) result_of(p, tile, row, ROW_GROUP);
    for (; row + 4 <= p->rows; row += 4) result_of(p, tile, row, 4);
    switch (p->rows - row) {
      case 3: result_of(p, tile, row, 3); break;
      case 2: result_of(p, tile, row, 2); break;
      case 1: result_of(p, tile, row, 1); break;
    }
  }
}

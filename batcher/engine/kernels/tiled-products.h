/*
 * TiledProducts: products of a tile with rows of activations, for each file that says with what instructions: TARGET and MULTIPLY_PART, the rows of
 * a group (a multiple of 4), and how products of levels are summed up, 4 of a row in each of 8 lanes.
 */
#include <string.h>

PRODUCT_INLINE __m256i four_levels(const int8_t *levels) {
  int32_t word;
  memcpy(&word, levels, 4);
  return _mm256_set1_epi32(word);
}

/* y[r] = 8 results of row r. The tile's blocks lie at `tile`; rows of the activations are `columns` apart. */
PRODUCT_INLINE void tile_of_4_bits(const uint8_t *tile, int is_half, int64_t columns, const Activations *a, int64_t row, int rows, __m256 *y) {
  const int64_t blocks = columns / 32;
  const int scale_bytes = is_half ? 16 : 32;
  const __m256i low_half = _mm256_set1_epi8(15);
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  const float *sums = a->sums + row * blocks;
  for (int r = 0; r < rows; r++) y[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    const __m256 scale = load_8(tile, 0, is_half);
    const __m256 offset = load_8(tile + scale_bytes, 0, is_half);
    const uint8_t *quants = tile + 2 * scale_bytes;
    __m256i dots[ROW_GROUP];
    for (int r = 0; r < rows; r++) dots[r] = _mm256_setzero_si256();
    for (int j = 0; j < 4; j++) {
      const __m256i both = _mm256_loadu_si256((const __m256i *)(quants + 32 * j));
      const __m256i low = _mm256_and_si256(both, low_half);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      for (int r = 0; r < rows; r++) {
        const int8_t *at = levels + r * columns + 32 * b + 4 * j;
        dots[r] = add_4_bits(dots[r], low, four_levels(at));
        dots[r] = add_4_bits(dots[r], high, four_levels(at + 16));
      }
    }
    for (int r = 0; r < rows; r++) {
      const __m256 dot = _mm256_cvtepi32_ps(total_of_4_bits(dots[r]));
      y[r] = _mm256_fmadd_ps(_mm256_mul_ps(dot, scale), _mm256_set1_ps(scales[r * blocks + b]), y[r]);
      y[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(sums[r * blocks + b]), y[r]);
    }
    tile = quants + 128;
  }
}

PRODUCT_INLINE void tile_of_8_bits(const uint8_t *tile, int is_half, int block, int64_t columns, const Activations *a, int64_t row, int rows,
                                   __m256 *y) {
  const int64_t blocks = columns / block;
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  for (int r = 0; r < rows; r++) y[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    const __m256 scale = load_8(tile, 0, is_half);
    const uint8_t *quants = tile + (is_half ? 16 : 32);
    __m256i dots[ROW_GROUP];
    for (int r = 0; r < rows; r++) dots[r] = _mm256_setzero_si256();
    for (int j = 0; j < block / 4; j++) {
      const __m256i weights = _mm256_loadu_si256((const __m256i *)(quants + 32 * j));
      const __m256i sizes = _mm256_abs_epi8(weights);
      for (int r = 0; r < rows; r++) {
        /* The unsigned factor is the weight's size, so the sign goes to the activation. */
        const __m256i signs = _mm256_sign_epi8(four_levels(levels + r * columns + block * b + 4 * j), weights);
        dots[r] = add_8_bits(dots[r], sizes, signs);
      }
    }
    for (int r = 0; r < rows; r++) {
      const __m256 dot = _mm256_cvtepi32_ps(dots[r]);
      y[r] = _mm256_fmadd_ps(_mm256_mul_ps(dot, scale), _mm256_set1_ps(scales[r * blocks + b]), y[r]);
    }
    tile = quants + 8 * block;
  }
}

/* gate * sigmoid(gate) * up */
INLINE __m256 gated(__m256 gate, __m256 up) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 one = _mm256_set1_ps(1.0f);
  /* sigmoid(-|g|) is small / (1 + small); that of |g| is 1 / (1 + small). */
  const __m256 small = exp_of_negative(_mm256_or_ps(gate, sign));
  const __m256 share = _mm256_blendv_ps(one, small, gate);
  return _mm256_mul_ps(_mm256_mul_ps(gate, up), _mm256_div_ps(share, _mm256_add_ps(one, small)));
}

PRODUCT_INLINE void any_tile(const MatrixShape *s, const uint8_t *tile, const Activations *a, int64_t row, int rows, __m256 *y) {
  if (s->bits == 4) {
    if (s->is_half) tile_of_4_bits(tile, 1, s->columns, a, row, rows, y);
    else tile_of_4_bits(tile, 0, s->columns, a, row, rows, y);
  } else if (s->block == 32) {
    if (s->is_half) tile_of_8_bits(tile, 1, 32, s->columns, a, row, rows, y);
    else tile_of_8_bits(tile, 0, 32, s->columns, a, row, rows, y);
  } else {
    if (s->is_half) tile_of_8_bits(tile, 1, 16, s->columns, a, row, rows, y);
    else tile_of_8_bits(tile, 0, 16, s->columns, a, row, rows, y);
  }
}

PRODUCT_INLINE void result_of(const Product *p, int64_t result_tile, int64_t row, int rows) {
  const MatrixShape *s = p->shape;
  const int64_t bytes = tile_bytes(s);
  __m256 y[ROW_GROUP];
  int64_t width = s->matrix_rows;
  if (s->is_gated) {
    __m256 up[ROW_GROUP];
    width /= 2;
    any_tile(s, p->weights + 2 * result_tile * bytes, &p->activations, row, rows, y);
    any_tile(s, p->weights + (2 * result_tile + 1) * bytes, &p->activations, row, rows, up);
    for (int r = 0; r < rows; r++) y[r] = gated(y[r], up[r]);
  } else {
    any_tile(s, p->weights + result_tile * bytes, &p->activations, row, rows, y);
  }
  for (int r = 0; r < rows; r++) _mm256_storeu_ps(p->y + (row + r) * width + result_tile * TILE_ROWS, y[r]);
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

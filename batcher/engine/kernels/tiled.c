/*
 * Tiled: matrix products of float activations with quantized weights, as the operators TiledMatMul and TiledGather.
 *
 * Weights lie in tiles of 8 rows; a tile holds its blocks one after the other along the columns, so that a product reads memory once,
 * front to back. One block of a tile, with B = block columns (16 or 32):
 *
 *   8 scales    (float16 or float32, one a row)
 *   8 offsets   (the same type; absent in 8-bit blocks)
 *   levels      4 bits: 4 groups of 32 bytes; byte 4 * row + i of group j holds column 4 j + i (low half) and 16 + 4 j + i (high half)
 *               8 bits: B / 4 groups of 32 bytes; byte 4 * row + i of group j holds column 4 j + i, signed
 *
 *   weight = scale * level + offset
 *
 * Activations are rounded to 8 bits with a scale for each block, as onnxruntime's and llama.cpp's kernels do. Every row of the result is
 * computed by the same operations in the same order whatever the other rows are and however the work is split: the same bits at
 * every batch size.
 */
#include "operator.h"
#include "vector.h"

enum { TILE_ROWS = 8, ROW_GROUP = 4 };

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

/* Rows of activations in 8 bits: levels [rows][columns]; scales and sums (scale times the sum of the levels) [rows][blocks]. */
typedef struct {
  int8_t *levels;
  float *scales;
  float *sums;
} Activations;

/* Grows and is kept: one for each thread that computes, as large as its largest product. */
static __thread uint8_t *scratch;
static __thread size_t scratch_bytes;

static void *reserve_scratch(size_t bytes) {
  if (bytes > scratch_bytes) {
    free(scratch);
    scratch = NULL;
    scratch_bytes = 0;
    if (posix_memalign((void **)&scratch, 64, bytes) != 0) return NULL;
    scratch_bytes = bytes;
  }
  return scratch;
}

INLINE int32_t sum_of(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

INLINE void round_block(const float *x, int vectors, int8_t *levels, float *scale, float *sum) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 largest = _mm256_setzero_ps();
  for (int i = 0; i < vectors; i++) largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + 8 * i)));
  const float most = largest_of(largest);
  const __m256 inverse = _mm256_set1_ps(most > 0 ? 127.0f / most : 0.0f);
  __m256i total = _mm256_setzero_si256();
  for (int i = 0; i < vectors; i++) {
    const __m256i level = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    total = _mm256_add_epi32(total, level);
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(level), _mm256_extracti128_si256(level, 1));
    _mm_storel_epi64((__m128i *)(levels + 8 * i), _mm_packs_epi16(narrow, narrow));
  }
  *scale = most / 127.0f;
  *sum = *scale * (float)sum_of(total);
}

AVX2 static void round_row(const float *x, int64_t columns, int block, int8_t *levels, float *scales, float *sums) {
  const int64_t blocks = columns / block;
  if (block == 32) {
    for (int64_t b = 0; b < blocks; b++) round_block(x + 32 * b, 4, levels + 32 * b, scales + b, sums + b);
  } else {
    for (int64_t b = 0; b < blocks; b++) round_block(x + 16 * b, 2, levels + 16 * b, scales + b, sums + b);
  }
}

/* ---- products of one tile with a group of rows ------------------------------------------------------------------------------------- */

INLINE __m256 load_scales(const uint8_t *at, int is_half) {
  return is_half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)) : _mm256_loadu_ps((const float *)at);
}

INLINE __m256i four_levels(const int8_t *levels) {
  int32_t word;
  memcpy(&word, levels, 4);
  return _mm256_set1_epi32(word);
}

/* y[r] = 8 results of row r. The tile's blocks lie at `tile`; rows of the activations are `columns` apart. */
INLINE void tile_of_4_bits(const uint8_t *tile, int is_half, int64_t columns, const Activations *a, int64_t row, int rows, __m256 *y) {
  const int64_t blocks = columns / 32;
  const int scale_bytes = is_half ? 16 : 32;
  const __m256i low_half = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  const float *sums = a->sums + row * blocks;
  for (int r = 0; r < rows; r++) y[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    const __m256 scale = load_scales(tile, is_half);
    const __m256 offset = load_scales(tile + scale_bytes, is_half);
    const uint8_t *quants = tile + 2 * scale_bytes;
    /* 8 products of at most 15 * 127 * 2 fit in 16 bits. */
    __m256i pairs[ROW_GROUP];
    for (int r = 0; r < rows; r++) pairs[r] = _mm256_setzero_si256();
    for (int j = 0; j < 4; j++) {
      const __m256i both = _mm256_loadu_si256((const __m256i *)(quants + 32 * j));
      const __m256i low = _mm256_and_si256(both, low_half);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_half);
      for (int r = 0; r < rows; r++) {
        const int8_t *at = levels + r * columns + 32 * b + 4 * j;
        pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(low, four_levels(at)));
        pairs[r] = _mm256_add_epi16(pairs[r], _mm256_maddubs_epi16(high, four_levels(at + 16)));
      }
    }
    for (int r = 0; r < rows; r++) {
      const __m256 dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs[r], ones));
      y[r] = _mm256_fmadd_ps(_mm256_mul_ps(dot, scale), _mm256_set1_ps(scales[r * blocks + b]), y[r]);
      y[r] = _mm256_fmadd_ps(offset, _mm256_set1_ps(sums[r * blocks + b]), y[r]);
    }
    tile = quants + 128;
  }
}

INLINE void tile_of_8_bits(const uint8_t *tile, int is_half, int block, int64_t columns, const Activations *a, int64_t row, int rows,
                           __m256 *y) {
  const int64_t blocks = columns / block;
  const __m256i ones = _mm256_set1_epi16(1);
  const int8_t *levels = a->levels + row * columns;
  const float *scales = a->scales + row * blocks;
  for (int r = 0; r < rows; r++) y[r] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; b++) {
    const __m256 scale = load_scales(tile, is_half);
    const uint8_t *quants = tile + (is_half ? 16 : 32);
    __m256i dots[ROW_GROUP];
    for (int r = 0; r < rows; r++) dots[r] = _mm256_setzero_si256();
    for (int j = 0; j < block / 4; j++) {
      const __m256i weights = _mm256_loadu_si256((const __m256i *)(quants + 32 * j));
      const __m256i sizes = _mm256_abs_epi8(weights);
      for (int r = 0; r < rows; r++) {
        /* The unsigned factor is the weight's size, so the sign goes to the activation; 128 * 127 * 2 fits in 16 bits. */
        const __m256i signs = _mm256_sign_epi8(four_levels(levels + r * columns + block * b + 4 * j), weights);
        dots[r] = _mm256_add_epi32(dots[r], _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, signs), ones));
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

/* ---- one product, in parts ------------------------------------------------------------------------------------------------------------ */

typedef struct {
  int64_t columns;
  /* Rows of the matrix; with `is_gated`, tiles of gate and up take turns, and there are half as many results. */
  int64_t matrix_rows;
  int bits;
  int block;
  int is_half;
  int is_gated;
} MatrixShape;

static int64_t tile_bytes(const MatrixShape *s) {
  const int64_t scale_bytes = TILE_ROWS * (s->is_half ? 2 : 4);
  const int64_t block_bytes = s->bits == 4 ? 2 * scale_bytes + 128 : scale_bytes + 8 * (int64_t)s->block;
  return s->columns / s->block * block_bytes;
}

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

AVX2 static void round_part(void *data, size_t part) {
  const Product *p = data;
  const int64_t columns = p->shape->columns;
  const int64_t blocks = columns / p->shape->block;
  const int64_t first = (int64_t)part * p->part_rows;
  const int64_t end = first + p->part_rows < p->rows ? first + p->part_rows : p->rows;
  for (int64_t row = first; row < end; row++) {
    round_row(p->x + row * columns, columns, p->shape->block, p->activations.levels + row * columns, p->activations.scales + row * blocks,
              p->activations.sums + row * blocks);
  }
}

INLINE void any_tile(const MatrixShape *s, const uint8_t *tile, const Activations *a, int64_t row, int rows, __m256 *y) {
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

INLINE void result_of(const Product *p, int64_t result_tile, int64_t row, int rows) {
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

AVX2 static void multiply_part(void *data, size_t part) {
  const Product *p = data;
  const int64_t tiles = p->shape->matrix_rows / TILE_ROWS / (p->shape->is_gated ? 2 : 1);
  const int64_t first = (int64_t)part * p->part_tiles;
  const int64_t end = first + p->part_tiles < tiles ? first + p->part_tiles : tiles;
  /* A tile stays in the first-level cache while all rows pass. */
  for (int64_t tile = first; tile < end; tile++) {
    int64_t row = 0;
    for (; row + ROW_GROUP <= p->rows; row += ROW_GROUP) result_of(p, tile, row, ROW_GROUP);
    switch (p->rows - row) {
      case 3: result_of(p, tile, row, 3); break;
      case 2: result_of(p, tile, row, 2); break;
      case 1: result_of(p, tile, row, 1); break;
    }
  }
}

/* Rows of the matrix, back as floats: y[i] = matrix[ids[i]]. */
AVX2 static void read_rows(const MatrixShape *s, const uint8_t *weights, const int64_t *ids, int64_t count, float *y) {
  const int64_t bytes = tile_bytes(s);
  const int64_t blocks = s->columns / s->block;
  const int scale_bytes = TILE_ROWS * (s->is_half ? 2 : 4);
  for (int64_t i = 0; i < count; i++) {
    const int lane = (int)(ids[i] % TILE_ROWS);
    const uint8_t *at = weights + ids[i] / TILE_ROWS * bytes;
    for (int64_t b = 0; b < blocks; b++) {
      float *out = y + i * s->columns + b * s->block;
      float scales[8];
      float offsets[8] = {0};
      _mm256_storeu_ps(scales, load_scales(at, s->is_half));
      at += scale_bytes;
      if (s->bits == 4) {
        _mm256_storeu_ps(offsets, load_scales(at, s->is_half));
        at += scale_bytes;
        for (int j = 0; j < 4; j++) {
          for (int k = 0; k < 4; k++) {
            const uint8_t both = at[32 * j + 4 * lane + k];
            out[4 * j + k] = scales[lane] * (float)(both & 15) + offsets[lane];
            out[16 + 4 * j + k] = scales[lane] * (float)(both >> 4) + offsets[lane];
          }
        }
        at += 128;
      } else {
        for (int j = 0; j < s->block / 4; j++) {
          for (int k = 0; k < 4; k++) out[4 * j + k] = scales[lane] * (float)(int8_t)at[32 * j + 4 * lane + k];
        }
        at += 8 * s->block;
      }
    }
  }
}

/* ---- operators ------------------------------------------------------------------------------------------------------------------------- */

typedef struct {
  Api api;
  MatrixShape shape;
} Kernel;

static Status create_kernel(const CustomOp *op, const void *api_table, const void *info, void **out) {
  (void)op;
  const Api api = api_table;
  int64_t columns, matrix_rows, bits, block, is_half, is_gated;
  CHECK(get_attribute(api, info, "columns", &columns));
  CHECK(get_attribute(api, info, "rows", &matrix_rows));
  CHECK(get_attribute(api, info, "bits", &bits));
  CHECK(get_attribute(api, info, "block", &block));
  CHECK(get_attribute(api, info, "half_scales", &is_half));
  CHECK(get_attribute(api, info, "gated", &is_gated));
  const int is_known = (bits == 4 && block == 32) || (bits == 8 && (block == 16 || block == 32));
  if (!is_known || columns <= 0 || columns % block != 0 || matrix_rows <= 0 || matrix_rows % (TILE_ROWS * (is_gated ? 2 : 1)) != 0)
    return failure(api, "tiled kernels: the matrix has a form that they do not know");
  Kernel *kernel = malloc(sizeof *kernel);
  if (kernel == NULL) return failure(api, "tiled kernels: out of memory");
  kernel->api = api;
  kernel->shape = (MatrixShape){columns, matrix_rows, (int)bits, (int)block, is_half != 0, is_gated != 0};
  *out = kernel;
  return NULL;
}

static void destroy_kernel(void *kernel) { free(kernel); }

/* Parts of about this many multiplications: small enough that threads end together, large enough that handing out costs nothing. */
enum { PART_WORK = 1 << 17, ROUND_WORK = 1 << 15 };

/* The two inputs of either operator: what goes with the matrix, and the matrix. */
static Status get_inputs(const Kernel *kernel, const void *context, Input *first, Input *weights) {
  const MatrixShape *s = &kernel->shape;
  CHECK(get_input(kernel->api, context, 0, first));
  CHECK(get_input(kernel->api, context, 1, weights));
  if (weights->elements == s->matrix_rows / TILE_ROWS * tile_bytes(s)) return NULL;
  return failure(kernel->api, "tiled kernels: the weights have another size");
}

static Status multiply(void *data, void *context) {
  const Kernel *kernel = data;
  const Api api = kernel->api;
  const MatrixShape *s = &kernel->shape;
  Input x, weights;
  CHECK(get_inputs(kernel, context, &x, &weights));
  const int64_t rows = x.elements / s->columns;
  if (rows * s->columns != x.elements) return failure(api, "tiled kernels: the activations have another width than the matrix");
  const int64_t width = s->is_gated ? s->matrix_rows / 2 : s->matrix_rows;
  float *y;
  CHECK(get_output(api, context, 0, (const int64_t[]){rows, width}, 2, (void **)&y));
  if (rows == 0) return NULL;

  const int64_t blocks = s->columns / s->block;
  const size_t level_bytes = (size_t)ceil_of(rows * s->columns, 64) * 64;
  uint8_t *memory = reserve_scratch(level_bytes + (size_t)(2 * rows * blocks) * sizeof(float));
  if (memory == NULL) return failure(api, "tiled kernels: out of memory");
  float *scales = (float *)(memory + level_bytes);
  Product product = {s, x.data, weights.data, y, rows, {(int8_t *)memory, scales, scales + rows * blocks}, 1, 1};

  product.part_rows = ceil_of(ROUND_WORK, s->columns);
  CHECK(in_parts(api, context, round_part, ceil_of(rows, product.part_rows), &product));
  const int64_t tiles = width / TILE_ROWS;
  product.part_tiles = ceil_of(PART_WORK, rows * s->columns * TILE_ROWS);
  /* A product too small for two parts is still worth two threads. */
  if (product.part_tiles > (tiles + 1) / 2) product.part_tiles = (tiles + 1) / 2;
  return in_parts(api, context, multiply_part, ceil_of(tiles, product.part_tiles), &product);
}

static Status gather(void *data, void *context) {
  const Kernel *kernel = data;
  const Api api = kernel->api;
  const MatrixShape *s = &kernel->shape;
  Input ids, weights;
  CHECK(get_inputs(kernel, context, &ids, &weights));
  const int64_t *id = ids.data;
  for (int64_t i = 0; i < ids.elements; i++) {
    if (id[i] < 0 || id[i] >= s->matrix_rows) return failure(api, "tiled kernels: a row is asked for that the matrix does not have");
  }
  float *y;
  CHECK(get_output(api, context, 0, (const int64_t[]){ids.elements, s->columns}, 2, (void **)&y));
  read_rows(s, weights.data, id, ids.elements, y);
  return NULL;
}

CustomOp tiled_operators[] = {
    {.name = "TiledMatMul", .input_types = {FLOAT, UINT8}, .output_types = {FLOAT}, .create_kernel_v2 = create_kernel,
     .compute_v2 = multiply, .destroy = destroy_kernel},
    {.name = "TiledGather", .input_types = {INT64, UINT8}, .output_types = {FLOAT}, .create_kernel_v2 = create_kernel,
     .compute_v2 = gather, .destroy = destroy_kernel},
    {.name = NULL},
};

/* Tiled: the operators TiledMatMul and TiledGather; tiled.h says what a matrix of tiles is. */
#include "lanes.h"
#include "operator.h"
#include "tiled.h"
#include "vector.h"

/* ---- activations ------------------------------------------------------------------------------------------------------------------ */

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

/* ---- one product, in parts ------------------------------------------------------------------------------------------------------------ */

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

/* Number `index` of float16 or float32. */
INLINE float number_at(const uint8_t *at, int index, int is_half) {
  uint16_t half;
  float number;
  if (is_half) return memcpy(&half, at + 2 * index, 2), _cvtsh_ss(half);
  return memcpy(&number, at + 4 * index, 4), number;
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
      const float scale = number_at(at, lane, s->is_half);
      at += scale_bytes;
      if (s->bits == 4) {
        const float offset = number_at(at, lane, s->is_half);
        at += scale_bytes;
        for (int j = 0; j < 4; j++) {
          for (int k = 0; k < 4; k++) {
            const uint8_t both = at[4 * TILE_ROWS * j + 4 * lane + k];
            out[4 * j + k] = scale * (float)(both & 15) + offset;
            out[16 + 4 * j + k] = scale * (float)(both >> 4) + offset;
          }
        }
        at += TILE_ROWS * 16;
      } else {
        for (int j = 0; j < s->block / 4; j++) {
          for (int k = 0; k < 4; k++) out[4 * j + k] = scale * (float)(int8_t)at[4 * TILE_ROWS * j + 4 * lane + k];
        }
        at += TILE_ROWS * s->block;
      }
    }
  }
}

/* ---- operators ------------------------------------------------------------------------------------------------------------------------- */

typedef struct {
  Api api;
  MatrixShape shape;
  void (*multiply_part)(void *product, size_t part);
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
  const int has_vnni = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  kernel->multiply_part = has_vnni ? multiply_part_vnni : multiply_part_avx2;
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

static Status compute_product(void *data, void *context) {
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
  return in_parts(api, context, kernel->multiply_part, ceil_of(tiles, product.part_tiles), &product);
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
     .compute_v2 = compute_product, .destroy = destroy_kernel},
    {.name = "TiledGather", .input_types = {INT64, UINT8}, .output_types = {FLOAT}, .create_kernel_v2 = create_kernel,
     .compute_v2 = gather, .destroy = destroy_kernel},
    {.name = NULL},
};

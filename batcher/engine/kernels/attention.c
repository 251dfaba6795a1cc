/*
 * Attention: causal attention of grouped query heads over cached keys and values, with rotary positions, as the operators RowAttention
 * (cache in float32) and RowAttentionHalf (cache in float16).
 *
 *   inputs   qkv       float [rows * tokens][heads + 2 * kv_heads][head_dim], new tokens of each row side by side
 *            past_k/v  [rows][kv_heads][context][head_dim]
 *            last      int32 [rows], position of the last new token of each row
 *            cos, sin  float [context][head_dim / 2]
 *   outputs  heads     float [rows * tokens][heads][head_dim]
 *            present_k/v, which must be the memory of past_k/v: new keys and values are written there, nothing is copied
 *
 * A query goes through the keys in blocks that begin at fixed positions, and keeps a running maximum and sum (softmax in one pass). Its
 * operations depend on its own position only: not on the other rows, nor on how many tokens come at once. So a token has the same bits
 * whether it comes by prefill in chunks of any size or by a decode step.
 */
#include <math.h>

#include "lanes.h"
#include "operator.h"
#include "vector.h"

enum { KEY_BLOCK = 32, MOST_QUERIES = 48, MOST_HEAD_DIM = 256, VECTOR = 8 };

typedef struct {
  Api api;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int is_half;
} Kernel;

typedef struct {
  const Kernel *kernel;
  const float *qkv;
  uint8_t *keys;
  uint8_t *values;
  const int32_t *last;
  const float *cos;
  const float *sin;
  float *y;
  int64_t rows;
  int64_t tokens;
  int64_t context;
  /* Query heads and tokens of one part. */
  int64_t part_heads;
  int64_t part_tokens;
} Attention;

INLINE void store_cached(uint8_t *at, int64_t element, int is_half, __m256 v) {
  if (is_half) _mm_storeu_si128((__m128i *)(at + 2 * element), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  else _mm256_storeu_ps((float *)at + element, v);
}

/* The two halves of a head are the two coordinates that a position turns. head_dim / 2 may end in half a vector. */
AVX2 static void rotate(const float *x, const float *cos, const float *sin, int64_t head_dim, float *out) {
  const int64_t half = head_dim / 2;
  int64_t i = 0;
  for (; i + VECTOR <= half; i += VECTOR) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    _mm256_storeu_ps(out + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(out + half + i, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < half; i++) {
    const float a = x[i], b = x[half + i];
    out[i] = a * cos[i] - b * sin[i];
    out[half + i] = b * cos[i] + a * sin[i];
  }
}

/* Part r * kv_heads + g: new keys and values of one head of one row into the cache. */
AVX2 static void store_part(void *data, size_t part) {
  const Attention *a = data;
  const Kernel *k = a->kernel;
  const int64_t row = (int64_t)part / k->kv_heads, head = (int64_t)part % k->kv_heads;
  const int64_t width = (k->heads + 2 * k->kv_heads) * k->head_dim;
  float rotated[MOST_HEAD_DIM];
  for (int64_t token = 0; token < a->tokens; token++) {
    const float *x = a->qkv + (row * a->tokens + token) * width + (k->heads + head) * k->head_dim;
    const int64_t position = a->last[row] + 1 - a->tokens + token;
    const int64_t at = (((int64_t)part * a->context) + position) * k->head_dim;
    rotate(x, a->cos + position * (k->head_dim / 2), a->sin + position * (k->head_dim / 2), k->head_dim, rotated);
    for (int64_t i = 0; i < k->head_dim; i += VECTOR) {
      store_cached(a->keys, at + i, k->is_half, _mm256_loadu_ps(rotated + i));
      store_cached(a->values, at + i, k->is_half, _mm256_loadu_ps(x + k->kv_heads * k->head_dim + i));
    }
  }
}

/* State of the queries of one part, over the keys so far; vectors lie head_dim apart. */
typedef struct {
  float query[MOST_QUERIES * MOST_HEAD_DIM] __attribute__((aligned(32)));
  float sum[MOST_QUERIES * MOST_HEAD_DIM] __attribute__((aligned(32)));
  float largest[MOST_QUERIES];
  float weight[MOST_QUERIES];
} Queries;

/* The sums of four vectors, each as sum_of_8 has it: [a, -, c, -, b, -, d, -]. */
INLINE __m256 sums_of_8(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 ab = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  const __m256 cd = _mm256_add_ps(_mm256_permute2f128_ps(c, d, 0x20), _mm256_permute2f128_ps(c, d, 0x31));
  const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  return _mm256_add_ps(sums, _mm256_movehdup_ps(sums));
}

/* score[c][j] of the keys [from, from + 4) of a block, or of one. */
INLINE void score_keys(const Queries *q, int64_t query, int count, const uint8_t *keys, int64_t first, int64_t from, int key_count,
                       int64_t head_dim, int is_half, float scores[3][KEY_BLOCK]) {
  __m256 dot[3][4];
  for (int c = 0; c < count; c++) {
    for (int j = 0; j < key_count; j++) dot[c][j] = _mm256_setzero_ps();
  }
  for (int64_t i = 0; i < head_dim; i += VECTOR) {
    __m256 part[3];
    for (int c = 0; c < count; c++) part[c] = _mm256_load_ps(q->query + (query + c) * head_dim + i);
    for (int j = 0; j < key_count; j++) {
      const __m256 key = load_numbers(keys, (first + from + j) * head_dim + i, is_half);
      for (int c = 0; c < count; c++) dot[c][j] = _mm256_fmadd_ps(key, part[c], dot[c][j]);
    }
  }
  for (int c = 0; c < count; c++) {
    if (key_count == 1) {
      scores[c][from] = sum_of_8(dot[c][0]);
      continue;
    }
    float sums[VECTOR] __attribute__((aligned(32)));
    _mm256_store_ps(sums, sums_of_8(dot[c][0], dot[c][1], dot[c][2], dot[c][3]));
    scores[c][from] = sums[0];
    scores[c][from + 1] = sums[4];
    scores[c][from + 2] = sums[2];
    scores[c][from + 3] = sums[6];
  }
}

/* Adds the values of a block, each times its share, to `vectors` vectors of each query's sum. */
INLINE void add_values(Queries *q, int64_t query, int count, const uint8_t *values, int64_t first, int64_t key_count, int64_t at, int vectors,
                       int64_t head_dim, int is_half, float shares[3][KEY_BLOCK]) {
  __m256 sum[3][4];
  for (int c = 0; c < count; c++) {
    for (int v = 0; v < vectors; v++) sum[c][v] = _mm256_load_ps(q->sum + (query + c) * head_dim + at + v * VECTOR);
  }
  for (int64_t j = 0; j < key_count; j++) {
    __m256 share[3];
    for (int c = 0; c < count; c++) share[c] = _mm256_set1_ps(shares[c][j]);
    for (int v = 0; v < vectors; v++) {
      const __m256 value = load_numbers(values, (first + j) * head_dim + at + v * VECTOR, is_half);
      for (int c = 0; c < count; c++) sum[c][v] = _mm256_fmadd_ps(share[c], value, sum[c][v]);
    }
  }
  for (int c = 0; c < count; c++) {
    for (int v = 0; v < vectors; v++) _mm256_store_ps(q->sum + (query + c) * head_dim + at + v * VECTOR, sum[c][v]);
  }
}

INLINE void prefetch_vectors(const uint8_t *at, int64_t first, int64_t count, int64_t head_dim, int is_half) {
  const int64_t bytes = head_dim * (is_half ? 2 : 4);
  for (int64_t i = 0; i < count * bytes; i += 64) _mm_prefetch((const char *)at + first * bytes + i, _MM_HINT_T0);
}

/* `count` queries (1 to 3) of one position with the keys [first, first + key_count) of their shared head. Who reads the block `is_first`
 * has its values fetched while its keys are scored: they are read in stripes, which the processor does not foresee. */
INLINE void attend_block(Queries *q, int64_t query, int count, const uint8_t *keys, const uint8_t *values, int64_t first, int64_t key_count,
                         int64_t head_dim, int is_half, int is_first) {
  float scores[3][KEY_BLOCK] __attribute__((aligned(32)));
  int64_t scored = 0;
  for (; scored + 4 <= key_count; scored += 4) {
    if (is_first) prefetch_vectors(values, first + scored, 4, head_dim, is_half);
    score_keys(q, query, count, keys, first, scored, 4, head_dim, is_half, scores);
  }
  if (is_first) prefetch_vectors(values, first + scored, key_count - scored, head_dim, is_half);
  for (; scored < key_count; scored++) score_keys(q, query, count, keys, first, scored, 1, head_dim, is_half, scores);
  for (int c = 0; c < count; c++) {
    float *score = scores[c];
    for (int64_t j = key_count; j < KEY_BLOCK; j++) score[j] = -INFINITY;
    __m256 most = _mm256_load_ps(score);
    for (int j = VECTOR; j < KEY_BLOCK; j += VECTOR) most = _mm256_max_ps(most, _mm256_load_ps(score + j));
    const float before = q->largest[query + c];
    const float now = fmaxf(before, largest_of(most));
    const __m256 base = _mm256_set1_ps(now);
    __m256 total = _mm256_setzero_ps();
    for (int j = 0; j < KEY_BLOCK; j += VECTOR) {
      const __m256 score8 = _mm256_load_ps(score + j);
      /* The least exponential is not quite 0, that of a key which is not there must be. */
      const __m256 is_there = _mm256_cmp_ps(score8, _mm256_set1_ps(-INFINITY), _CMP_GT_OQ);
      const __m256 share = _mm256_and_ps(is_there, exp_of_negative(_mm256_sub_ps(score8, base)));
      _mm256_store_ps(score + j, share);
      total = _mm256_add_ps(total, share);
    }
    const float fade = before == -INFINITY ? 0.0f : _mm256_cvtss_f32(exp_of_negative(_mm256_set1_ps(before - now)));
    q->largest[query + c] = now;
    q->weight[query + c] = q->weight[query + c] * fade + sum_of_8(total);
    const __m256 fade8 = _mm256_set1_ps(fade);
    for (int64_t i = 0; i < head_dim; i += VECTOR) {
      float *sum = q->sum + (query + c) * head_dim + i;
      _mm256_store_ps(sum, _mm256_mul_ps(_mm256_load_ps(sum), fade8));
    }
  }
  /* Four vectors of each query at a time stay in registers. */
  int64_t at = 0;
  for (; at + 4 * VECTOR <= head_dim; at += 4 * VECTOR) add_values(q, query, count, values, first, key_count, at, 4, head_dim, is_half, scores);
  for (; at < head_dim; at += VECTOR) add_values(q, query, count, values, first, key_count, at, 1, head_dim, is_half, scores);
}

/* The queries of one position with a block of keys, three heads at a time. */
INLINE void attend_heads(Queries *q, int64_t query, int64_t heads, const uint8_t *keys, const uint8_t *values, int64_t first,
                         int64_t key_count, int64_t head_dim, int is_half, int is_first) {
  for (int64_t h = 0; h < heads; h += 3) {
    switch (heads - h) {
      case 1: attend_block(q, query + h, 1, keys, values, first, key_count, head_dim, is_half, is_first && h == 0); break;
      case 2: attend_block(q, query + h, 2, keys, values, first, key_count, head_dim, is_half, is_first && h == 0); break;
      default: attend_block(q, query + h, 3, keys, values, first, key_count, head_dim, is_half, is_first && h == 0);
    }
  }
}

INLINE void attend(const Attention *a, int64_t row, int64_t first_head, int64_t first_token, int64_t head_dim, int is_half) {
  const Kernel *k = a->kernel;
  const int64_t group = k->heads / k->kv_heads;
  const int64_t width = (k->heads + 2 * k->kv_heads) * head_dim;
  const int64_t tokens = least_of(a->part_tokens, a->tokens - first_token);
  const int64_t start = a->last[row] + 1 - a->tokens + first_token;
  const int64_t cached = (row * k->kv_heads + first_head / group) * a->context * head_dim * (is_half ? 2 : 4);
  const float scale = 1.0f / sqrtf((float)head_dim);
  Queries q;
  for (int64_t t = 0; t < tokens; t++) {
    const int64_t position = start + t;
    const float *x = a->qkv + (row * a->tokens + first_token + t) * width + first_head * head_dim;
    for (int64_t h = 0; h < a->part_heads; h++) {
      const int64_t n = t * a->part_heads + h;
      rotate(x + h * head_dim, a->cos + position * (head_dim / 2), a->sin + position * (head_dim / 2), head_dim, q.query + n * head_dim);
      for (int64_t i = 0; i < head_dim; i++) {
        q.query[n * head_dim + i] *= scale;
        q.sum[n * head_dim + i] = 0;
      }
      q.largest[n] = -INFINITY;
      q.weight[n] = 0;
    }
  }
  const uint8_t *keys = a->keys + cached, *values = a->values + cached;
  for (int64_t block = 0; block < start + tokens; block += KEY_BLOCK) {
    for (int64_t t = 0; t < tokens; t++) {
      const int64_t key_count = least_of(KEY_BLOCK, start + t + 1 - block);
      if (key_count > 0) attend_heads(&q, t * a->part_heads, a->part_heads, keys, values, block, key_count, head_dim, is_half, t == 0);
    }
  }
  for (int64_t t = 0; t < tokens; t++) {
    float *y = a->y + ((row * a->tokens + first_token + t) * k->heads + first_head) * head_dim;
    for (int64_t h = 0; h < a->part_heads; h++) {
      const int64_t n = t * a->part_heads + h;
      const float inverse = 1.0f / q.weight[n];
      for (int64_t i = 0; i < head_dim; i++) y[h * head_dim + i] = q.sum[n * head_dim + i] * inverse;
    }
  }
}

/* Parts: rows, then groups of heads, then groups of tokens, the last ones first: they have the most keys. */
AVX2 static void attend_part(void *data, size_t part) {
  const Attention *a = data;
  const Kernel *k = a->kernel;
  const int64_t head_parts = k->heads / a->part_heads;
  const int64_t token_parts = ceil_of(a->tokens, a->part_tokens);
  const int64_t token_part = token_parts - 1 - (int64_t)part % token_parts;
  const int64_t head_part = (int64_t)part / token_parts % head_parts;
  const int64_t row = (int64_t)part / token_parts / head_parts;
  const int64_t first_head = head_part * a->part_heads, first_token = token_part * a->part_tokens;
  if (k->head_dim == 64 && !k->is_half) attend(a, row, first_head, first_token, 64, 0);
  else if (k->head_dim == 64) attend(a, row, first_head, first_token, 64, 1);
  else if (k->head_dim == 128 && !k->is_half) attend(a, row, first_head, first_token, 128, 0);
  else if (k->head_dim == 128) attend(a, row, first_head, first_token, 128, 1);
  else attend(a, row, first_head, first_token, k->head_dim, k->is_half);
}

/* ---- operators ------------------------------------------------------------------------------------------------------------------------- */

static Status create_kernel(const CustomOp *op, const void *api_table, const void *info, void **out) {
  const Api api = api_table;
  int64_t heads, kv_heads, head_dim;
  CHECK(get_attribute(api, info, "heads", &heads));
  CHECK(get_attribute(api, info, "kv_heads", &kv_heads));
  CHECK(get_attribute(api, info, "head_dim", &head_dim));
  if (kv_heads <= 0 || heads % kv_heads != 0 || heads / kv_heads > MOST_QUERIES || head_dim <= 0 || head_dim > MOST_HEAD_DIM ||
      head_dim % VECTOR != 0)
    return failure(api, "attention kernel: heads of a kind that it does not know");
  Kernel *kernel = malloc(sizeof *kernel);
  if (kernel == NULL) return failure(api, "attention kernel: out of memory");
  *kernel = (Kernel){api, heads, kv_heads, head_dim, op->input_types[1] == FLOAT16};
  *out = kernel;
  return NULL;
}

static void destroy_kernel(void *kernel) { free(kernel); }

/* Numbers to store that are worth a second thread, and parts that keep any number of threads busy. */
enum { STORE_WORK = 1 << 14, ENOUGH_PARTS = 16 };

static Status compute(void *data, void *context) {
  const Kernel *k = data;
  const Api api = k->api;
  Input qkv, past_k, past_v, last, cos, sin;
  CHECK(get_input(api, context, 0, &qkv));
  CHECK(get_input(api, context, 1, &past_k));
  CHECK(get_input(api, context, 2, &past_v));
  CHECK(get_input(api, context, 3, &last));
  CHECK(get_input(api, context, 4, &cos));
  CHECK(get_input(api, context, 5, &sin));
  const int64_t rows = last.elements, all_tokens = qkv.dimensions[0];
  const int64_t width = (k->heads + 2 * k->kv_heads) * k->head_dim;
  const int64_t cache_size = rows * k->kv_heads * past_k.dimensions[2] * k->head_dim;
  if (rows == 0 || all_tokens % rows != 0 || all_tokens * width != qkv.elements || past_k.elements != cache_size ||
      past_v.elements != cache_size)
    return failure(api, "attention kernel: inputs that do not go together");
  Attention a = {k, qkv.data, past_k.data, past_v.data, last.data, cos.data, sin.data, NULL, rows, all_tokens / rows, past_k.dimensions[2], 0, 0};
  const int64_t positions = least_of(a.context, cos.dimensions[0]);
  for (int64_t row = 0; row < rows; row++) {
    if (a.last[row] + 1 < a.tokens || a.last[row] >= positions) return failure(api, "attention kernel: a position outside the context");
  }
  void *present_k, *present_v;
  CHECK(get_output(api, context, 0, (const int64_t[]){all_tokens, k->heads * k->head_dim}, 2, (void **)&a.y));
  CHECK(get_output(api, context, 1, past_k.dimensions, 4, &present_k));
  CHECK(get_output(api, context, 2, past_v.dimensions, 4, &present_v));
  if (present_k != past_k.data || present_v != past_v.data) return failure(api, "attention kernel: past and present are not the same memory");

  const int64_t stores = rows * k->kv_heads;
  if (stores * a.tokens * k->head_dim < STORE_WORK) {
    for (int64_t i = 0; i < stores; i++) store_part(&a, (size_t)i);
  } else {
    CHECK(in_parts(api, context, store_part, stores, &a));
  }
  const int64_t group = k->heads / k->kv_heads;
  /* Where there would be too little for the threads to share, tokens part before the heads of a group do: those read their keys together. */
  a.part_tokens = least_of(MOST_QUERIES / group, stores * a.tokens / ENOUGH_PARTS);
  if (a.part_tokens < 1) a.part_tokens = 1;
  a.part_heads = a.tokens > 1 || stores >= ENOUGH_PARTS ? group : 1;
  return in_parts(api, context, attend_part, rows * (k->heads / a.part_heads) * ceil_of(a.tokens, a.part_tokens), &a);
}

CustomOp attention_operators[] = {
    {.name = "RowAttention", .input_types = {FLOAT, FLOAT, FLOAT, INT32, FLOAT, FLOAT}, .output_types = {FLOAT, FLOAT, FLOAT},
     .create_kernel_v2 = create_kernel, .compute_v2 = compute, .destroy = destroy_kernel},
    {.name = "RowAttentionHalf", .input_types = {FLOAT, FLOAT16, FLOAT16, INT32, FLOAT, FLOAT}, .output_types = {FLOAT, FLOAT16, FLOAT16},
     .create_kernel_v2 = create_kernel, .compute_v2 = compute, .destroy = destroy_kernel},
    {.name = NULL},
};

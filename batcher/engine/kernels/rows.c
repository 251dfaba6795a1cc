/*
 * Rows: the passes over a whole vocabulary that sampling needs, 8 tokens at a time. sampling/row-kernels.ts says what each gives and has the same
 * in WebAssembly, for hosts without this library. A row has a multiple of SUM_BLOCK tokens; NaN counts as -infinity.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "vector.h"

#define EXPORT __attribute__((visibility("default"))) AVX2

enum { MAX_BLOCK = 64, SUM_BLOCK = 512, MASS_BINS = 1024, VECTOR = 8 };

/* 40 nats, as a power of two. */
#define LIMIT -57.70780163555854f

INLINE float largest_in_block(const float *block) {
  __m256 best = _mm256_set1_ps(-INFINITY);
  /* Of two of which one is no number, the second is taken. */
  for (int32_t i = 0; i < MAX_BLOCK; i += VECTOR) best = _mm256_max_ps(_mm256_loadu_ps(block + i), best);
  return largest_of(best);
}

EXPORT void sluice_block_maxima(const float *row, int32_t count, float *maxima) {
  for (int32_t at = 0; at < count; at += MAX_BLOCK) *maxima++ = largest_in_block(row + at);
}

/* Both in one pass, since the source comes from the cache of whichever core computed it. */
EXPORT void sluice_load(const float *source, int32_t length, float *row, int32_t count, float *maxima) {
  const int32_t whole = length / MAX_BLOCK * MAX_BLOCK;
  for (int32_t at = 0; at < whole; at += MAX_BLOCK) {
    memcpy(row + at, source + at, MAX_BLOCK * sizeof *row);
    maxima[at / MAX_BLOCK] = largest_in_block(row + at);
  }
  memcpy(row + whole, source + whole, (size_t)(length - whole) * sizeof *row);
  sluice_block_maxima(row + whole, count - whole, maxima + whole / MAX_BLOCK);
}

INLINE __m256d add_both(__m256d sum, __m256 v) {
  sum = _mm256_add_pd(sum, _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
  return _mm256_add_pd(sum, _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

INLINE double sum_of_doubles(__m256d v) {
  const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

EXPORT void sluice_weigh(const float *row, int32_t count, float max, float scale, float *weights, double *sums) {
  const __m256 maxes = _mm256_set1_ps(max), scales = _mm256_set1_ps(scale), limit = _mm256_set1_ps(LIMIT);
  for (int32_t at = 0; at < count; at += SUM_BLOCK) {
    __m256d sum = _mm256_setzero_pd();
    for (int32_t i = at; i < at + SUM_BLOCK; i += VECTOR) {
      const __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(row + i), maxes), scales);
      const __m256 held = _mm256_max_ps(x, limit);
      const __m256 whole = _mm256_round_ps(held, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      const __m256 r = _mm256_sub_ps(held, whole);
      /* 2^r on |r| <= 1/2: interpolated at the Chebyshev nodes, relative error 2.6e-9 beside float32's own. */
      const __m256 square = _mm256_mul_ps(r, r);
      const __m256 a = _mm256_fmadd_ps(r, _mm256_set1_ps(0.6931472067028321f), _mm256_set1_ps(1.0f));
      const __m256 b = _mm256_fmadd_ps(r, _mm256_set1_ps(0.05550327226670944f), _mm256_set1_ps(0.24022650922288827f));
      const __m256 c = _mm256_fmadd_ps(r, _mm256_set1_ps(0.0013400428177419153f), _mm256_set1_ps(0.00961805667852609f));
      __m256 power = _mm256_fmadd_ps(square, _mm256_set1_ps(0.0001546144469646172f), c);
      power = _mm256_fmadd_ps(power, square, b);
      power = _mm256_fmadd_ps(power, square, a);
      const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
      const __m256 value = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(power), exponent));
      const __m256 weight = _mm256_and_ps(value, _mm256_cmp_ps(x, limit, _CMP_GT_OQ));
      _mm256_storeu_ps(weights + i, weight);
      sum = add_both(sum, weight);
    }
    *sums++ = sum_of_doubles(sum);
  }
}

EXPORT void sluice_sum_above(const float *row, int32_t count, float least, const float *weights, double *sums) {
  const __m256 leasts = _mm256_set1_ps(least);
  for (int32_t at = 0; at < count; at += SUM_BLOCK) {
    __m256d sum = _mm256_setzero_pd();
    for (int32_t i = at; i < at + SUM_BLOCK; i += VECTOR) {
      const __m256 is_above = _mm256_cmp_ps(_mm256_loadu_ps(row + i), leasts, _CMP_GE_OQ);
      sum = add_both(sum, _mm256_and_ps(is_above, _mm256_loadu_ps(weights + i)));
    }
    *sums++ = sum_of_doubles(sum);
  }
}

EXPORT double sluice_sum_distances(const float *row, int32_t count, float max, const float *weights) {
  const __m256 maxes = _mm256_set1_ps(max), largest = _mm256_set1_ps(3.4028234663852886e38f);
  __m256d sum = _mm256_setzero_pd();
  for (int32_t i = 0; i < count; i += VECTOR) {
    /* Finite, since 0 times infinity is no number. */
    const __m256 distance = _mm256_min_ps(_mm256_sub_ps(maxes, _mm256_loadu_ps(row + i)), largest);
    sum = add_both(sum, _mm256_mul_ps(distance, _mm256_loadu_ps(weights + i)));
  }
  return sum_of_doubles(sum);
}

EXPORT int32_t sluice_collect(const float *row, int32_t count, float least, const float *maxima, int32_t *ids) {
  const __m256 leasts = _mm256_set1_ps(least);
  int32_t found = 0;
  for (int32_t at = 0; at < count; at += MAX_BLOCK) {
    if (!(maxima[at / MAX_BLOCK] >= least)) continue;
    for (int32_t i = at; i < at + MAX_BLOCK; i += VECTOR) {
      const __m256 is_in = _mm256_cmp_ps(_mm256_loadu_ps(row + i), leasts, _CMP_GE_OQ);
      for (uint32_t bits = (uint32_t)_mm256_movemask_ps(is_in); bits != 0; bits &= bits - 1) ids[found++] = i + __builtin_ctz(bits);
    }
  }
  return found;
}

/* The places of 8 tokens among the bins, with fractions; past the last bin, or no number, where there is none. */
INLINE __m256 places_of(const float *row, __m256 max, __m256 scale) {
  return _mm256_mul_ps(_mm256_sub_ps(max, _mm256_loadu_ps(row)), scale);
}

EXPORT void sluice_bin_masses(const float *row, int32_t count, float max, float scale, const float *weights, const float *maxima, double *masses) {
  const __m256 maxes = _mm256_set1_ps(max), scales = _mm256_set1_ps(scale), end = _mm256_set1_ps(MASS_BINS);
  memset(masses, 0, MASS_BINS * sizeof *masses);
  for (int32_t at = 0; at < count; at += MAX_BLOCK) {
    if (!((max - maxima[at / MAX_BLOCK]) * scale < MASS_BINS)) continue;
    for (int32_t i = at; i < at + MAX_BLOCK; i += VECTOR) {
      const __m256 places = places_of(row + i, maxes, scales);
      uint32_t bits = (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(places, end, _CMP_LT_OQ));
      if (bits == 0) continue;
      int32_t bins[VECTOR];
      _mm256_storeu_si256((__m256i *)bins, _mm256_cvttps_epi32(places));
      for (; bits != 0; bits &= bits - 1) {
        const int lane = __builtin_ctz(bits);
        masses[bins[lane]] += weights[i + lane];
      }
    }
  }
}

EXPORT int32_t sluice_collect_bin(const float *row, int32_t count, float max, float scale, int32_t bin, const float *maxima, int32_t *ids) {
  const __m256 maxes = _mm256_set1_ps(max), scales = _mm256_set1_ps(scale);
  const __m256 first = _mm256_set1_ps((float)bin), end = _mm256_set1_ps((float)(bin + 1));
  int32_t found = 0;
  for (int32_t at = 0; at < count; at += MAX_BLOCK) {
    if (!((max - maxima[at / MAX_BLOCK]) * scale < (float)(bin + 1))) continue;
    for (int32_t i = at; i < at + MAX_BLOCK; i += VECTOR) {
      const __m256 places = places_of(row + i, maxes, scales);
      const __m256 is_in = _mm256_and_ps(_mm256_cmp_ps(places, first, _CMP_GE_OQ), _mm256_cmp_ps(places, end, _CMP_LT_OQ));
      for (uint32_t bits = (uint32_t)_mm256_movemask_ps(is_in); bits != 0; bits &= bits - 1) ids[found++] = i + __builtin_ctz(bits);
    }
  }
  return found;
}

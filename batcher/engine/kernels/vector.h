/* Vector: 8 floats at a time (AVX2, FMA, F16C). */
#ifndef SLUICE_VECTOR_H
#define SLUICE_VECTOR_H

#include <immintrin.h>
#include <stdint.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) AVX2

/* 8 numbers from `element` on, of float16 or float32. */
INLINE __m256 load_8(const uint8_t *at, int64_t element, int is_half) {
  return is_half ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at + 2 * element))) : _mm256_loadu_ps((const float *)at + element);
}

INLINE float sum_of_8(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  half = _mm_add_ss(half, _mm_movehdup_ps(half));
  return _mm_cvtss_f32(half);
}

INLINE float largest_of(__m256 v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  half = _mm_max_ss(half, _mm_movehdup_ps(half));
  return _mm_cvtss_f32(half);
}

/* e to the power of x for x <= 0: relative error under 2e-7. Below -87 it is that of -87. */
INLINE __m256 exp_of_negative(__m256 x) {
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
  const __m256 whole = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 rest = _mm256_fnmadd_ps(whole, _mm256_set1_ps(0.693359375f), x);
  rest = _mm256_fnmadd_ps(whole, _mm256_set1_ps(-2.12194440e-4f), rest);
  /* The Taylor series: the rest is at most ln 2 / 2. */
  __m256 sum = _mm256_set1_ps(1.0f / 5040);
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 720));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 120));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 24));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f / 6));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(0.5f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f));
  sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.0f));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(sum, _mm256_castsi256_ps(power));
}

#endif

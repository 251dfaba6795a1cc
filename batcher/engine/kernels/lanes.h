/*
 * Lanes: floats and 32-bit integers, as many at a time as the instruction set holds, for code that is compiled once for each: 8 by AVX2, 16 by
 * AVX-512 where WIDE is defined. Each operation works lane by lane and rounds alike in both, so what is made of these alone has the same bits.
 */
#ifndef SLUICE_LANES_H
#define SLUICE_LANES_H

#include <immintrin.h>
#include <stdint.h>

#include "vector.h"

#ifdef WIDE

#define TARGET __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define LANEWISE static inline __attribute__((always_inline)) TARGET

enum { LANES = 16 };
typedef __m512 Floats;
typedef __m512i Ints;

LANEWISE Floats floats_of(float x) { return _mm512_set1_ps(x); }
LANEWISE Ints ints_of(int32_t x) { return _mm512_set1_epi32(x); }
LANEWISE Floats load_floats(const float *at) { return _mm512_loadu_ps(at); }
LANEWISE Floats load_halves(const uint8_t *at) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at)); }
LANEWISE Ints load_ints(const void *at) { return _mm512_loadu_si512(at); }
LANEWISE void store_floats(float *at, Floats x) { _mm512_storeu_ps(at, x); }
LANEWISE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
LANEWISE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
LANEWISE Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
LANEWISE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
LANEWISE Floats subtract_product(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
LANEWISE Floats larger_of(Floats a, Floats b) { return _mm512_max_ps(a, b); }
LANEWISE Floats rounded(Floats x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LANEWISE Floats negative_size_of(Floats x) { return _mm512_or_ps(x, _mm512_set1_ps(-0.0f)); }
LANEWISE Floats if_negative(Floats x, Floats yes, Floats no) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), no, yes);
}
LANEWISE Floats power_of_2(Floats whole) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127)), 23));
}
LANEWISE Floats floats_from(Ints x) { return _mm512_cvtepi32_ps(x); }
LANEWISE Ints low_halves(Ints bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
LANEWISE Ints high_halves(Ints bytes) { return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15)); }

#else

#define TARGET AVX2
#define LANEWISE INLINE

enum { LANES = 8 };
typedef __m256 Floats;
typedef __m256i Ints;

LANEWISE Floats floats_of(float x) { return _mm256_set1_ps(x); }
LANEWISE Ints ints_of(int32_t x) { return _mm256_set1_epi32(x); }
LANEWISE Floats load_floats(const float *at) { return _mm256_loadu_ps(at); }
LANEWISE Floats load_halves(const uint8_t *at) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)); }
LANEWISE Ints load_ints(const void *at) { return _mm256_loadu_si256(at); }
LANEWISE void store_floats(float *at, Floats x) { _mm256_storeu_ps(at, x); }
LANEWISE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
LANEWISE Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
LANEWISE Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
LANEWISE Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
LANEWISE Floats subtract_product(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
LANEWISE Floats larger_of(Floats a, Floats b) { return _mm256_max_ps(a, b); }
LANEWISE Floats rounded(Floats x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
LANEWISE Floats negative_size_of(Floats x) { return _mm256_or_ps(x, _mm256_set1_ps(-0.0f)); }
LANEWISE Floats if_negative(Floats x, Floats yes, Floats no) { return _mm256_blendv_ps(no, yes, x); }
LANEWISE Floats power_of_2(Floats whole) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23));
}
LANEWISE Floats floats_from(Ints x) { return _mm256_cvtepi32_ps(x); }
LANEWISE Ints low_halves(Ints bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
LANEWISE Ints high_halves(Ints bytes) { return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15)); }

#endif

/* LANES numbers from `element` on, of float16 or float32. */
LANEWISE Floats load_numbers(const uint8_t *at, int64_t element, int is_half) {
  return is_half ? load_halves(at + 2 * element) : load_floats((const float *)at + element);
}

/* e to the power of x for x <= 0: relative error under 2e-7. Below -87 it is that of -87. */
LANEWISE Floats exp_of_negative(Floats x) {
  x = larger_of(x, floats_of(-87.0f));
  const Floats whole = rounded(multiply(x, floats_of(1.44269504f)));
  Floats rest = subtract_product(whole, floats_of(0.693359375f), x);
  rest = subtract_product(whole, floats_of(-2.12194440e-4f), rest);
  /* The Taylor series: the rest is at most ln 2 / 2. */
  Floats sum = floats_of(1.0f / 5040);
  sum = multiply_add(sum, rest, floats_of(1.0f / 720));
  sum = multiply_add(sum, rest, floats_of(1.0f / 120));
  sum = multiply_add(sum, rest, floats_of(1.0f / 24));
  sum = multiply_add(sum, rest, floats_of(1.0f / 6));
  sum = multiply_add(sum, rest, floats_of(0.5f));
  sum = multiply_add(sum, rest, floats_of(1.0f));
  sum = multiply_add(sum, rest, floats_of(1.0f));
  return multiply(sum, power_of_2(whole));
}

#endif

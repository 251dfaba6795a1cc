/* The products of tiled.h by AVX2. */
#define TARGET AVX2
#define MULTIPLY_PART multiply_part_avx2
#include "tiled.h"

enum { ROW_GROUP = 4 };

/* In 16 bits: 8 products of at most 15 * 127 * 2 fit. */
PRODUCT_INLINE __m256i add_4_bits(__m256i sums, __m256i weights, __m256i activations) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, activations));
}

PRODUCT_INLINE __m256i total_of_4_bits(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

/* 128 * 127 * 2 fits in 16 bits, and no two of them do. */
PRODUCT_INLINE __m256i add_8_bits(__m256i sums, __m256i sizes, __m256i activations) {
  return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, activations), _mm256_set1_epi16(1)));
}

#include "tiled-products.h"

/* The products of tiled.h by AVX2. */
#define MULTIPLY_PART multiply_part_avx2
#include "lanes.h"
#include "tiled.h"

enum { ROW_GROUP = 4 };

/* In 16 bits: 8 products of at most 15 * 127 * 2 fit. */
LANEWISE Ints add_4_bits(Ints sums, Ints weights, Ints activations) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, activations));
}

LANEWISE Ints total_of_4_bits(Ints sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

/* The unsigned factor is the weight's size, so the sign goes to the activation. 128 * 127 * 2 fits in 16 bits, and no two of them do. */
LANEWISE Ints add_8_bits(Ints sums, Ints weights, Ints activations) {
  const Ints products = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(activations, weights));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}

#include "tiled-products.h"

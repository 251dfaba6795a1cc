/* The products of tiled.h by AVX512-VNNI: four products and their sum in one instruction; twice the registers, so more rows of activations a tile. */
#define TARGET __attribute__((target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni")))
#define MULTIPLY_PART multiply_part_vnni
#include "tiled.h"

enum { ROW_GROUP = 8 };

PRODUCT_INLINE __m256i add_4_bits(__m256i sums, __m256i weights, __m256i activations) {
  return _mm256_dpbusd_epi32(sums, weights, activations);
}

PRODUCT_INLINE __m256i total_of_4_bits(__m256i sums) { return sums; }

PRODUCT_INLINE __m256i add_8_bits(__m256i sums, __m256i sizes, __m256i activations) { return _mm256_dpbusd_epi32(sums, sizes, activations); }

#include "tiled-products.h"

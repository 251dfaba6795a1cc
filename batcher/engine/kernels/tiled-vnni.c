/* The products of tiled.h by AVX512-VNNI: four products and their sum in one instruction, a whole tile wide. */
#define WIDE
#define MULTIPLY_PART multiply_part_vnni
#include "lanes.h"
#include "tiled.h"

/* 8 results and 8 sums of levels stay in registers; more rows gain nothing. */
enum { ROW_GROUP = 8 };

LANEWISE Ints add_4_bits(Ints sums, Ints weights, Ints activations) { return _mm512_dpbusd_epi32(sums, weights, activations); }

LANEWISE Ints total_of_4_bits(Ints sums) { return sums; }

/* The unsigned factor is the weight's size, so the sign goes to the activation. */
LANEWISE Ints add_8_bits(Ints sums, Ints weights, Ints activations) {
  const __mmask64 is_negative = _mm512_movepi8_mask(weights);
  return _mm512_dpbusd_epi32(sums, _mm512_abs_epi8(weights), _mm512_mask_sub_epi8(activations, is_negative, _mm512_setzero_si512(), activations));
}

#include "tiled-products.h"

/* kscales.h: the eight 6-bit scales and minima that q4_k and q5_k pack in 12 bytes.
 *
 * With s[12]:  sub-block g < 4    scale s[g] & 63,  minimum s[g + 4] & 63
 *              sub-block g >= 4   low nibbles from s[g + 4] (scale low, minimum high), upper two
 *                                 bits from s[g - 4] (scale) and s[g] (minimum)
 */
#ifndef PLEC_LYRW_CODEC_KSCALES_H
#define PLEC_LYRW_CODEC_KSCALES_H

#include "lyrw/codec/bits.h"

/* Scale of sub-block g of 8. */
PLEC_HD int plec_k_scale(const uint8_t *s, int g) {
    return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
}
/* Minimum of sub-block g of 8. */
PLEC_HD int plec_k_min(const uint8_t *s, int g) {
    return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
}

#endif

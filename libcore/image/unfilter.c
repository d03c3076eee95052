/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of unfiltering in plain C, and the list of kernels (unfilter.h).
 */
#include "image/unfilter.h"

#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"
#include "image/unfilter_private.h"

/* Paeth predictor: the one of left, above, corner that is nearest to left + above - corner. Ties:
 * the first of them. */
static uint8_t paeth(uint8_t left, uint8_t above, uint8_t corner) {
    int to_left = abs(above - corner), to_above = abs(left - corner);
    int to_corner = abs(left + above - 2 * corner);
    if (to_left <= to_above && to_left <= to_corner)
        return left;
    return to_above <= to_corner ? above : corner;
}

static void undo_row(const uint8_t *raw, size_t row_bytes, size_t pixel_bytes, const uint8_t *above,
                     uint8_t *out) {
    for (size_t x = 0; x < row_bytes; x++) {
        const bool inside = x >= pixel_bytes;
        const uint8_t left = inside ? out[x - pixel_bytes] : 0, up = above ? above[x] : 0;
        const uint8_t corner = inside && above ? above[x - pixel_bytes] : 0;
        uint8_t guess = 0;
        switch (raw[0]) {
        case CHEX_FILTER_SUB: guess = left; break;
        case CHEX_FILTER_UP: guess = up; break;
        case CHEX_FILTER_AVERAGE: guess = (uint8_t)((left + up) / 2); break;
        case CHEX_FILTER_PAETH: guess = paeth(left, up, corner); break;
        }
        out[x] = (uint8_t)(raw[1 + x] + guess);
    }
}

static void run_plain(const uint8_t *raw, size_t row_bytes, size_t height, size_t pixel_bytes,
                      uint8_t *pixels) {
    for (size_t y = 0; y < height; y++)
        undo_row(raw + y * (row_bytes + 1), row_bytes, pixel_bytes,
                 y ? pixels + (y - 1) * row_bytes : NULL, pixels + y * row_bytes);
}

static bool always(void) { return true; }

static const struct chex_unfilter plain = {"plain", always, run_plain};
static const struct chex_unfilter generic = {"generic", always, chex_unfilter_generic};

#if defined(__x86_64__)
static bool has_sse41(void) { return chex_cpu_has(CHEX_ISA_SSE41); }
static bool has_avx2(void) { return chex_cpu_has(CHEX_ISA_AVX2); }
static bool has_avx512(void) { return chex_cpu_has(CHEX_ISA_AVX512); }

static const struct chex_unfilter sse41 = {"sse41", has_sse41, chex_unfilter_sse41};
static const struct chex_unfilter avx2 = {"avx2", has_avx2, chex_unfilter_avx2};
static const struct chex_unfilter avx512 = {"avx512", has_avx512, chex_unfilter_avx512};
#endif

const struct chex_unfilter *const chex_unfilters[] = {
#if defined(__x86_64__)
    &avx512,  &avx2,  &sse41,
#endif
    &generic, &plain, NULL,
};

const struct chex_unfilter *chex_unfilter_find(const char *name) {
    for (const struct chex_unfilter *const *u = chex_unfilters; *u; u++)
        if ((!name || !strcmp((*u)->name, name)) && (*u)->usable())
            return *u;
    return NULL;
}

bool chex_unfilter_run(const struct chex_unfilter *unfilter, const uint8_t *raw, size_t row_bytes,
                       size_t height, size_t pixel_bytes, uint8_t *pixels) {
    for (size_t y = 0; y < height; y++)
        if (raw[y * (row_bytes + 1)] > CHEX_FILTER_PAETH)
            return false;
    unfilter->run(raw, row_bytes, height, pixel_bytes, pixels);
    return true;
}

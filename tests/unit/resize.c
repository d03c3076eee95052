/* SPDX-License-Identifier: Apache-2.0
 *
 * Pillow's BILINEAR bit for bit: digests recorded by tests/peers/record_images.py.
 */
#include "data/resize.h"

#include <inttypes.h>

#include "tap.h"

/* As in the recording script. */
static uint8_t *picture(int w, int h) {
    size_t n = (size_t)w * (size_t)h;
    uint8_t *p = malloc(n);
    BAIL_UNLESS(p, "no memory");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = i * 2654435761u;
        v ^= v >> 15;
        v *= 2246822519u;
        p[i] = (uint8_t)((v >> 25) + i % (uint32_t)w * 128u / (uint32_t)w);
    }
    return p;
}

static uint64_t fnv(const uint8_t *data, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 0x100000001B3u;
    return h;
}

static uint64_t resized(struct chex_resizer *r, int w, int h, int dw, int dh) {
    struct chex_error err = {0};
    uint8_t *src = picture(w, h), *dst = malloc((size_t)dw * (size_t)dh);
    BAIL_UNLESS(dst && chex_resize(r, src, w, h, dst, dw, dh, &err) == CHEX_OK, "%s", err.text);
    uint64_t digest = fnv(dst, (size_t)dw * (size_t)dh);
    free(src);
    free(dst);
    return digest;
}

/* A flat picture stays flat to the last bit, at the borders too. */
static void check_flat(struct chex_resizer *r) {
    static const int sides[] = {1, 2, 3, 17, 64, 100, 255};
    struct chex_error err = {0};
    bool flat = true;
    for (size_t i = 0; i < 7; i++)
        for (size_t j = 0; j < 7; j++)
            for (int v = 0; v < 256; v += 51) {
                size_t n = (size_t)sides[i] * (size_t)sides[i];
                size_t m = (size_t)sides[j] * (size_t)sides[j];
                uint8_t *src = malloc(n), *dst = malloc(m);
                memset(src, v, n);
                flat = flat && chex_resize(r, src, sides[i], sides[i], dst, sides[j], sides[j],
                                           &err) == CHEX_OK;
                for (size_t k = 0; k < m; k++)
                    flat = flat && dst[k] == v;
                free(src);
                free(dst);
            }
    OK(flat, "a flat picture stays flat");
}

int main(void) {
    struct chex_error err = {0};
    struct chex_resizer *warm = NULL;
    FILE *in = fopen(TEST_DATA "/resize.txt", "r");
    BAIL_UNLESS(in, "no " TEST_DATA "/resize.txt");
    BAIL_UNLESS(chex_resizer_create(&warm, &err) == CHEX_OK, "%s", err.text);
    int w, h, dw, dh, rows = 0;
    uint64_t want;
    for (; fscanf(in, "%d %d %d %d %" SCNx64, &w, &h, &dw, &dh, &want) == 5; rows++) {
        uint64_t got = resized(warm, w, h, dw, dh);
        OK(got == want, "%d x %d to %d x %d equals Pillow (%016" PRIx64 ")", w, h, dw, dh, got);
    }
    fclose(in);
    OK(rows > 20, "%d recorded sizes", rows);
    OK(resized(warm, 64, 64, 32, 32) == resized(warm, 64, 64, 32, 32),
       "a warm resizer does not change the result");
    check_flat(warm);
    chex_resizer_destroy(warm);
    chex_resizer_destroy(NULL);
    return tap_done();
}

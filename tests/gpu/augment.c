/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation on the device against chex_augment_apply, byte for byte: random crops of all sizes,
 * with and without flips, antialias, angles and colours, odd sizes, sizes above the crop's.
 */
#include "input/augment.h"
#include "base/alloc.h"
#include "gpu/gpu_test.h"
#include "input/augment_private.h"

struct shape {
    int stored, size, n;
};

/* Noise, and here and there a run of black or white. */
static uint8_t *make_rows(const struct shape *s) {
    const size_t count = (size_t)s->n * (size_t)s->stored * (size_t)s->stored;
    uint8_t *rows = gt_take(count, 1);
    for (size_t i = 0; i < count; i++) {
        const uint32_t r = chex_rng(3, CHEX_RNG_TEST, i, 5).v[0];
        const uint32_t kind = chex_rng(3, CHEX_RNG_TEST, i / 37, 6).v[0] % 4;
        rows[i] = kind == 0 ? 255 : kind == 1 ? 0 : (uint8_t)r;
    }
    return rows;
}

enum { PLAIN, ANTIALIAS, TURNED, COLOURED, ALL, CENTRE, KINDS };
static const char *const kind_names[] = {"crops",    "antialias",         "turned",
                                         "coloured", "all that there is", "centres"};

static struct chex_crop crop_of(const struct shape *s, int kind, int i) {
    struct chex_augment_options o = {.crop_scale = 0.05, .hflip = 0.5};
    if (kind == CENTRE) {
        struct chex_crop c = chex_augment_centre(s->stored, s->size);
        c.flip = i % 2;
        return c;
    }
    o.antialias = kind == ANTIALIAS || (kind == ALL && i % 3);
    o.rotate = kind == TURNED || kind == ALL ? 180 : 0;
    o.brightness = kind == COLOURED || kind == ALL ? 0.7 : 0;
    o.contrast = (kind == COLOURED && i % 2) || kind == ALL ? 1.5 : 0;
    return chex_augment_draw(&o, 11, (uint64_t)kind, (uint64_t)i, s->stored);
}

/* Stored rows in another order than the images', as in a set that stays on the device. */
static size_t row_of(const struct shape *s, int i) { return (size_t)(s->n - 1 - i); }

static void one(const struct shape *s, int kind) {
    const size_t px = (size_t)s->stored * (size_t)s->stored;
    const size_t out_px = (size_t)s->size * (size_t)s->size, n = (size_t)s->n;
    enum { BEHIND = 64 };
    uint8_t *rows = make_rows(s);
    struct gpu_crop *crops = gt_take(n, sizeof *crops);
    float *want = gt_host(n * out_px);
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(s->stored, s->size));
    BAIL_UNLESS(scratch, "out of memory");
    bool contrast = false;
    for (int i = 0; i < s->n; i++) {
        const struct chex_crop c = crop_of(s, kind, i);
        crops[i] = gpu_crop_of(&c, row_of(s, i) * px);
        contrast = contrast || crops[i].contrast;
        chex_augment_apply_with(&chex_augment_plain, rows + row_of(s, i) * px, s->stored, &c,
                                s->size, false, want + (size_t)i * out_px, scratch);
    }
    float *out = gt_alloc((n * out_px + BEHIND) * sizeof *out);
    GT_OK(gpu_augment(gt_upload(rows, n * px), gt_upload(crops, n * sizeof *crops), s->n, s->stored,
                      s->size, contrast, gt_alloc(n * sizeof(float)), out, NULL));
    float *is = gt_floats(out, n * out_px + BEHIND);
    bool behind = true;
    for (size_t i = n * out_px; i < n * out_px + BEHIND; i++)
        behind = behind && isnan(is[i]);
    OK(memcmp(is, want, n * out_px * sizeof *is) == 0 && behind, "%d of %d px to %d px: %s", s->n,
       s->stored, s->size, kind_names[kind]);
    free(scratch);
    gt_release_all();
}

int main(void) {
    static const struct shape shapes[] = {
        {64, 56, 6}, {40, 32, 6},  {65, 33, 5},   {33, 97, 4}, {17, 1, 5},    {1, 5, 2},
        {2, 2, 3},   {256, 32, 2}, {256, 224, 1}, {97, 97, 2}, {365, 320, 1}, {700, 3, 2},
    };
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
        for (int kind = 0; kind < KINDS; kind++)
            if ((kind != CENTRE || shapes[k].size <= shapes[k].stored) &&
                !(TAP_SLOW_BUILD && shapes[k].stored > 200))
                one(&shapes[k], kind);
    return tap_done();
}

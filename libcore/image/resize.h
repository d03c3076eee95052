/* SPDX-License-Identifier: Apache-2.0
 *
 * Antialiased resize of 8-bit grey images, bit-identical to Pillow's Image.resize(..., BILINEAR).
 *
 * Method: the filter is a triangle around the centre of each output pixel, with half-width
 * max(1, in/out) input pixels, cut at the borders. Weights are computed in double, normalised and
 * rounded to 22 bits. The horizontal pass comes first and rounds to 8 bits; the vertical pass
 * follows. A side that keeps its size is not changed. Kernels for AVX2 and AVX-512 are chosen at
 * run time and give the same bytes as plain C.
 *
 * Pillow versions: up to 12.2 Pillow always runs the horizontal pass first, and the pixels are
 * equal (tested: 10.4.0 and 12.2.0). Pillow 13.0 runs the vertical pass first if that needs fewer
 * steps, as for images much taller than wide. Then up to a quarter of the pixels differ by one grey
 * level. This never happens for a square that becomes a smaller square. The order here is fixed, so
 * that shards do not depend on a version of Pillow.
 *
 * Shards contain squares. An image that is not square is scaled to size x size without keeping its
 * aspect ratio and without cropping, as in the published CheXNet recipes.
 */
#ifndef CHEX_IMAGE_RESIZE_H
#define CHEX_IMAGE_RESIZE_H

#include <stdint.h>

#include "base/error.h"

/* The name of this method in shards, checkpoints and manifests. */
#define CHEX_RESIZE_NAME "pillow-bilinear"

/* Weights and scratch buffers of one thread, reused for the next image. */
struct chex_resizer;

enum chex_status chex_resizer_create(struct chex_resizer **resizer_out, struct chex_error *err);
void chex_resizer_destroy(struct chex_resizer *resizer); /* NULL allowed */

/* Resizes src (src_h, src_w) to dst (dst_h, dst_w).
 * - Both are without padding and must not overlap. All sides are 1..65500.
 * - CHEX_E_RESOURCE: out of memory. There is no other failure. */
enum chex_status chex_resize(struct chex_resizer *resizer, const uint8_t *src, int src_w, int src_h,
                             uint8_t *dst, int dst_w, int dst_h, struct chex_error *err);

#endif

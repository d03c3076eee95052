/* SPDX-License-Identifier: Apache-2.0
 *
 * Antialiased resize of 8-bit grey images: Pillow's Image.resize(..., BILINEAR), bit for bit.
 *
 * A triangle of half-width max(1, in/out) input pixels around each output pixel's centre, cut at
 * the borders; weights computed in double, normalised, rounded to 22 bits; first along the rows,
 * rounded to 8 bits, then along the columns. A side that keeps its size is not touched. Kernels for
 * AVX2 and AVX-512 are chosen at run time; their bytes are those of the plain C.
 *
 * Pillow up to 12 always goes along the rows first. Pillow 13 begins with the columns where that
 * takes fewer steps, which is never so for a square made a smaller square; elsewhere its pixels may
 * differ from ours by one grey level. One fixed order keeps shards alike whatever the image.
 *
 * Shards hold squares: an image that is not square is squeezed to size x size, its aspect ratio not
 * kept and nothing cropped, as the published CheXNet recipes do.
 */
#ifndef CHEX_DATA_RESIZE_H
#define CHEX_DATA_RESIZE_H

#include <stdint.h>

#include "base/error.h"

/* The name that shards, checkpoints and manifests carry for this kernel. */
#define CHEX_RESIZE_NAME "pillow-bilinear"

/* Weights and scratch of one thread, kept from image to image. */
struct chex_resizer;

enum chex_status chex_resizer_create(struct chex_resizer **resizer_out, struct chex_error *err);
void chex_resizer_destroy(struct chex_resizer *resizer); /* NULL allowed */

/* src (src_h, src_w) to dst (dst_h, dst_w), both without padding, not overlapping. All sides
 * 1..65500. Fails for lack of memory only (CHEX_E_RESOURCE). */
enum chex_status chex_resize(struct chex_resizer *resizer, const uint8_t *src, int src_w, int src_h,
                             uint8_t *dst, int dst_w, int dst_h, struct chex_error *err);

#endif

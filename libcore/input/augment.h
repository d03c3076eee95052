/* SPDX-License-Identifier: Apache-2.0
 *
 * From one stored row to one channel of a batch: turn, crop, resize, flip, brightness, contrast.
 *
 * What is done to an image (struct chex_crop) is a function of the options and (seed, epoch, row).
 * Every option has counter positions of its own, so that switching one on leaves the draws of the
 * others as they were. The rules are torchvision's: RandomResizedCrop (ten tries, then the centre),
 * RandomHorizontalFlip, RandomRotation (bilinear, about the centre, 0 outside) and ColorJitter.
 *
 * Order and arithmetic, which every form of the kernels follows to the last bit:
 * 1. Turning: the crop's window of the turned row, rounded to 8 bits. Positions are rounded to
 *    1/256 px; what lies outside counts as pixels of 0.
 * 2. Resizing: vertical first with 8-bit weights that sum to 256 (exact in u16), then horizontal
 *    with 14-bit weights that sum to 16384 (exact in i32). Two taps, or with antialias, where the
 *    crop is larger than the output, a triangle as wide as the crop is larger.
 * 3. Colour: fp32 sum * k + b, each step rounded, then clamped to [0, 1]. Brightness is applied
 *    first and contrast second, about the mean of the crop's stored pixels; ColorJitter also
 *    clamps between the two and takes the mean after resizing. A fused multiply-add would save an
 *    instruction, and cost a function call where a CPU has none.
 */
#ifndef CHEX_INPUT_AUGMENT_H
#define CHEX_INPUT_AUGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What training draws from. */
struct chex_augment_options {
    double crop_scale; /* least share of the area a crop covers, above 0, at most 1 */
    double rotate;     /* degrees: angles in [-rotate, rotate] */
    double brightness; /* factors in [max(0, 1 - brightness), 1 + brightness] */
    double contrast;   /* likewise */
    bool antialias;
};

/* Crops of half the area or more, and nothing else. */
extern const struct chex_augment_options chex_augment_defaults;

/* What is done to one image; all zero but the sides: nothing but a crop. */
struct chex_crop {
    int top, left, height, width; /* px of the stored row, inside it */
    bool flip, antialias;
    double degrees;                        /* counter-clockwise */
    double brightness_more, contrast_more; /* factors minus 1, at least -1 */
};

/* epoch and row below 2^32. */
struct chex_crop chex_augment_draw(const struct chex_augment_options *options, uint64_t seed,
                                   uint64_t epoch, uint64_t row, int stored_size);

/* Evaluation. size <= stored_size. The centre's corner is rounded half to even, as torchvision
 * does. */
struct chex_crop chex_augment_centre(int stored_size, int size);

/* The centre, the four corners, and each of them flipped: view 2i + 1 is view 2i flipped. */
enum { CHEX_AUGMENT_TEN_CROP = 10 };
void chex_augment_ten_crop(int stored_size, int size, struct chex_crop crops_out[]);

/* pixels_in (stored, stored) u8 -> out (size, size) in [0, 1]. scratch: as many bytes as
 * chex_augment_scratch_bytes says, at a 64-byte boundary, used by one call at a time. A crop of
 * exactly size x size copies pixel by pixel.
 * stream: store past the caches, which pays where another core or a copy engine reads the batch.
 * It is heeded where out lies at a 64-byte boundary, size is a multiple of 16 and the CPU's kernels
 * can do it, and changes no bit. */
void chex_augment_apply(const uint8_t *pixels_in, int stored, const struct chex_crop *crop,
                        int size, bool stream, float *out, void *scratch);
size_t chex_augment_scratch_bytes(int stored, int size);

/* Name of the kernels that this CPU uses. */
const char *chex_augment_kernels_name(void);

#endif

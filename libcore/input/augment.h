/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation: turns one stored image into one channel of a batch by rotate, crop, resize, flip,
 * brightness and contrast.
 *
 * The parameters of an image (struct chex_crop) are a function of the options and (seed, epoch,
 * row). Each option has its own random draws, so enabling one does not change the draws of the
 * others. The rules are those of torchvision: RandomResizedCrop (ten tries, then the centre),
 * RandomHorizontalFlip, RandomRotation (bilinear, about the centre, 0 outside) and ColorJitter.
 *
 * Order and arithmetic. All kernels follow them bit for bit:
 * 1. Rotate: the crop's window of the rotated image, rounded to 8 bits. Positions are rounded to
 *    1/256 px. Pixels outside the image are 0.
 * 2. Resize: first the vertical pass with 8-bit weights that sum to 256 (exact in u16), then the
 *    horizontal pass with 14-bit weights that sum to 16384 (exact in i32). Two taps per output.
 *    With antialias, if the crop is larger than the output, a triangle filter whose width grows by
 *    the same factor.
 * 3. Colour: sum * k + b in fp32, both operations rounded, then clamped to [0, 1]. No fused
 *    multiply-add: CPUs without that instruction would need a function call. Brightness is applied
 *    first, then contrast about the mean of the crop's stored pixels. (ColorJitter differs: it also
 *    clamps between the two and takes the mean after resizing.)
 */
#ifndef CHEX_INPUT_AUGMENT_H
#define CHEX_INPUT_AUGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranges of the random parameters in training. */
struct chex_augment_options {
    double crop_scale; /* smallest fraction of the area that a crop covers, in (0, 1] */
    double hflip;      /* probability of the horizontal flip, in [0, 1] */
    double rotate;     /* degrees: angles in [-rotate, rotate] */
    double brightness; /* factors in [max(0, 1 - brightness), 1 + brightness] */
    double contrast;   /* likewise */
    bool antialias;
};

/* Crops of at least half the area, and one flip in two; all else off. */
extern const struct chex_augment_options chex_augment_defaults;

/* Parameters of one image. If only the first four members are set, it is a plain crop. */
struct chex_crop {
    int top, left, height, width; /* px of the stored row, inside it */
    bool flip, antialias;
    double degrees;                        /* counter-clockwise */
    double brightness_more, contrast_more; /* factors minus 1, at least -1 */
};

/* Draws the parameters for training. epoch and row must be below 2^32. */
struct chex_crop chex_augment_draw(const struct chex_augment_options *options, uint64_t seed,
                                   uint64_t epoch, uint64_t row, int stored_size);

/* The centre crop, for evaluation. size <= stored_size. The corner is rounded half to even, as in
 * torchvision. */
struct chex_crop chex_augment_centre(int stored_size, int size);

/* Ten-crop: the centre and the four corners, each also flipped. View 2i + 1 is view 2i flipped. */
enum { CHEX_AUGMENT_TEN_CROP = 10 };
void chex_augment_ten_crop(int stored_size, int size, struct chex_crop crops_out[]);

/* Applies `crop` to one image.
 * - pixels_in: (stored, stored) u8; out: (size, size) in [0, 1]
 * - scratch: chex_augment_scratch_bytes() bytes, 64-byte aligned, used by one call at a time
 * - A crop of exactly size x size is copied without resizing.
 * - stream: use non-temporal stores. This is faster if another core or a copy engine reads the
 *   batch. Ignored unless out is 64-byte aligned, size is a multiple of 16 and the kernels support
 *   it. The result is the same. */
void chex_augment_apply(const uint8_t *pixels_in, int stored, const struct chex_crop *crop,
                        int size, bool stream, float *out, void *scratch);
size_t chex_augment_scratch_bytes(int stored, int size);

/* Name of the kernels that are used on this CPU. */
const char *chex_augment_kernels_name(void);

#endif

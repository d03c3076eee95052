/* SPDX-License-Identifier: Apache-2.0
 *
 * The two decoders of PNG files, and the choice between them for tests and benchmarks.
 *
 * The fast path decodes grey, RGB and RGBA of 8 bits, not interlaced, without a transparent colour.
 * It has four steps: check the CRC of every chunk, inflate all pixels at once, undo the row filters
 * with a vector kernel (unfilter.h), convert colour to grey.
 *
 * The fast path decodes only ordinary files. libpng decodes every other file, and every file in
 * which the fast path finds a fault; libpng then decides if the file is valid, and supplies the
 * error text. So the fast path changes the speed only, not the set of valid files. There is one
 * exception (see inflate.h): deflate code tables that no compressor writes, with correct checksums.
 */
#ifndef CHEX_IMAGE_IMAGE_PNG_H
#define CHEX_IMAGE_IMAGE_PNG_H

#include <stdint.h>

#include "image/image.h"

enum chex_png_path {
    CHEX_PNG_AUTO,   /* the fast path if possible, else libpng */
    CHEX_PNG_FAST,   /* the fast path only; CHEX_E_DATA with the reason for other files */
    CHEX_PNG_LIBPNG, /* libpng for every file */
};

/* Names from chex_inflate_name() and chex_unfilters. NULL: the fastest. */
struct chex_png_choice {
    enum chex_png_path path;
    const char *inflate, *unfilter;
};

/* Sets the decoder for all further PNG files of `reader`. A new reader uses {0}.
 * - CHEX_E_USAGE: a name that is not in this build, or a kernel that this machine cannot run. The
 *   reader is then unchanged. */
enum chex_status chex_png_choose(struct chex_image_reader *reader,
                                 const struct chex_png_choice *choice, struct chex_error *err);

/* Returns the number of images that the fast path of this reader has decoded. */
uint64_t chex_png_fast_count(struct chex_image_reader *reader);

#endif

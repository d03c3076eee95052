/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways to read a PNG file, for image.c, the tests and the bench.
 *
 * The fast path reads grey, RGB and RGBA of 8 bits, not interlaced, without a transparent colour: a
 * walk over the chunks with the CRC of each, one inflate of all pixels, one wavefront over the
 * filters, and for colour a pass to grey. It takes only
 * files in which nothing is out of the ordinary; every other file, and every file in which it
 * finds a fault, is read by libpng, whose verdict and words count. So the fast path decides how
 * fast a file is read, not whether it is good. (The exception is data/inflate.h's: code tables that
 * no compressor writes, around pixels whose every checksum is right.)
 */
#ifndef CHEX_DATA_IMAGE_PNG_H
#define CHEX_DATA_IMAGE_PNG_H

#include <stdint.h>

#include "data/image.h"

enum chex_png_path {
    CHEX_PNG_AUTO,   /* fast where it can be, else libpng */
    CHEX_PNG_FAST,   /* a file that the fast path does not take is CHEX_E_DATA, with the reason */
    CHEX_PNG_LIBPNG, /* libpng for every file */
};

/* By name of chex_inflate_name() and chex_unfilters; NULL is the fastest. */
struct chex_png_choice {
    enum chex_png_path path;
    const char *inflate, *unfilter;
};

/* For all PNG files that `reader` decodes from now on; {0} is what a new reader has. A name that
 * is not in this build, or a kernel that this machine cannot run, is CHEX_E_USAGE, and the reader
 * keeps what it had. */
enum chex_status chex_png_choose(struct chex_image_reader *reader,
                                 const struct chex_png_choice *choice, struct chex_error *err);

/* Images of this reader that the fast path has decoded. */
uint64_t chex_png_fast_count(struct chex_image_reader *reader);

#endif

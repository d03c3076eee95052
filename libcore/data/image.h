/* SPDX-License-Identifier: Apache-2.0
 *
 * Image files to 8-bit grey pixels, of the file's own size or a fraction of it, and grey or
 * coloured pixels to a PNG file.
 *
 * The format is told by the file's first bytes, never by its name; image.c holds the table of
 * formats. Whatever the file's kind, the result is what Pillow's convert("L") gives: colour by
 * (19595 R + 38470 G + 7471 B + 32768) >> 16, palettes looked up, grey of 1, 2 and 4 bits spread
 * over 0..255, alpha and transparency dropped, gamma and colour profiles ignored. One difference:
 * 16 bits become 8 by the high byte (v >> 8) for grey too, where Pillow clips everything above 255
 * to white.
 *
 * JPEG: 8 bits, grey or three components, baseline or progressive; at full size bit for bit what
 * Pillow's convert("L") gives (colour goes through RGB, not by the Y channel). CMYK is refused. A
 * reader with a target size decodes at the smallest of 1/1, 1/2, 1/4, 1/8 of the file's size
 * (rounded up) whose sides are both at least 4 times the target: against full decoding that moves
 * a pixel of the final resize by about 0.1 grey levels on average. The orientation tag of EXIF is
 * ignored, as Pillow's Image.open does.
 *
 * DICOM (told by "DICM" at byte 128) needs the module chexnet-dicom.so; without it such a file is
 * CHEX_E_ENV, not a bad image. The first frame, MONOCHROME2 or MONOCHROME1 (inverted), 8 to 16
 * bits: rescale slope and intercept, then the first VOI window of the file (LINEAR, LINEAR_EXACT or
 * SIGMOID), mapped to 0..255 and rounded half up; without a window the least value of the frame
 * becomes 0 and the greatest 255. Lookup tables are not looked at (a modality LUT is refused: its
 * values are not rescaled ones). JPEG, JPEG-LS and RLE transfer syntaxes are decoded by DCMTK,
 * which allocates for each file; JPEG 2000 and deflated files are refused.
 *
 * A file with any fault is refused as a whole: a wrong CRC in any chunk, a wrong checksum of the
 * pixels, too few or too many pixels, no end mark, sizes beyond the limits, or sizes that so short
 * a file cannot hold (a bomb; told before anything is allocated). For JPEG, which has no checksums,
 * whatever libjpeg warns of is a fault, as are more than 100 scans and more than 1 GiB of
 * coefficients. Nothing behind the end mark is looked at.
 */
#ifndef CHEX_DATA_IMAGE_H
#define CHEX_DATA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    CHEX_IMAGE_MAX_SIDE_PX = 65500,
    CHEX_IMAGE_MAX_PIXELS = 256 << 20,
    CHEX_IMAGE_MAX_FILE_BYTES = 1 << 30,
};

/* Owned by the caller; start with {0}. The buffer grows and is kept from image to image. */
struct chex_image {
    uint8_t *pixels; /* (height, width), pitch = width */
    size_t capacity; /* bytes at pixels */
    int width, height;
};

void chex_image_release(struct chex_image *image); /* leaves {0} */

/* Makes room for width x height pixels (content undefined) and sets the sizes. CHEX_E_DATA beyond
 * the limits above; the image is unchanged on failure. */
enum chex_status chex_image_reserve(struct chex_image *image, int width, int height,
                                    struct chex_error *err);

/* The scratch memory of one thread: file bytes, rows, the decoder's state. Once it has met the
 * largest image of a set, reading allocates nothing more. Not to be shared between threads. */
struct chex_image_reader;

enum chex_status chex_image_reader_create(struct chex_image_reader **reader_out,
                                          struct chex_error *err);
void chex_image_reader_destroy(struct chex_image_reader *reader); /* NULL allowed */

/* Images will be made smaller to px x px: formats that can may decode at a fraction of the size, by
 * the rule above. 0 (so it begins): full size. */
void chex_image_reader_set_target(struct chex_image_reader *reader, int px);

/* The whole file. The bytes belong to the reader and last until its next read. CHEX_E_DATA: no
 * such file, not a regular file, empty, over CHEX_IMAGE_MAX_FILE_BYTES. */
enum chex_status chex_image_read(struct chex_image_reader *reader, const char *path,
                                 const uint8_t **data_out, size_t *size_out,
                                 struct chex_error *err);

/* CHEX_E_DATA where a file of so many bytes is no image: 0, or over CHEX_IMAGE_MAX_FILE_BYTES. */
enum chex_status chex_image_check_bytes(const char *name, uint64_t bytes, struct chex_error *err);

/* Room for a file's bytes that come from elsewhere than a file of their own; it belongs to the
 * reader and lasts until its next read. CHEX_E_DATA as chex_image_check_bytes. */
enum chex_status chex_image_room(struct chex_image_reader *reader, const char *name, uint64_t bytes,
                                 uint8_t **room_out, struct chex_error *err);

/* Decodes bytes in memory; `name` stands in the error text. On failure (CHEX_E_DATA with the
 * library's own message, CHEX_E_RESOURCE) the sizes are 0 and the buffer stays usable. `data` may
 * be what chex_image_read gave. */
enum chex_status chex_image_decode(struct chex_image_reader *reader, const void *data, size_t size,
                                   const char *name, struct chex_image *image,
                                   struct chex_error *err);

/* chex_image_read and chex_image_decode. */
enum chex_status chex_image_load(struct chex_image_reader *reader, const char *path,
                                 struct chex_image *image, struct chex_error *err);

/* Name of the format the bytes begin like ("png"), or NULL. */
const char *chex_image_format(const void *data, size_t size);

/* Writes an 8-bit grey PNG straight to `path` (no temporary name, no fsync: for new folders that
 * are of no use half done). A file that could not be finished is removed. A full disk is
 * CHEX_E_RESOURCE. */
enum chex_status chex_image_write_png(const char *path, const uint8_t *pixels, int width,
                                      int height, struct chex_error *err);

/* The same of RGB (height, width, 3). texts: keywords (1 to 79 Latin-1 letters) and their texts
 * (UTF-8) in turn, NULL at the end; NULL: none. */
enum chex_status chex_image_write_png_rgb(const char *path, const uint8_t *rgb, int width,
                                          int height, const char *const *texts,
                                          struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes image files to 8-bit grey pixels, at full size or at a fraction of it, and writes PNG
 * files.
 *
 * The first bytes of a file decide its format, never its name. image.c has the table of formats.
 *
 * All formats: the pixels are bit-identical to Pillow's convert("L").
 * - Colour becomes (19595 R + 38470 G + 7471 B + 32768) >> 16. Palettes are resolved.
 * - Grey of 1, 2 and 4 bits is scaled to 0..255.
 * - Alpha, transparency, gamma and colour profiles are ignored.
 * - One difference: grey PNG of 16 bits. CHEX_IMAGE_PNG16 of the values becomes 0..255, rounded
 * half up, because many files use 12 or 14 of the bits. Pillow clips grey above 255 to white.
 * - Colour of 16 bits keeps the high byte (v >> 8), as in Pillow.
 *
 * JPEG: 8 bits, one component (grey) or three, baseline or progressive.
 * - Colour is converted through RGB, as in Pillow, not taken from the Y channel.
 * - CMYK is refused. The EXIF orientation is ignored, as in Pillow's Image.open.
 * - A reader with a target size decodes at the smallest of 1/1, 1/2, 1/4, 1/8 of the file's size
 *   (rounded up) with both sides at least 4 times the target. Compared with full decoding, a pixel
 *   after the final resize differs by about 0.1 grey levels on average.
 *
 * DICOM ("DICM" at byte 128): needs the module chexnet-dicom.so. Without the module such a file is
 * CHEX_E_ENV, not a bad image.
 * - First frame only; MONOCHROME2 or MONOCHROME1 (inverted); 8 to 16 bits.
 * - Rescale slope and intercept are applied, then the first item of the VOI LUT Sequence; if there
 * is none, the first VOI window (LINEAR, LINEAR_EXACT or SIGMOID). The result is mapped to 0..255
 * and rounded half up.
 * - Without either, the smallest value of the frame becomes 0 and the largest becomes 255.
 * - A modality LUT is refused, because it replaces the rescaling.
 * - DCMTK decodes JPEG, JPEG-LS and RLE, OpenJPEG decodes JPEG 2000 (transfer syntaxes
 *   1.2.840.10008.1.2.4.90 and .91). Both allocate memory for each file.
 * - Deflated files are refused.
 * - JPEG 2000: one component with the size and sign that the DICOM file states, values within its
 *   stored bits, at most 4,096 tiles, all tiles complete. Any warning of OpenJPEG refuses the file.
 *   If the module was built without OpenJPEG, such a file is CHEX_E_ENV.
 *
 * A file with any fault is refused as a whole:
 * - a wrong CRC in any chunk, a wrong checksum of the pixels, too few or too many pixels, no end
 *   mark;
 * - a size beyond the limits, or a size that a file of this length cannot contain (a decompression
 *   bomb; detected before memory is allocated);
 * - JPEG, which has no checksums: any warning of libjpeg, more than 100 scans, more than 1 GiB of
 *   coefficients.
 * Bytes after the end mark are ignored.
 */
#ifndef CHEX_IMAGE_IMAGE_H
#define CHEX_IMAGE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    CHEX_IMAGE_MAX_SIDE_PX = 65500,
    CHEX_IMAGE_MAX_PIXELS = 256 << 20,
    CHEX_IMAGE_MAX_FILE_BYTES = 1 << 30,
};

/* The window of grey PNG files of 16 bits, for manifests: quantiles of the pixels. */
#define CHEX_IMAGE_PNG16 "0.1 % to 99.9 %"

/* What the file says about its image besides the pixels. Only DICOM has the texts, "" otherwise. */
enum { CHEX_IMAGE_UID_BYTES = 65, CHEX_IMAGE_VIEW_BYTES = 17 };
struct chex_image_about {
    /* Colour files: pixels of every 16th row, and those of them whose channels differ by more than
     * CHEX_GREY_CHROMA (grey.h). */
    uint64_t checked, coloured;
    char study_uid[CHEX_IMAGE_UID_BYTES], series_uid[CHEX_IMAGE_UID_BYTES];
    char view[CHEX_IMAGE_VIEW_BYTES]; /* ViewPosition: "PA", "AP", "LL", ... */
};

/* Owned by the caller. Initialise with {0}. The buffer grows and is reused for the next image. */
struct chex_image {
    uint8_t *pixels; /* (height, width), pitch = width */
    size_t capacity; /* bytes at pixels */
    int width, height;
    int file_width, file_height;   /* as the file states them; larger if decoded at a fraction */
    struct chex_image_about about; /* set by chex_image_decode() */
};

void chex_image_release(struct chex_image *image); /* leaves {0} */

/* Sets the sizes of the image and grows its buffer if needed. The content is undefined.
 * - CHEX_E_DATA: beyond the limits above. After a failure the image is unchanged. */
enum chex_status chex_image_reserve(struct chex_image *image, int width, int height,
                                    struct chex_error *err);

/* Buffers and decoder state of one thread. Must not be shared between threads. */
struct chex_image_reader;

enum chex_status chex_image_reader_create(struct chex_image_reader **reader_out,
                                          struct chex_error *err);
void chex_image_reader_destroy(struct chex_image_reader *reader); /* NULL allowed */

/* Sets the size (px x px) of a later resize. Formats that support it then decode at a fraction of
 * the full size, by the rule above. 0 (the default): decode at full size. */
void chex_image_reader_set_target(struct chex_image_reader *reader, int px);

/* Reads a whole file. The reader owns the bytes; they are valid until its next read.
 * - CHEX_E_DATA: no such file, not a regular file, empty, larger than CHEX_IMAGE_MAX_FILE_BYTES. */
enum chex_status chex_image_read(struct chex_image_reader *reader, const char *path,
                                 const uint8_t **data_out, size_t *size_out,
                                 struct chex_error *err);

/* Checks the size of a file. CHEX_E_DATA: 0 bytes, or more than CHEX_IMAGE_MAX_FILE_BYTES. */
enum chex_status chex_image_check_bytes(const char *name, uint64_t bytes, struct chex_error *err);

/* Returns a buffer of `bytes` bytes, for images that are part of an archive. The reader owns the
 * buffer; it is valid until the reader's next read. CHEX_E_DATA: as chex_image_check_bytes(). */
enum chex_status chex_image_capacity(struct chex_image_reader *reader, const char *name,
                                     uint64_t bytes, uint8_t **buffer_out, struct chex_error *err);

/* Decodes an image file in memory.
 * - data: may be the result of chex_image_read().
 * - name: the image's name for the error text.
 * - CHEX_E_DATA: a damaged or unsupported file, with the library's message. CHEX_E_RESOURCE: out of
 *   memory. CHEX_E_ENV: DICOM without its module. After a failure the sizes are 0 and the image can
 *   be reused. */
enum chex_status chex_image_decode(struct chex_image_reader *reader, const void *data, size_t size,
                                   const char *name, struct chex_image *image,
                                   struct chex_error *err);

/* Returns the name of the format ("png") by the first bytes; NULL if unknown. */
const char *chex_image_format(const void *data, size_t size);

/* Writes an 8-bit grey PNG, pixels (height, width), to `path`.
 * - Uses no temporary name and no fsync: for files in a new folder that is useless if incomplete.
 * - After a failure the file is removed. CHEX_E_RESOURCE: the disk is full. */
enum chex_status chex_image_write_png(const char *path, const uint8_t *pixels, int width,
                                      int height, struct chex_error *err);

/* Writes an RGB PNG, rgb (height, width, 3), to `fd` and closes `fd`.
 * - name: for the error text.
 * - texts: alternating keywords (1 to 79 Latin-1 letters) and texts (UTF-8), NULL at the end. NULL:
 *   no texts. */
enum chex_status chex_image_write_png_rgb(int fd, const char *name, const uint8_t *rgb, int width,
                                          int height, const char *const *texts,
                                          struct chex_error *err);

/* Makes a PNG file in memory; the caller frees *png_out. pixels: (height, width, channels); 1
 * channel: grey, 3: RGB, 4: RGB and opacity. */
enum chex_status chex_image_encode_png(const uint8_t *pixels, int width, int height, int channels,
                                       uint8_t **png_out, size_t *bytes_out,
                                       struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Both paths of PNG: equal verdict and equal pixels. Bytes that begin as a PNG file are decoded as
 * they are, and again with the CRC of every chunk mended, so that the rules after it are reached.
 * All others become the filters and filtered pixels of a whole file, which every unfilter kernel
 * must read as libpng does.
 */
#include <string.h>
#include <zlib.h>

#include "fuzz.h"
#include "image/image_png.h"
#include "image/inflate.h"
#include "image/unfilter.h"

static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static struct chex_image_reader *reader, *referee;
static struct chex_image image, wanted;

static void start(void) {
    const struct chex_png_choice libpng = {.path = CHEX_PNG_LIBPNG};
    FUZZ_CHECK(chex_image_reader_create(&reader, NULL) == CHEX_OK);
    FUZZ_CHECK(chex_image_reader_create(&referee, NULL) == CHEX_OK);
    FUZZ_CHECK(chex_png_choose(referee, &libpng, NULL) == CHEX_OK);
}

static enum chex_status compare(const uint8_t *data, size_t size) {
    struct chex_error err = {0}, why = {0};
    const enum chex_status st = chex_image_decode(reader, data, size, "x", &image, &err);
    FUZZ_CHECK(st == chex_image_decode(referee, data, size, "x", &wanted, &why));
    FUZZ_CHECK(!strcmp(err.text, why.text) && (st == CHEX_OK) == !err.text[0]);
    FUZZ_CHECK(image.width == wanted.width && image.height == wanted.height);
    const size_t pixels = (size_t)image.width * (size_t)image.height;
    FUZZ_CHECK(!pixels || !memcmp(image.pixels, wanted.pixels, pixels));
    return st;
}

static void put_u32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void mend(uint8_t *data, size_t size) {
    for (size_t at = 8; size - at >= 12;) {
        const uint32_t n = (uint32_t)data[at] << 24 | (uint32_t)data[at + 1] << 16 |
                           (uint32_t)data[at + 2] << 8 | data[at + 3];
        if (n > size - at - 12)
            return;
        put_u32(data + at + 8 + n, (uint32_t)crc32(0, data + at + 4, n + 4));
        at += 12 + (size_t)n;
    }
}

static void check_file(const uint8_t *data, size_t size) {
    compare(data, size);
    uint8_t *copy = malloc(size);
    FUZZ_CHECK(copy);
    memcpy(copy, data, size);
    mend(copy, size);
    compare(copy, size);
    free(copy);
}

static uint8_t *put_chunk(uint8_t *p, const char *kind, const uint8_t *data, size_t n) {
    put_u32(p, (uint32_t)n);
    memcpy(p + 4, kind, 4);
    if (n)
        memcpy(p + 8, data, n);
    put_u32(p + 8 + n, (uint32_t)crc32(0, p + 4, (uInt)n + 4));
    return p + 12 + n;
}

/* w * h pixels of a colour type whose filtered rows are the bytes, again and again; IDATs of
 * `piece` bytes. */
static void check_pixels(uint32_t w, uint32_t h, int colour, size_t piece, const uint8_t *data,
                         size_t size) {
    const size_t row_bytes = (size_t)w * (colour == 0 ? 1 : colour == 2 ? 3 : 4);
    const size_t raw_bytes = h * (row_bytes + 1);
    uLongf packed_bytes = compressBound(raw_bytes);
    const size_t pieces = packed_bytes / piece + 1;
    uint8_t *raw = malloc(raw_bytes), *packed = malloc(packed_bytes);
    uint8_t *file = malloc(64 + packed_bytes + 12 * pieces), *at = file + 8, header[13] = {0};
    FUZZ_CHECK(raw && packed && file);
    for (size_t i = 0; i < raw_bytes; i++)
        raw[i] = i % (row_bytes + 1) ? data[i % size] : (uint8_t)(data[i % size] % 5);
    FUZZ_CHECK(compress2(packed, &packed_bytes, raw, raw_bytes, data[0] % 3) == Z_OK);
    memcpy(file, signature, 8);
    put_u32(header, w);
    put_u32(header + 4, h);
    header[8] = 8;
    header[9] = (uint8_t)colour;
    at = put_chunk(at, "IHDR", header, 13);
    for (size_t i = 0; i < packed_bytes; i += piece)
        at = put_chunk(at, "IDAT", packed + i, packed_bytes - i < piece ? packed_bytes - i : piece);
    at = put_chunk(at, "IEND", NULL, 0);
    const size_t bytes = (size_t)(at - file);
    for (const struct chex_unfilter *const *u = chex_unfilters; *u; u++) {
        const struct chex_png_choice choice = {CHEX_PNG_FAST, NULL, (*u)->name};
        if (!(*u)->usable())
            continue;
        FUZZ_CHECK(chex_png_choose(reader, &choice, NULL) == CHEX_OK);
        FUZZ_CHECK(compare(file, bytes) == CHEX_OK);
    }
    FUZZ_CHECK(chex_png_choose(reader, &(struct chex_png_choice){0}, NULL) == CHEX_OK);
    free(raw);
    free(packed);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int colours[4] = {0, 2, 6, 0};
    if (!reader)
        start();
    if (size >= 8 && !memcmp(data, signature, 8))
        check_file(data, size);
    else if (size > 4)
        check_pixels(1 + (data[0] | (data[1] & 1) << 8), 1u + data[2], colours[data[1] >> 1 & 3],
                     1 + (size_t)data[3] * 16, data + 4, size - 4);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Image files in memory: recorded ones, ones that a test makes, and damaged ones, all decoded by
 * one reader.
 */
#ifndef CHEX_TESTS_UNIT_IMAGE_BYTES_H
#define CHEX_TESTS_UNIT_IMAGE_BYTES_H

#include <zlib.h>

#include "dir.h"
#include "images.h"
#include "tap.h"

struct bytes {
    uint8_t data[1 << 20];
    size_t size;
};

static struct chex_error err;
static struct chex_image_reader *reader;
static struct chex_image image;

static inline struct bytes *bytes_new(void) {
    struct bytes *b = calloc(1, sizeof *b);
    BAIL_UNLESS(b, "no memory");
    return b;
}

static inline void put(struct bytes *b, const void *data, size_t n) {
    BAIL_UNLESS(b->size + n <= sizeof b->data, "the file is too long");
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size += n;
}

static inline struct bytes *bytes_read(const char *path) {
    const uint8_t *data;
    size_t size;
    struct bytes *b = bytes_new();
    MUST(chex_image_read(reader, path, &data, &size, &err));
    put(b, data, size);
    return b;
}

/* ---- PNG ---- */

static inline void put_u32(struct bytes *b, uint32_t v) {
    const uint8_t big[] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    put(b, big, sizeof big);
}

static inline void put_chunk(struct bytes *b, const char *kind, const void *data, size_t n) {
    put_u32(b, (uint32_t)n);
    const size_t at = b->size;
    put(b, kind, 4);
    put(b, data, n);
    put_u32(b, (uint32_t)crc32(0, b->data + at, (uInt)n + 4));
}

static inline void put_png_header(struct bytes *b, uint32_t w, uint32_t h, int depth, int colour) {
    b->size = 0;
    put(b, "\x89PNG\r\n\x1a\n", 8);
    put_u32(b, 13);
    put(b, "IHDR", 4);
    put_u32(b, w);
    put_u32(b, h);
    put(b, (uint8_t[]){(uint8_t)depth, (uint8_t)colour, 0, 0, 0}, 5);
    put_u32(b, (uint32_t)crc32(0, b->data + 12, 17));
}

/* ---- decoding ---- */

/* Decodes the file with the name "x". It lies in a copy of the exact size, so that the sanitizer
 * sees a read after the end. */
static inline enum chex_status decode_by(struct chex_image_reader *r, const struct bytes *b,
                                         struct chex_image *out, struct chex_error *why) {
    uint8_t *copy = malloc(b->size ? b->size : 1);
    BAIL_UNLESS(copy, "no memory");
    memcpy(copy, b->data, b->size);
    memset(why, 0, sizeof *why);
    const enum chex_status st = chex_image_decode(r, copy, b->size, "x", out, why);
    free(copy);
    return st;
}

static inline enum chex_status decode(const struct bytes *b) {
    return decode_by(reader, b, &image, &err);
}

/* Whether the file is refused as bad data, with a text that begins like this. */
static inline bool refused(const struct bytes *b, const char *begin) {
    return decode(b) == CHEX_E_DATA && image.width == 0 &&
           strncmp(err.text, begin, strlen(begin)) == 0;
}

/* The file must be refused, its text must hold `needle`. Frees it. */
static inline void check_one(struct bytes *b, const char *needle) {
    OK_STATUS(decode(b), CHEX_E_DATA, err, needle);
    OK(image.width == 0 && image.height == 0, "and the sizes are 0");
    free(b);
}

/* Cuts of the file to `from` bytes and more that are not refused with a text that begins so. */
static inline size_t cuts_that_pass(struct bytes *b, size_t from, const char *begin) {
    const size_t size = b->size;
    size_t passed = 0;
    for (b->size = from; b->size < size; b->size++)
        passed += !refused(b, begin);
    return passed;
}

/* Flips one bit at a time, at byte `from` or after it. Counts the files that `good` rejects. */
static inline size_t flips_that_fail(struct bytes *b, size_t from,
                                     bool (*good)(const struct bytes *b)) {
    size_t failed = 0;
    for (size_t i = from; i < b->size; i++)
        for (int bit = 0; bit < 8; bit++) {
            b->data[i] ^= (uint8_t)(1 << bit);
            failed += !good(b);
            b->data[i] ^= (uint8_t)(1 << bit);
        }
    return failed;
}

/* Each line of FOLDER/expected.txt: a name, and the width, height and pixels of NAME.ENDING. */
static inline void check_recorded_pixels(const char *folder, const char *ending, int files,
                                         const char *what) {
    char *text = NULL, *save = NULL;
    int count = 0;
    MUST(chex_fs_read(data_path("%s/expected.txt", folder), 1 << 20, &text, NULL, &err));
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], hex[4096];
        int w, h;
        BAIL_UNLESS(sscanf(line, "%63s %d %d %4095s", name, &w, &h, hex) == 4, "%s", line);
        memset(&err, 0, sizeof err);
        const enum chex_status st =
            image_load(reader, data_path("%s/%s.%s", folder, name, ending), &image, &err);
        OK(st == CHEX_OK && image.width == w && image.height == h && image_equals_hex(&image, hex),
           "%s equals %s %s", name, what, err.text);
        count++;
    }
    OK(count == files, "%d recorded files", count);
    free(text);
}

#endif

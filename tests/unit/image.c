/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding against recorded pixels (tests/peers/record_images.py), and files broken in every way
 * we could think of.
 */
#include "image/image.h"

#include "image_bytes.h"
#include "tap.h"

/* One stored deflate block of n bytes of value 0; the Adler-32 off by `lie`. */
static size_t stored_zeros(uint8_t *out, uint16_t n, uint32_t lie) {
    uint8_t head[7] = {
        0x78, 0x01, 1, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)};
    memcpy(out, head, 7);
    memset(out + 7, 0, n);
    uint32_t adler = ((uint32_t)n << 16 | 1) + lie;
    uint8_t tail[4] = {(uint8_t)(adler >> 24), (uint8_t)(adler >> 16), (uint8_t)(adler >> 8),
                       (uint8_t)adler};
    memcpy(out + 7 + n, tail, 4);
    return (size_t)n + 11;
}

/* 8-bit grey w x h whose IDAT holds `raw` bytes. */
static struct bytes *grey_file(uint32_t w, uint32_t h, uint16_t raw, uint32_t lie, bool end) {
    struct bytes *b = bytes_new();
    uint8_t *idat = malloc(65536 + 11);
    BAIL_UNLESS(idat, "no memory");
    put_png_header(b, w, h, 8, 0);
    put_chunk(b, "IDAT", idat, stored_zeros(idat, raw, lie));
    if (end)
        put_chunk(b, "IEND", "", 0);
    free(idat);
    return b;
}

static bool is_refused(const struct bytes *b) { return refused(b, "x: "); }

/* No change of a single byte, and no shorter file, passes: each chunk has its CRC. */
static void check_every_byte(const char *name) {
    struct bytes *b = bytes_read(data_path("png/%s.png", name));
    size_t passed = flips_that_fail(b, 0, is_refused);
    OK(passed == 0, "%s: %zu flipped bits are all refused (%zu passed)", name, 8 * b->size, passed);
    passed = cuts_that_pass(b, 0, "x: ");
    OK(passed == 0, "%s: every truncation is refused (%zu passed)", name, passed);
    put(b, "trailing", 8);
    OK_CALL(decode(b));
    free(b);
}

static struct bytes *header_only(uint32_t w, uint32_t h, int depth, int colour) {
    struct bytes *b = bytes_new();
    put_png_header(b, w, h, depth, colour);
    put_chunk(b, "IEND", "", 0);
    return b;
}

static void check_broken(void) {
    struct bytes *b = grey_file(4, 4, 20, 0, true);
    OK_CALL(decode(b));
    free(b);
    check_one(grey_file(4, 4, 20, 0, false), "the file ends early");
    check_one(grey_file(4, 4, 20, 1, true), "incorrect data check");
    check_one(grey_file(4, 4, 19, 0, true), "libpng: ");
    check_one(grey_file(4, 4, 21, 0, true), "oo much image data");
    check_one(header_only(4, 4, 8, 0), "libpng: ");
    check_one(header_only(0, 4, 8, 0), "libpng: ");
    check_one(header_only(4, 4, 7, 0), "libpng: ");
    check_one(header_only(4, 4, 8, 5), "libpng: ");
    check_one(header_only(4, 4, 8, 255), "libpng: ");
    check_one(header_only(4, 4, 8, 3), "libpng: "); // no palette
    check_one(header_only(65501, 1, 8, 0), "the limit is 65500 a side");
    check_one(header_only(1, 65501, 8, 0), "the limit is 65500 a side");
    check_one(header_only(0xffffffffu, 0xffffffffu, 8, 0), "the limit is");
    check_one(header_only(65500, 65500, 8, 0), "268435456 in all");
    check_one(header_only(16384, 16384, 8, 0), "bytes cannot hold");
    check_one(header_only(16384, 16384, 16, 6), "bytes cannot hold");
    check_one(bytes_new(), "begins with nothing");
    b = bytes_new();
    put(b, "GIF89a\x01\x02", 8);
    check_one(b, "begins with 47 49 46 38");
    OK(!strcmp(chex_image_format("\x89PNG\r\n\x1a\n", 8), "png"), "PNG is recognised by its bytes");
    OK(!chex_image_format("\x89PNG\r\n\x1a", 7), "and by all eight");
}

static void check_files(void) {
    OK_STATUS(image_load(reader, dir, &image, &err), CHEX_E_DATA, err, "not a regular file");
    OK_STATUS(image_load(reader, dir_path("none.png"), &image, &err), CHEX_E_DATA, err,
              "cannot open");
    OK_STATUS(image_load(reader, dir_put("empty.png", "", 0), &image, &err), CHEX_E_DATA, err,
              "empty file");

    uint8_t pixels[5 * 300];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 37 ^ i >> 3);
    const char *path = dir_path("out.png"), *link = dir_path("full.png");
    OK_CALL(chex_image_write_png(path, pixels, 300, 5, &err));
    OK_CALL(image_load(reader, path, &image, &err));
    OK(image.width == 300 && image.height == 5 && !memcmp(image.pixels, pixels, sizeof pixels),
       "what was written is read back");
    OK_STATUS(chex_image_write_png("/nonexistent/x.png", pixels, 300, 5, &err), CHEX_E_ENV, err,
              "cannot create /nonexistent/x.png");
    if (symlink("/dev/full", link) == 0 && access("/dev/full", W_OK) == 0) {
        OK_STATUS(chex_image_write_png(link, pixels, 300, 5, &err), CHEX_E_RESOURCE, err,
                  "No space left");
        OK(access(link, F_OK) != 0, "nothing stays of a file that could not be finished");
    }
}

static void check_reuse(void) {
    struct bytes *big = grey_file(200, 200, 200 * 201, 0, true);
    struct bytes *small = grey_file(4, 4, 20, 0, true);
    OK(decode(big) == CHEX_OK && image.capacity >= 40000, "the buffer grows");
    uint8_t *before = image.pixels;
    OK(decode(small) == CHEX_OK && decode(big) == CHEX_OK && image.pixels == before, "and is kept");
    OK_STATUS(chex_image_reserve(&image, 0, 4, &err), CHEX_E_DATA, err, "at least 1 x 1");
    OK_STATUS(chex_image_reserve(&image, 65501, 4, &err), CHEX_E_DATA, err, "65500");
    OK(image.width == 200 && image.pixels == before, "a refused size changes nothing");
    free(big);
    free(small);
}

int main(void) {
    dir_make();
    MUST(chex_image_reader_create(&reader, &err));
    check_recorded_pixels("png", "png", 38, "Pillow's grey");
    check_every_byte("grey-8");
    check_every_byte("rgba-16-adam7");
    check_every_byte("palette-8-trns-adam7");
    check_broken();
    check_files();
    check_reuse();
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
    chex_image_reader_destroy(NULL);
    dir_remove();
    return tap_done();
}

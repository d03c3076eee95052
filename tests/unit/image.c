/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding against recorded pixels (tests/peers/record_images.py), and files broken in every way
 * we could think of.
 */
#include "image/image.h"

#include <ctype.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "images.h"
#include "tap.h"

static struct chex_image_reader *reader;
static struct chex_image image;
static char dir[] = "/tmp/chex-image-XXXXXX";

/* ---- a PNG writer that can lie ---- */

struct bytes {
    uint8_t data[1 << 16];
    size_t size;
};

static void put(struct bytes *b, const void *data, size_t n) {
    memcpy(b->data + b->size, data, n);
    b->size += n;
}

static void put_u32(struct bytes *b, uint32_t v) {
    uint8_t big[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};
    put(b, big, 4);
}

static uint32_t crc(const uint8_t *p, size_t n) {
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

static void put_chunk(struct bytes *b, const char *kind, const void *data, size_t n) {
    put_u32(b, (uint32_t)n);
    size_t at = b->size;
    put(b, kind, 4);
    put(b, data, n);
    put_u32(b, crc(b->data + at, n + 4));
}

static void put_header(struct bytes *b, uint32_t w, uint32_t h, int depth, int colour) {
    struct bytes *ihdr = calloc(1, sizeof *ihdr);
    put_u32(ihdr, w);
    put_u32(ihdr, h);
    uint8_t rest[5] = {(uint8_t)depth, (uint8_t)colour, 0, 0, 0};
    put(ihdr, rest, 5);
    b->size = 0;
    put(b, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(b, "IHDR", ihdr->data, ihdr->size);
    free(ihdr);
}

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
    struct bytes *b = calloc(1, sizeof *b);
    uint8_t *idat = malloc(65536 + 11);
    BAIL_UNLESS(b && idat, "no memory");
    put_header(b, w, h, 8, 0);
    put_chunk(b, "IDAT", idat, stored_zeros(idat, raw, lie));
    if (end)
        put_chunk(b, "IEND", "", 0);
    free(idat);
    return b;
}

static enum chex_status decode(const struct bytes *b, struct chex_error *err) {
    /* A copy of the exact size, so that the sanitizer sees a read after the end. */
    uint8_t *copy = malloc(b->size ? b->size : 1);
    memcpy(copy, b->data, b->size);
    enum chex_status st = chex_image_decode(reader, copy, b->size, "x.png", &image, err);
    free(copy);
    return st;
}

/* ---- recorded files ---- */

static void check_recorded(void) {
    char *text = NULL, *save = NULL;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_read(TEST_DATA "/png/expected.txt", 1 << 20, &text, NULL, &err) == CHEX_OK,
                "%s", err.text);
    int files = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], hex[1024], path[512];
        int w, h;
        BAIL_UNLESS(sscanf(line, "%63s %d %d %1023s", name, &w, &h, hex) == 4, "%s", line);
        snprintf(path, sizeof path, "%s/png/%s.png", TEST_DATA, name);
        memset(&err, 0, sizeof err);
        enum chex_status st = image_load(reader, path, &image, &err);
        OK(st == CHEX_OK && image.width == w && image.height == h && image_equals_hex(&image, hex),
           "%s equals Pillow's grey %s", name, err.text);
        files++;
    }
    OK(files == 36, "%d recorded files", files);
    free(text);
}

/* No change of a single byte, and no shorter file, passes: each chunk has its CRC. */
static void check_every_byte(const char *name) {
    char path[512];
    const uint8_t *data;
    size_t size;
    struct chex_error err = {0};
    struct bytes *b = calloc(1, sizeof *b);
    snprintf(path, sizeof path, "%s/png/%s.png", TEST_DATA, name);
    BAIL_UNLESS(chex_image_read(reader, path, &data, &size, &err) == CHEX_OK, "%s", err.text);
    put(b, data, size);
    int passed = 0, silent = 0;
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            b->data[i] ^= (uint8_t)(1 << bit);
            memset(&err, 0, sizeof err);
            passed += decode(b, &err) != CHEX_E_DATA;
            silent += !strstr(err.text, "x.png: ");
            b->data[i] ^= (uint8_t)(1 << bit);
        }
    OK(passed == 0 && silent == 0, "%s: %zu flipped bits are all refused (%d passed, %d silent)",
       name, 8 * size, passed, silent);
    passed = 0;
    for (b->size = 0; b->size < size; b->size++)
        passed += decode(b, &err) != CHEX_E_DATA;
    OK(passed == 0, "%s: every truncation is refused (%d passed)", name, passed);
    put(b, "trailing", 8);
    OK_STATUS(decode(b, &err), CHEX_OK, err, "");
    free(b);
}

static void check_one(struct bytes *b, enum chex_status want, const char *needle) {
    struct chex_error err;
    OK_STATUS(decode(b, &err), want, err, needle);
    if (want != CHEX_OK)
        OK(image.width == 0 && image.height == 0, "and the sizes are 0");
    free(b);
}

static struct bytes *header_only(uint32_t w, uint32_t h, int depth, int colour) {
    struct bytes *b = calloc(1, sizeof *b);
    BAIL_UNLESS(b, "no memory");
    put_header(b, w, h, depth, colour);
    put_chunk(b, "IEND", "", 0);
    return b;
}

static void check_broken(void) {
    check_one(grey_file(4, 4, 20, 0, true), CHEX_OK, "");
    check_one(grey_file(4, 4, 20, 0, false), CHEX_E_DATA, "the file ends early");
    check_one(grey_file(4, 4, 20, 1, true), CHEX_E_DATA, "incorrect data check");
    check_one(grey_file(4, 4, 19, 0, true), CHEX_E_DATA, "libpng: ");
    check_one(grey_file(4, 4, 21, 0, true), CHEX_E_DATA, "oo much image data");
    check_one(header_only(4, 4, 8, 0), CHEX_E_DATA, "libpng: ");
    check_one(header_only(0, 4, 8, 0), CHEX_E_DATA, "libpng: ");
    check_one(header_only(4, 4, 7, 0), CHEX_E_DATA, "libpng: ");
    check_one(header_only(4, 4, 8, 5), CHEX_E_DATA, "libpng: ");
    check_one(header_only(4, 4, 8, 255), CHEX_E_DATA, "libpng: ");
    check_one(header_only(4, 4, 8, 3), CHEX_E_DATA, "libpng: "); // no palette
    check_one(header_only(65501, 1, 8, 0), CHEX_E_DATA, "the limit is 65500 a side");
    check_one(header_only(1, 65501, 8, 0), CHEX_E_DATA, "the limit is 65500 a side");
    check_one(header_only(0xffffffffu, 0xffffffffu, 8, 0), CHEX_E_DATA, "the limit is");
    check_one(header_only(65500, 65500, 8, 0), CHEX_E_DATA, "268435456 in all");
    check_one(header_only(16384, 16384, 8, 0), CHEX_E_DATA, "bytes cannot hold");
    check_one(header_only(16384, 16384, 16, 6), CHEX_E_DATA, "bytes cannot hold");
    struct bytes *b = calloc(1, sizeof *b);
    check_one(b, CHEX_E_DATA, "begins with nothing");
    b = calloc(1, sizeof *b);
    put(b, "GIF89a\x01\x02", 8);
    check_one(b, CHEX_E_DATA, "begins with 47 49 46 38");
    OK(!strcmp(chex_image_format("\x89PNG\r\n\x1a\n", 8), "png"), "PNG is recognised by its bytes");
    OK(!chex_image_format("\x89PNG\r\n\x1a", 7), "and by all eight");
}

static void check_files(void) {
    struct chex_error err;
    char path[128], link[128];
    OK_STATUS(image_load(reader, dir, &image, &err), CHEX_E_DATA, err, "not a regular file");
    snprintf(path, sizeof path, "%s/none.png", dir);
    OK_STATUS(image_load(reader, path, &image, &err), CHEX_E_DATA, err, "cannot open");
    snprintf(path, sizeof path, "%s/empty.png", dir);
    FILE *f = fopen(path, "w");
    fclose(f);
    OK_STATUS(image_load(reader, path, &image, &err), CHEX_E_DATA, err, "empty file");

    uint8_t pixels[5 * 300];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 37 ^ i >> 3);
    snprintf(path, sizeof path, "%s/out.png", dir);
    OK_STATUS(chex_image_write_png(path, pixels, 300, 5, &err), CHEX_OK, err, "");
    OK_STATUS(image_load(reader, path, &image, &err), CHEX_OK, err, "");
    OK(image.width == 300 && image.height == 5 && !memcmp(image.pixels, pixels, sizeof pixels),
       "what was written is read back");
    OK_STATUS(chex_image_write_png("/nonexistent/x.png", pixels, 300, 5, &err), CHEX_E_ENV, err,
              "cannot create /nonexistent/x.png");
    snprintf(link, sizeof link, "%s/full.png", dir);
    if (symlink("/dev/full", link) == 0 && access("/dev/full", W_OK) == 0) {
        OK_STATUS(chex_image_write_png(link, pixels, 300, 5, &err), CHEX_E_RESOURCE, err,
                  "No space left");
        OK(access(link, F_OK) != 0, "nothing stays of a file that could not be finished");
    }
}

static void check_reuse(void) {
    struct chex_error err = {0};
    struct bytes *big = grey_file(200, 200, 200 * 201, 0, true);
    struct bytes *small = grey_file(4, 4, 20, 0, true);
    OK(decode(big, &err) == CHEX_OK && image.capacity >= 40000, "the buffer grows");
    uint8_t *before = image.pixels;
    OK(decode(small, &err) == CHEX_OK && decode(big, &err) == CHEX_OK && image.pixels == before,
       "and is kept");
    OK_STATUS(chex_image_reserve(&image, 0, 4, &err), CHEX_E_DATA, err, "at least 1 x 1");
    OK_STATUS(chex_image_reserve(&image, 65501, 4, &err), CHEX_E_DATA, err, "65500");
    OK(image.width == 200 && image.pixels == before, "a refused size changes nothing");
    free(big);
    free(small);
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no temporary folder");
    BAIL_UNLESS(chex_image_reader_create(&reader, &err) == CHEX_OK, "%s", err.text);
    check_recorded();
    check_every_byte("grey-8");
    check_every_byte("rgba-16-adam7");
    check_every_byte("palette-8-trns-adam7");
    check_broken();
    check_files();
    check_reuse();
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
    chex_image_reader_destroy(NULL);
    chex_fs_remove_tree(dir, NULL);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG against pixels recorded from Pillow (tests/peers/record_jpeg.py), and files broken in every
 * way we could think of. The bound on the pixels is zero: both sides use libjpeg-turbo, whose slow
 * integer DCT and upsampling give the same bytes on every machine.
 */
#include "image/image.h"

#include "base/fs.h"
#include "images.h"
#include "tap.h"

static struct chex_image_reader *reader;
static struct chex_image image;

struct bytes {
    uint8_t data[1 << 19];
    size_t size;
};

static struct bytes *new_bytes(void) {
    struct bytes *b = calloc(1, sizeof *b);
    BAIL_UNLESS(b, "no memory");
    return b;
}

static void put(struct bytes *b, const void *data, size_t n) {
    memcpy(b->data + b->size, data, n);
    b->size += n;
}

static struct bytes *read_bytes(const char *name) {
    char path[512];
    const uint8_t *data;
    size_t size;
    struct chex_error err = {0};
    struct bytes *b = new_bytes();
    snprintf(path, sizeof path, "%s/jpeg/%s.jpg", TEST_DATA, name);
    BAIL_UNLESS(chex_image_read(reader, path, &data, &size, &err) == CHEX_OK, "%s", err.text);
    put(b, data, size);
    return b;
}

static enum chex_status decode(const struct bytes *b, struct chex_error *err) {
    /* A copy of the exact size, so that the sanitizer sees a read after the end. */
    uint8_t *copy = malloc(b->size ? b->size : 1);
    memcpy(copy, b->data, b->size);
    enum chex_status st = chex_image_decode(reader, copy, b->size, "x.jpg", &image, err);
    free(copy);
    return st;
}

static uint64_t fnv(const uint8_t *data, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 0x100000001b3u;
    return h;
}

static void check_recorded(void) {
    char *text = NULL, *save = NULL;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_read(TEST_DATA "/jpeg/expected.txt", 1 << 20, &text, NULL, &err) == CHEX_OK,
                "%s", err.text);
    int lines = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], path[512];
        int target, w, h;
        unsigned long long digest;
        BAIL_UNLESS(sscanf(line, "%63s %d %d %d %llx", name, &target, &w, &h, &digest) == 5, "%s",
                    line);
        snprintf(path, sizeof path, "%s/jpeg/%s.jpg", TEST_DATA, name);
        memset(&err, 0, sizeof err);
        chex_image_reader_set_target(reader, target);
        enum chex_status st = image_load(reader, path, &image, &err);
        OK(st == CHEX_OK && image.width == w && image.height == h &&
               fnv(image.pixels, (size_t)w * (size_t)h) == digest,
           "%s for %d px: %d x %d, as Pillow has it %s", name, target, w, h, err.text);
        lines++;
    }
    OK(lines == 14 * 9, "%d recorded results", lines);
    chex_image_reader_set_target(reader, 0);
    free(text);
}

static void check_truncated(const char *name) {
    struct chex_error err = {0};
    struct bytes *b = read_bytes(name);
    size_t size = b->size, passed = 0, silent = 0;
    for (b->size = 3; b->size < size; b->size++) {
        memset(&err, 0, sizeof err);
        passed += decode(b, &err) != CHEX_E_DATA || image.width != 0;
        silent += !strstr(err.text, "x.jpg: libjpeg: ");
    }
    OK(!passed && !silent, "%s: every truncation is refused (%zu passed, %zu silent)", name, passed,
       silent);
    put(b, "trailing", 8);
    OK_STATUS(decode(b, &err), CHEX_OK, err, "");
    free(b);
}

/* Nothing guards the pixels of a JPEG: a flipped bit gives other pixels or one error line. */
static void check_flipped(const char *name) {
    struct chex_error err = {0};
    struct bytes *b = read_bytes(name);
    int read = 0, bad = 0;
    for (size_t i = 3; i < b->size; i++)
        for (int bit = 0; bit < 8; bit++) {
            b->data[i] ^= (uint8_t)(1 << bit);
            memset(&err, 0, sizeof err);
            enum chex_status st = decode(b, &err);
            read += st == CHEX_OK;
            bad += st == CHEX_OK ? image.width < 1 : st != CHEX_E_DATA || !err.text[0];
            b->data[i] ^= (uint8_t)(1 << bit);
        }
    OK(bad == 0, "%s: flipped bits: %d read, none in disorder (%d)", name, read, bad);
    free(b);
}

/* ---- a writer that can lie ---- */

static size_t find_marker(const struct bytes *b, uint8_t marker) {
    for (size_t i = 2; i + 1 < b->size; i += 2 + (size_t)(b->data[i + 2] << 8 | b->data[i + 3]))
        if (b->data[i + 1] == marker)
            return i;
    BAIL_UNLESS(false, "no marker %02x", marker);
    return 0;
}

static void put_sizes(struct bytes *b, uint8_t sof, unsigned w, unsigned h) {
    uint8_t *p = b->data + find_marker(b, sof) + 5;
    uint8_t sizes[4] = {(uint8_t)(h >> 8), (uint8_t)h, (uint8_t)(w >> 8), (uint8_t)w};
    memcpy(p, sizes, 4);
}

static void check_one(struct bytes *b, const char *needle) {
    struct chex_error err;
    OK_STATUS(decode(b, &err), CHEX_E_DATA, err, needle);
    OK(image.width == 0 && image.height == 0, "and the sizes are 0");
    free(b);
}

static struct bytes *patched(const char *name, uint8_t marker, size_t offset, uint8_t value) {
    struct bytes *b = read_bytes(name);
    b->data[find_marker(b, marker) + offset] = value;
    return b;
}

static struct bytes *sized(const char *name, uint8_t sof, unsigned w, unsigned h) {
    struct bytes *b = read_bytes(name);
    put_sizes(b, sof, w, h);
    return b;
}

/* Five comments of 64 KiB after the first marker: room for more pixels, as far as bytes go. */
static struct bytes *padded(const char *name, uint8_t sof, unsigned w, unsigned h) {
    struct bytes *from = sized(name, sof, w, h), *b = new_bytes();
    put(b, from->data, 2);
    for (int i = 0; i < 5; i++) {
        put(b, "\xff\xfe\xff\xff", 4);
        b->size += 0xffff - 2;
    }
    put(b, from->data + 2, from->size - 2);
    free(from);
    return b;
}

static void check_refused(void) {
    check_one(read_bytes("cmyk"), "4 components (CMYK or YCCK), expected 1 (grey) or 3 (colour)");
    check_one(patched("grey", 0xc0, 4, 12), "12");                 // bits a sample
    check_one(patched("grey", 0xc0, 1, 0xc3), "libjpeg: ");        // lossless
    check_one(patched("grey", 0xdb, 4, 7), "libjpeg: ");           // no such quantisation table
    check_one(patched("grey", 0xda, 5, 9), "libjpeg: ");           // a component that is not there
    check_one(patched("colour-444", 0xc0, 11, 0x51), "libjpeg: "); // 5 x 1 sampling
    check_one(sized("grey", 0xc0, 37, 0), "libjpeg: ");
    check_one(sized("grey", 0xc0, 0, 29), "libjpeg: ");
    check_one(sized("grey", 0xc0, 37, 60), "libjpeg: "); // fewer pixels than the header says
    check_one(sized("grey", 0xc0, 65501, 1), "65500");
    check_one(sized("grey", 0xc0, 65500, 65500), "268435456 in all");
    check_one(sized("grey", 0xc0, 16384, 16384), "bytes cannot hold");
    struct bytes *b = padded("colour-420-progressive", 0xc2, 16384, 16384);
    b->data[find_marker(b, 0xc2) + 11] = 0x11; // three components of full size
    check_one(b, "16384 x 16384 pixels in 3 components take more than 1073741824 bytes to decode");

    struct bytes *odd = new_bytes();
    b = read_bytes("grey");
    size_t at = find_marker(b, 0xda);
    put(odd, b->data, at);
    put(odd, "xyz", 3); // what libjpeg would skip with a warning
    put(odd, b->data + at, b->size - at);
    check_one(odd, "extraneous bytes before marker");
    free(b);
    b = new_bytes();
    put(b, "\xff\xd8\xff\xd9", 4);
    check_one(b, "libjpeg: ");
    OK(!strcmp(chex_image_format("\xff\xd8\xff", 3), "jpeg"), "JPEG is recognised by its bytes");
    OK(!chex_image_format("\xff\xd8", 2), "and by all three");
}

/* One block of 8 x 8, progressive: a DC scan, then an AC scan for each of `first` coefficients,
 * then a refinement of each of `refined`. All of it zero. */
static struct bytes *many_scans(int first, int refined) {
    static const uint8_t head[] = {0xff, 0xd8, 0xff, 0xc2, 0, 11, 8, 0, 8, 0, 8, 1, 1, 0x11, 0};
    static const uint8_t table[2][22] = {
        {0xff, 0xc4, 0, 20, 0x00, 1}, // DC 0: the one code means 0
        {0xff, 0xc4, 0, 20, 0x10, 1}, // AC 0: for the end of the block
    };
    struct bytes *b = new_bytes();
    uint8_t quant[69] = {0xff, 0xdb, 0, 67, 0};
    memset(quant + 5, 1, 64);
    put(b, head, sizeof head);
    put(b, quant, sizeof quant);
    put(b, table, sizeof table);
    for (int i = -1; i < first + refined; i++) {
        uint8_t k = (uint8_t)(i < first ? i + 1 : i + 1 - first);
        uint8_t bits = i < 0 ? 0 : i < first ? 1 : 0x10;
        uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, k, k, bits, 0x7f};
        put(b, scan, sizeof scan);
    }
    put(b, "\xff\xd9", 2);
    return b;
}

static void check_scans(void) {
    struct chex_error err;
    struct bytes *b = many_scans(63, 36);
    OK_STATUS(decode(b, &err), CHEX_OK, err, "");
    bool grey = true;
    for (int i = 0; i < 64; i++)
        grey = grey && image.pixels[i] == 128;
    OK(image.width == 8 && image.height == 8 && grey, "100 scans of nothing are mid-grey");
    free(b);
    check_one(many_scans(63, 37), "libjpeg: more than 100 scans");
}

/* Tables of one file must not reach the next: each result is a function of its file alone. */
static void check_memory(void) {
    struct chex_error err = {0};
    struct bytes *whole = read_bytes("grey"), *bare = new_bytes();
    size_t table = find_marker(whole, 0xdb), after = table + 2 + 67;
    put(bare, whole->data, table);
    put(bare, whole->data + after, whole->size - after);
    OK(decode(whole, &err) == CHEX_OK, "a whole file");
    uint64_t before = fnv(image.pixels, 37 * 29);
    OK_STATUS(decode(bare, &err), CHEX_E_DATA, err, "Quantization table");
    OK(decode(whole, &err) == CHEX_OK && fnv(image.pixels, 37 * 29) == before,
       "and the same pixels after a fault");
    free(whole);
    free(bare);
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_image_reader_create(&reader, &err) == CHEX_OK, "%s", err.text);
    check_recorded();
    check_truncated("grey");
    check_truncated("grey-restarts");
    check_truncated("grey-progressive");
    check_truncated("colour-420");
    check_truncated("colour-420-progressive");
    check_flipped("grey-restarts");
    check_flipped("colour-420-progressive");
    check_refused();
    check_scans();
    check_memory();
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
    return tap_done();
}

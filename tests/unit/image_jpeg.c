/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG against pixels recorded from Pillow (tests/peers/record_jpeg.py), and files broken in every
 * way we could think of. The bound on the pixels is zero: both sides use libjpeg-turbo, whose slow
 * integer DCT and upsampling give the same bytes on every machine.
 */
#include "image/image.h"

#include "image_bytes.h"
#include "tap.h"

static const char *path_of(const char *name) { return data_path("jpeg/%s.jpg", name); }

static struct bytes *read_bytes(const char *name) { return bytes_read(path_of(name)); }

static uint64_t fnv(const uint8_t *data, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ data[i]) * 0x100000001b3u;
    return h;
}

static void check_recorded(void) {
    char *text = NULL, *save = NULL;
    MUST(chex_fs_read(TEST_DATA "/jpeg/expected.txt", 1 << 20, &text, NULL, &err));
    int lines = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64];
        int target, w, h;
        unsigned long long digest;
        BAIL_UNLESS(sscanf(line, "%63s %d %d %d %llx", name, &target, &w, &h, &digest) == 5, "%s",
                    line);
        memset(&err, 0, sizeof err);
        chex_image_reader_set_target(reader, target);
        enum chex_status st = image_load(reader, path_of(name), &image, &err);
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
    struct bytes *b = read_bytes(name);
    const size_t passed = cuts_that_pass(b, 3, "x: libjpeg: ");
    OK(!passed, "%s: every truncation is refused (%zu passed)", name, passed);
    put(b, "trailing", 8);
    OK_CALL(decode(b));
    free(b);
}

static bool in_order(const struct bytes *b) {
    const enum chex_status st = decode(b);
    return st == CHEX_OK ? image.width >= 1 : st == CHEX_E_DATA && err.text[0];
}

/* Nothing guards the pixels of a JPEG: a flipped bit gives other pixels or one error line. */
static void check_flipped(const char *name) {
    struct bytes *b = read_bytes(name);
    const size_t bad = flips_that_fail(b, 3, in_order);
    OK(bad == 0, "%s: flipped bits are read or refused (%zu in disorder)", name, bad);
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
    struct bytes *from = sized(name, sof, w, h), *b = bytes_new();
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

    struct bytes *odd = bytes_new();
    b = read_bytes("grey");
    size_t at = find_marker(b, 0xda);
    put(odd, b->data, at);
    put(odd, "xyz", 3); // what libjpeg would skip with a warning
    put(odd, b->data + at, b->size - at);
    check_one(odd, "extraneous bytes before marker");
    free(b);
    b = bytes_new();
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
    struct bytes *b = bytes_new();
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
    struct bytes *b = many_scans(63, 36);
    OK_CALL(decode(b));
    bool grey = true;
    for (int i = 0; i < 64; i++)
        grey = grey && image.pixels[i] == 128;
    OK(image.width == 8 && image.height == 8 && grey, "100 scans of nothing are mid-grey");
    free(b);
    check_one(many_scans(63, 37), "libjpeg: more than 100 scans");
}

/* Tables of one file must not reach the next: each result is a function of its file alone. */
static void check_memory(void) {
    struct bytes *whole = read_bytes("grey"), *bare = bytes_new();
    size_t table = find_marker(whole, 0xdb), after = table + 2 + 67;
    put(bare, whole->data, table);
    put(bare, whole->data + after, whole->size - after);
    OK(decode(whole) == CHEX_OK, "a whole file");
    uint64_t before = fnv(image.pixels, 37 * 29);
    OK_STATUS(decode(bare), CHEX_E_DATA, err, "Quantization table");
    OK(decode(whole) == CHEX_OK && fnv(image.pixels, 37 * 29) == before,
       "and the same pixels after a fault");
    free(whole);
    free(bare);
}

int main(void) {
    MUST(chex_image_reader_create(&reader, &err));
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Every inflate library of the build: the same verdict on whole, cut, lengthened and damaged
 * streams, and nothing touched outside of the buffers.
 */
#include "image/inflate.h"

#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "tap.h"

static struct chex_error err;

enum { PLAIN_BYTES = 40000, ROOM = 1 << 17 };

static uint8_t plain[PLAIN_BYTES], packed[ROOM];
static uint8_t *in_end, *out_end; /* after them is a page that may not be touched */

static uint8_t *fenced(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p =
        mmap(NULL, ROOM + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    BAIL_UNLESS(p != MAP_FAILED && mprotect(p + ROOM, page, PROT_NONE) == 0, "no memory");
    return p + ROOM;
}

/* n bytes at `level`, the strategy and window as zlib numbers them. */
static size_t deflate_with(size_t n, int level, int strategy, int window_bits) {
    z_stream z = {.next_in = plain, .avail_in = (uInt)n, .next_out = packed, .avail_out = ROOM};
    BAIL_UNLESS(deflateInit2(&z, level, Z_DEFLATED, window_bits, 8, strategy) == Z_OK, "zlib");
    BAIL_UNLESS(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib");
    size_t size = z.total_out;
    deflateEnd(&z);
    return size;
}

static bool run(struct chex_inflate *i, size_t size, size_t out_size) {
    memcpy(in_end - size, packed, size);
    return chex_inflate_run(i, in_end - size, size, out_end - out_size, out_size);
}

static void check_whole(const char *name, struct chex_inflate *i) {
    static const size_t sizes[] = {1, 2, 100, 257, 258, 259, 1000, 32768, 32769, PLAIN_BYTES};
    int tried = 0, wrong = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int level = 0; level <= 9; level++)
            for (int strategy = Z_DEFAULT_STRATEGY; strategy <= Z_FIXED; strategy++, tried++) {
                const size_t n = sizes[s], size = deflate_with(n, level, strategy, 15);
                wrong += !run(i, size, n) || memcmp(out_end - n, plain, n) != 0;
            }
    OK(wrong == 0, "%s: %d whole streams", name, tried);
}

static void check_sizes(const char *name, struct chex_inflate *i) {
    const size_t n = 700, size = deflate_with(n, 6, Z_DEFAULT_STRATEGY, 15);
    int passed = 0;
    for (size_t cut = 0; cut < size; cut++)
        passed += run(i, cut, n);
    OK(passed == 0, "%s: every cut of a stream is refused (%d passed)", name, passed);
    for (size_t wrong = n - 20; wrong < n + 20; wrong++)
        passed += wrong != n && run(i, size, wrong);
    OK(passed == 0, "%s: every other size is refused (%d passed)", name, passed);
    packed[size] = 0;
    OK(!run(i, size + 1, n), "%s: a byte after the stream is refused", name);
    OK(run(i, size, n), "%s: and the stream itself is not", name);
}

static void check_damage(const char *name, struct chex_inflate *i) {
    int passed = 0;
    for (int level = 0; level <= 6; level += 3) {
        const size_t n = 700, size = deflate_with(n, level, Z_DEFAULT_STRATEGY, 15);
        for (size_t at = 0; at < size; at++)
            for (int bit = 0; bit < 8; bit++) {
                packed[at] ^= (uint8_t)(1 << bit);
                passed += run(i, size, n) && memcmp(out_end - n, plain, n) != 0;
                packed[at] ^= (uint8_t)(1 << bit);
            }
    }
    OK(passed == 0, "%s: no flipped bit changes what comes out (%d did)", name, passed);
}

static void check_header(const char *name, struct chex_inflate *i) {
    size_t size = deflate_with(600, 6, Z_DEFAULT_STRATEGY, 9);
    OK(!run(i, size, 600), "%s: a window smaller than the data is refused", name);
    size = deflate_with(500, 6, Z_DEFAULT_STRATEGY, 9);
    OK(run(i, size, 500), "%s: and one that holds all is not", name);
    size = deflate_with(500, 6, Z_DEFAULT_STRATEGY, 15);
    packed[0] = 0x88, packed[1] = 0x1c; // a window of 64 KiB
    OK(!run(i, size, 500), "%s: a window beyond 32 KiB is refused", name);
    packed[0] = 0x78, packed[1] = 0xbb; // a preset dictionary
    OK(!run(i, size, 500), "%s: a preset dictionary is refused", name);
    packed[0] = 0x78, packed[1] = 0x9d;
    OK(!run(i, size, 500), "%s: a wrong header sum is refused", name);
}

/* Bits of a deflate stream, the lowest first. */
struct bits {
    size_t count;
};

static void put(struct bits *b, unsigned value, int n) {
    for (int k = 0; k < n; k++, b->count++) {
        uint8_t *byte = &packed[2 + b->count / 8];
        const uint8_t mask = (uint8_t)(1 << b->count % 8);
        *byte = value >> k & 1 ? *byte | mask : *byte & (uint8_t)~mask;
    }
}

/* A block whose codes could be read, but that no compressor may write: `literals` and `distances`
 * as the header gives them, all code lengths alike. Its one literal is 0. */
static size_t odd_block(unsigned literals, unsigned distances, int literal_bits, bool has_end) {
    struct bits b = {0};
    packed[0] = 0x78, packed[1] = 0x9c;
    put(&b, 1, 1);
    put(&b, 2, 2);
    put(&b, literals - 257, 5);
    put(&b, distances - 1, 5);
    put(&b, 18 - 4, 4); // code lengths as far as that of 1
    static const uint8_t order[18] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1};
    for (int k = 0; k < 18; k++)
        put(&b, order[k] == 18 ? 2 : order[k] <= 2 ? 2 : 0, 3); // 0, 1, 2, 18 in two bits each
    /* Canonical: 0 = 00, 1 = 01, 2 = 10, 18 = 11, sent with the highest bit first. */
    const unsigned zero = 0, length = literal_bits == 1 ? 2 : 1, run_of_zeros = 3;
    put(&b, length, 2);                        // literal 0
    put(&b, run_of_zeros, 2), put(&b, 127, 7); // 138
    put(&b, run_of_zeros, 2), put(&b, 117 - 11, 7);
    put(&b, has_end ? length : zero, 2); // 256
    for (unsigned k = 257; k < literals; k++)
        put(&b, zero, 2);
    for (unsigned k = 0; k < distances; k++)
        put(&b, k ? zero : 2, 2);
    put(&b, 0, literal_bits);                         // the literal
    put(&b, literal_bits == 1 ? 1 : 2, literal_bits); // the end
    const size_t bytes = 2 + (b.count + 7) / 8;
    static const uint8_t adler[4] = {0, 1, 0, 1};
    memcpy(packed + bytes, adler, 4);
    return bytes + 4;
}

/* The libraries differ in which of these they refuse; none may read them wrongly. */
static void check_odd_codes(const char *name, struct chex_inflate *i) {
    static const struct {
        unsigned literals, distances;
        int literal_bits;
        bool has_end;
        const char *what;
    } odd[] = {
        {288, 1, 1, true, "288 literal codes"},
        {257, 31, 1, true, "31 distance codes"},
        {257, 1, 2, true, "an incomplete literal code"},
        {257, 1, 1, false, "a code without an end"},
    };
    OK(run(i, odd_block(257, 1, 1, true), 1) && out_end[-1] == 0, "%s: a block of one literal",
       name);
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
        size_t size =
            odd_block(odd[k].literals, odd[k].distances, odd[k].literal_bits, odd[k].has_end);
        out_end[-1] = 1;
        bool taken = run(i, size, 1);
        OK(!taken || out_end[-1] == 0, "%s: %s: %s", name, odd[k].what,
           taken ? "taken, and read rightly" : "refused");
    }
}

static void check_crc(void) {
    int wrong = 0;
    for (size_t n = 0; n < 3000; n += 1 + n / 40)
        wrong += chex_crc32(plain, n) != (uint32_t)crc32(0, plain, (uInt)n);
    OK(wrong == 0 && chex_crc32((const uint8_t *)"123456789", 9) == 0xcbf43926u, "the CRC-32");
}

int main(void) {
    struct chex_inflate *inflate = NULL;
    in_end = fenced();
    out_end = fenced();
    for (size_t k = 0; k < PLAIN_BYTES; k++)
        plain[k] = (uint8_t)((k * 7 ^ k >> 4) % 23 + (k % 31 == 0 ? k : 0));
    int libraries = 0;
    for (const char *name; (name = chex_inflate_name(libraries)); libraries++) {
        MUST(chex_inflate_create(name, &inflate, &err));
        check_whole(name, inflate);
        check_sizes(name, inflate);
        check_damage(name, inflate);
        check_header(name, inflate);
        check_odd_codes(name, inflate);
        check_whole(name, inflate); // after so many faults
        chex_inflate_destroy(inflate);
    }
    OK(libraries >= 1, "%d libraries", libraries);
    check_crc();
    OK_STATUS(chex_inflate_create("none such", &inflate, &err), CHEX_E_USAGE, err, "none such");
    chex_inflate_destroy(NULL);
    return tap_done();
}

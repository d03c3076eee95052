/* SPDX-License-Identifier: Apache-2.0
 *
 * Archives and gzip streams: names and places of members, faults with the last whole member, and
 * ISA-L against zlib on streams of many shapes.
 */
#include <fcntl.h>
#include <zlib.h>

#include "base/gunzip.h"
#include "dir.h"
#include "ingest/archive.h"
#include "tap.h"

static struct chex_error err;

/* Bytes that deflate neither leaves as they are nor shrinks to nothing. */
static uint8_t *noise(size_t n) {
    uint8_t *p = malloc(n + 1);
    uint32_t x = 12345;
    BAIL_UNLESS(p, "out of memory");
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (uint8_t)(i % 5 == 0 ? x >> 24 : x >> 29);
    }
    return p;
}

/* One gzip member at out; returns its bytes. */
static size_t deflate_member(const uint8_t *data, size_t n, int level, uint8_t *out, size_t room) {
    z_stream z = {0};
    BAIL_UNLESS(deflateInit2(&z, level, Z_DEFLATED, 16 + MAX_WBITS, 8, 0) == Z_OK, "deflate");
    z.next_in = (uint8_t *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    BAIL_UNLESS(deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
    size_t made = room - z.avail_out;
    deflateEnd(&z);
    return made;
}

/* out: NULL if only the number of bytes is wanted. */
static enum chex_status inflate_file(const char *path, bool portable, uint8_t *out, size_t room,
                                     size_t *made_out) {
    struct chex_gunzip *gz = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const uint8_t *block;
    size_t bytes = 1, made = 0;
    enum chex_status st = chex_gunzip_open(fd, portable, &gz, &err);
    while (st == CHEX_OK && bytes) {
        st = chex_gunzip_read(gz, &block, &bytes, &err);
        BAIL_UNLESS(st != CHEX_OK || bytes <= room - made, "more than there was");
        if (out && st == CHEX_OK)
            memcpy(out + made, block, bytes);
        made += st == CHEX_OK ? bytes : 0;
    }
    *made_out = made;
    chex_gunzip_close(gz);
    close(fd);
    return st;
}

/* By ISA-L and by zlib; needle: what the error says, or NULL. */
static void inflates(const uint8_t *packed, size_t n, uint8_t *out, size_t room,
                     const char *needle) {
    const char *path = dir_put("stream.gz", packed, n);
    size_t made;
    for (int portable = 0; portable < 2; portable++)
        OK_STATUS(inflate_file(path, portable, out, room, &made), needle ? CHEX_E_DATA : CHEX_OK,
                  err, needle);
}

static void check_gzip(void) {
    enum { MOST = 1 << 20, ROOM = MOST + 4096 };
    static const size_t sizes[] = {0, 1, 511, 65535, 262143, 262144, 262145, MOST};
    uint8_t *data = noise(MOST), *packed = malloc(2 * ROOM), *out = malloc(ROOM);
    const char *path = dir_path("stream.gz");
    size_t wrong = 0, cases = 0, made, cut_wrong = 0;
    BAIL_UNLESS(packed && out, "out of memory");
    for (int level = 0; level <= 9; level += 3)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t members = 1; members <= 3; members += 2) {
                size_t n = 0, at = 0;
                for (size_t m = 0; m < members; m++) {
                    size_t part = sizes[i] / members + (m < sizes[i] % members);
                    n += deflate_member(data + at, part, level, packed + n, 2 * ROOM - n);
                    at += part;
                }
                dir_put("stream.gz", packed, n);
                for (int portable = 0; portable < 2; portable++, cases++)
                    wrong += inflate_file(path, portable, out, ROOM, &made) != CHEX_OK ||
                             made != sizes[i] || memcmp(out, data, made) != 0;
                dir_put("stream.gz", packed, n - 1);
                for (int portable = 0; portable < 2; portable++)
                    cut_wrong += inflate_file(path, portable, out, ROOM, &made) != CHEX_E_DATA ||
                                 !strstr(err.text, "ends in the middle") || made != sizes[i];
            }
    OK(wrong == 0, "%zu gzip streams of 1 and 3 members, levels 0 to 9, by ISA-L and zlib", cases);
    OK(cut_wrong == 0, "a byte less is reported, after all data");
    size_t n = deflate_member(data, 100000, 6, packed, ROOM);
    packed[n - 8] ^= 1;
    inflates(packed, n, out, ROOM, "incorrect data check");
    packed[n - 8] ^= 1;
    packed[3] = 0x40;
    inflates(packed, n, out, ROOM, "unknown header flags set");
    packed[3] = 0;
    memset(packed + n, 0, 600);
    inflates(packed, n + 600, out, ROOM, NULL);
    packed[n + 599] = 7;
    inflates(packed, n + 600, out, ROOM, "neither a gzip header nor padding after the data");
    free(data);
    free(packed);
    free(out);
}

/* One gzip member of zeros, `times` times PART of them: what deflate makes of a part ends at a byte
 * and refers to nothing before it, so it can stand there again and again. */
static void put_zeros(const char *path, size_t times, uint32_t length_error) {
    enum { PART = 64 << 20, ROOM = 1 << 20 };
    static const uint8_t head[10] = {0x1f, 0x8b, 8, [9] = 255}, last_block[2] = {3, 0};
    uint8_t *data = calloc(PART, 1), *part = malloc(ROOM);
    z_stream z = {0};
    BAIL_UNLESS(data && part && deflateInit2(&z, 1, Z_DEFLATED, -MAX_WBITS, 8, 0) == Z_OK, "zlib");
    z.next_in = data;
    z.avail_in = PART;
    z.next_out = part;
    z.avail_out = ROOM;
    BAIL_UNLESS(deflate(&z, Z_FULL_FLUSH) == Z_OK && z.avail_out, "deflate");
    deflateEnd(&z);
    uLong one = crc32(0, data, PART), crc = 0;
    uint32_t length = (uint32_t)((uint64_t)times * PART) + length_error;
    FILE *f = fopen(path, "wb");
    BAIL_UNLESS(f, "cannot write %s", path);
    fwrite(head, 1, sizeof head, f);
    for (size_t i = 0; i < times; i++) {
        fwrite(part, 1, ROOM - z.avail_out, f);
        crc = crc32_combine(crc, one, PART);
    }
    fwrite(last_block, 1, sizeof last_block, f);
    for (int i = 0; i < 32; i += 8)
        fputc((int)(crc >> i & 255), f);
    for (int i = 0; i < 32; i += 8)
        fputc((int)(length >> i & 255), f);
    BAIL_UNLESS(fclose(f) == 0, "cannot write %s", path);
    free(data);
    free(part);
}

/* ISA-L counts in 32 bits, as the length at the end of a gzip member does. */
static void check_long(void) {
    const char *path = dir_path("long.gz");
    size_t made;
    put_zeros(path, 65, 0);
    OK_CALL(inflate_file(path, false, NULL, SIZE_MAX, &made));
    OK(made == (size_t)65 << 26, "a gzip member of more than 4 GiB: %zu bytes", made);
    put_zeros(path, 1, 1);
    OK_STATUS(inflate_file(path, false, NULL, SIZE_MAX, &made), CHEX_E_DATA, err, "incorrect");
}

/* ---- tar ---- */

/* A ustar header and its bytes after *at; type '0' is a file, '2' a link. */
static void add(uint8_t *tar, size_t *at, const char *name, char type, const uint8_t *data,
                size_t bytes) {
    uint8_t *h = tar + *at;
    unsigned sum = 0;
    memset(h, 0, 512);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "0000644");
    snprintf((char *)h + 108, 8, "0000000");
    snprintf((char *)h + 116, 8, "0000000");
    snprintf((char *)h + 124, 12, "%011o", (unsigned)bytes);
    snprintf((char *)h + 136, 12, "00000000000");
    memset(h + 148, ' ', 8);
    h[156] = (uint8_t)type;
    memcpy(h + 157, type == '2' ? "target" : "", type == '2' ? 6 : 0);
    memcpy(h + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    if (bytes)
        memcpy(h + 512, data, bytes);
    size_t whole = (bytes + 511) / 512 * 512;
    memset(h + 512 + bytes, 0, whole - bytes);
    *at += 512 + whole;
}

static size_t unread; /* members of the last walk() that cannot be read */

/* Reads all members; returns how many had the bytes that belong to their name. */
static enum chex_status walk(const char *path, const uint8_t *data, size_t *good_out) {
    struct chex_archive *archive = NULL;
    struct chex_archive_member m;
    uint8_t *bytes = malloc(1 << 20);
    bool more = true;
    *good_out = unread = 0;
    enum chex_status st = chex_archive_open(path, &archive, &err);
    while (st == CHEX_OK) {
        st = chex_archive_next(archive, &m, &more, &err);
        if (st != CHEX_OK || !more)
            break;
        if (m.unread) {
            unread++;
            continue;
        }
        st = chex_archive_read(archive, bytes, &err);
        *good_out += st == CHEX_OK && memcmp(bytes, data, (size_t)m.bytes) == 0 &&
                     strncmp(m.name, "images/", 7) == 0;
    }
    chex_archive_close(archive);
    free(bytes);
    return st;
}

static void check_tar(void) {
    enum { ROOM = 1 << 20 };
    static const size_t sizes[] = {1, 511, 512, 513, 4096, 5000, 100000};
    uint8_t *data = noise(ROOM), *tar = calloc(1, ROOM), *packed = malloc(2 * ROOM);
    char name[64];
    const char *plain = dir_path("a.tar"), *gz = dir_path("a.tar.gz");
    size_t at = 0, count = sizeof sizes / sizeof sizes[0], good, last = 0;
    BAIL_UNLESS(tar && packed, "out of memory");
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%simages/%zu.png", i % 2 ? "./" : "", i);
        last = at;
        add(tar, &at, name, '0', data, sizes[i]);
        add(tar, &at, "images/link.png", '2', NULL, 0);
        add(tar, &at, "images/.hidden/x.png", '0', data, 700);
        add(tar, &at, "images/../x.png", '0', data, 10);
    }
    size_t whole = at + 1024;
    dir_put("a.tar", tar, whole);
    size_t n = deflate_member(tar, whole, 6, packed, 2 * ROOM);
    dir_put("a.tar.gz", packed, n);
    OK_CALL(walk(plain, data, &good));
    OK(good == count && unread == 2 * count,
       "%zu members of a plain archive, %zu links and paths with '..', no hidden names", good,
       unread);
    OK_CALL(walk(gz, data, &good));
    OK(good == count, "%zu of a compressed one", good);
    dir_put("a.tar", tar, last + 700);
    OK_STATUS(walk(plain, data, &good), CHEX_E_DATA, err,
              "it is truncated, after the last whole member images/5.png");
    OK(good == count - 1, "a cut archive gives the %zu members before", good);
    dir_put("a.tar", tar, at);
    OK_STATUS(walk(plain, data, &good), CHEX_E_DATA, err, "ends without its end mark");
    OK(good == count, "after all members");
    tar[last + 1] ^= 1;
    dir_put("a.tar", tar, whole);
    OK_STATUS(walk(plain, data, &good), CHEX_E_DATA, err,
              ", after the last whole member images/5.png");
    dir_put("a.tar.gz", packed, n / 2);
    OK_STATUS(walk(gz, data, &good), CHEX_E_DATA, err, "gzip: the file ends in the middle");
    dir_put("a.tar", data, 3000);
    OK_STATUS(walk(plain, data, &good), CHEX_E_DATA, err, "before the first member");
    dir_put("a.tar", "", 0);
    OK_STATUS(walk(plain, data, &good), CHEX_E_DATA, err, "before the first member");
    free(tar);
    free(data);
    free(packed);
}

int main(void) {
    struct chex_archive *archive = NULL;
    dir_make();
    OK(chex_archive_named("a.tar") && chex_archive_named("x/A.TAR.GZ") &&
           chex_archive_named("a.tgz") && !chex_archive_named(".tar") &&
           !chex_archive_named("a.gz") && !chex_archive_named("a.tar.png"),
       "archives by name");
    check_gzip();
    check_long();
    enum chex_status st = chex_archive_open("/nonexistent.tar", &archive, &err);
    OK(st == CHEX_E_DATA || strstr(err.text, "libarchive"), "%s", err.text);
    if (!strstr(err.text, "libarchive"))
        check_tar();
    OK(chex_fs_remove_tree(dir, &err) == CHEX_OK, "cleaned up");
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The seal: a record of 56 bytes after the end of the HDF5 data, with a digest of the whole file.
 *
 * Problem: HDF5 1.10 has no checksums over its metadata (object headers, B-trees, heaps). A changed
 * bit there can change a result, or make the library read outside its buffers.
 *
 * Idea: chexnet checks the seal before HDF5 reads the file. HDF5 ignores bytes after its end of
 * file, so every HDF5 program can open sealed files. If such a program changes a file, HDF5
 * truncates it at its end of file and the seal is lost. A file without a seal is refused.
 *
 * Record, little-endian: "CHEXSEAL", u32 version 1, u32 0, u64 skip_from, u64 skip_to, u64 bytes of
 * the file before the record, u64 digest, u64 XXH3-64 of the 48 bytes before.
 *
 * The digest covers [0, skip_from) and [skip_to, bytes); the bytes between (pixels) have their own
 * checksums. It is XXH3-64 over blocks of 1 MiB of the two parts, each seeded with the digest so
 * far, the first with 0.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/h5_private.h"
#include "base/hash.h"

enum { BLOCK_BYTES = 1 << 20, SEALED_BYTES = CHEX_H5_SEAL_BYTES - 8, VERSION = 1 };

struct seal {
    char magic[8];
    uint32_t version, zero;
    uint64_t skip_from, skip_to, bytes, digest, own;
};
_Static_assert(sizeof(struct seal) == CHEX_H5_SEAL_BYTES, "the record has no gaps");

static const char magic[8] = {'C', 'H', 'E', 'X', 'S', 'E', 'A', 'L'};

static void fill_seal(struct seal *s, uint64_t skip_from, uint64_t skip_to, uint64_t bytes,
                      uint64_t digest) {
    *s = (struct seal){.version = VERSION,
                       .skip_from = skip_from,
                       .skip_to = skip_to,
                       .bytes = bytes,
                       .digest = digest};
    memcpy(s->magic, magic, sizeof magic);
    s->own = chex_hash64(s, SEALED_BYTES);
}

void chex_h5_seal_memory(const void *file, size_t bytes, unsigned char out[CHEX_H5_SEAL_BYTES]) {
    const unsigned char *at = file;
    struct seal s;
    uint64_t digest = 0;
    for (size_t done = 0; done < bytes; done += BLOCK_BYTES)
        digest = chex_hash64_mix(digest, at + done,
                                 bytes - done < BLOCK_BYTES ? bytes - done : BLOCK_BYTES);
    fill_seal(&s, bytes, bytes, bytes, digest);
    memcpy(out, &s, sizeof s);
}

static enum chex_status digest_part(int fd, const char *path, uint64_t from, uint64_t to,
                                    void *block, uint64_t *digest, struct chex_error *err) {
    for (uint64_t at = from; at < to; at += BLOCK_BYTES) {
        const size_t n = to - at < BLOCK_BYTES ? (size_t)(to - at) : BLOCK_BYTES;
        CHEX_TRY(chex_fs_read_all(fd, path, block, n, at, err));
        *digest = chex_hash64_mix(*digest, block, n);
    }
    return CHEX_OK;
}

static enum chex_status digest_file(int fd, const char *path, uint64_t skip_from, uint64_t skip_to,
                                    uint64_t bytes, uint64_t *digest_out, struct chex_error *err) {
    uint64_t digest = 0;
    void *block = malloc(BLOCK_BYTES);
    if (!block)
        return chex_error_memory(err, "%s", path);
    enum chex_status st = digest_part(fd, path, 0, skip_from, block, &digest, err);
    if (st == CHEX_OK)
        st = digest_part(fd, path, skip_to, bytes, block, &digest, err);
    free(block);
    *digest_out = digest;
    return st;
}

enum chex_status chex_h5_seal_file(int fd, const char *path, uint64_t skip_from, uint64_t skip_to,
                                   struct chex_error *err) {
    struct stat info;
    struct seal s;
    uint64_t digest = 0;
    if (fstat(fd, &info) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot stat %s", path);
    const uint64_t bytes = (uint64_t)info.st_size;
    CHEX_TRY(digest_file(fd, path, skip_from, skip_to, bytes, &digest, err));
    fill_seal(&s, skip_from, skip_to, bytes, digest);
    if (chex_fs_pwrite(fd, &s, sizeof s, bytes) != sizeof s)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return CHEX_OK;
}

/* The end of the HDF5 data according to a superblock at byte 0; 0 if unknown. */
static uint64_t end_of_data(int fd) {
    unsigned char head[48];
    uint64_t base = 1, end = 0;
    if (chex_fs_pread(fd, head, sizeof head, 0) != sizeof head ||
        memcmp(head, "\211HDF\r\n\032\n", 8) != 0)
        return 0;
    if (head[8] == 0 && head[13] == 8) {
        memcpy(&base, head + 24, 8);
        memcpy(&end, head + 40, 8);
    } else if ((head[8] == 2 || head[8] == 3) && head[9] == 8) {
        memcpy(&base, head + 12, 8);
        memcpy(&end, head + 28, 8);
    }
    return base == 0 ? end : 0;
}

/* The error of a file without a seal, from the end of its HDF5 data. */
static enum chex_status no_seal(int fd, const char *path, uint64_t file_bytes,
                                struct chex_error *err) {
    const uint64_t end = end_of_data(fd);
    if (end > file_bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: truncated: its HDF5 data end at byte %llu, the file has %llu",
                              path, (unsigned long long)end, (unsigned long long)file_bytes);
    if (end && end < file_bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: truncated or damaged: %llu bytes after its HDF5 data are no "
                              "checksum record",
                              path, (unsigned long long)(file_bytes - end));
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: no checksum record at its end: another program wrote or changed it "
                          "(make it again; or, if it is right, append the record as "
                          "doc/shard-format.md describes)",
                          path);
}

enum chex_status chex_h5_check_seal(int fd, const char *path, uint64_t file_bytes,
                                    struct chex_error *err) {
    struct seal s = {.version = 0};
    uint64_t digest = 0;
    const uint64_t bytes = file_bytes < sizeof s ? 0 : file_bytes - sizeof s;
    if (bytes && chex_fs_pread(fd, &s, sizeof s, bytes) != sizeof s && errno)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", path);
    if (memcmp(s.magic, magic, sizeof magic) != 0)
        return no_seal(fd, path, file_bytes, err);
    if (s.own != chex_hash64(&s, SEALED_BYTES) || s.version != VERSION || s.bytes != bytes ||
        s.skip_from > s.skip_to || s.skip_to > bytes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: damaged: the checksum record at its end is invalid", path);
    CHEX_TRY(digest_file(fd, path, s.skip_from, s.skip_to, bytes, &digest, err));
    if (digest != s.digest)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: damaged: its content has the checksum %016llx, expected %016llx",
                              path, (unsigned long long)digest, (unsigned long long)s.digest);
    return CHEX_OK;
}

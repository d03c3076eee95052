/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the members of a .tar, .tar.gz or .tgz file in order.
 *
 * - libarchive parses the tar format. gzip is decompressed by base/gunzip.h, because it takes most
 *   of the time.
 * - The first bytes of the file decide if it is compressed, not its name.
 * - A member that cannot be read as a file has a reason: links, devices, files with holes, names
 *   with ".." or of more than CHEX_ARCHIVE_NAME_BYTES.
 * - Folders are skipped, and, as in chex_folder_open(), names that begin with a dot.
 * - Members are never extracted to files.
 */
#ifndef CHEX_INGEST_ARCHIVE_H
#define CHEX_INGEST_ARCHIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_ARCHIVE_NAME_BYTES = 1024 };

struct chex_archive;

struct chex_archive_member {
    const char *name; /* without a leading "./" or "/"; valid until the next call */
    uint64_t bytes;
    uint64_t offset;    /* of the bytes in the file; only if the archive is not compressed */
    const char *unread; /* why the bytes cannot be read, or NULL; valid until the next call */
};

/* True if the name ends in .tar, .tar.gz or .tgz (case-insensitive). Does not open the file. */
bool chex_archive_named(const char *path);

/* CHEX_E_ENV: chexnet was built without libarchive. CHEX_E_DATA: the file cannot be opened or is
 * not an archive. */
enum chex_status chex_archive_open(const char *path, struct chex_archive **archive_out,
                                   struct chex_error *err);
void chex_archive_close(struct chex_archive *archive); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_archive, chex_archive_close)

bool chex_archive_compressed(const struct chex_archive *archive);

/* Goes to the next member.
 * - *more_out is false at the end of an intact archive: the end mark is there and, if compressed,
 *   the gzip checksum is right.
 * - CHEX_E_DATA: the archive is damaged. The text names the archive, the fault and the last whole
 *   member. */
enum chex_status chex_archive_next(struct chex_archive *archive,
                                   struct chex_archive_member *member_out, bool *more_out,
                                   struct chex_error *err);

/* Reads all bytes of the current member. Call at most once per member, and not if it is unread. */
enum chex_status chex_archive_read(struct chex_archive *archive, uint8_t *data,
                                   struct chex_error *err);

#endif

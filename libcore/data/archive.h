/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of a .tar, .tar.gz or .tgz in their order, by libarchive; gzip is ours, as it is the
 * slow part (archive_gz.h). Whether an archive is compressed is told by its first bytes.
 *
 * Only what may be an image is seen: regular files without holes and with a name of up to
 * CHEX_ARCHIVE_NAME_BYTES, no part of which begins with a dot, as in chex_folder_open. Links,
 * devices and folders are passed over. Nothing is ever written under a member's name.
 */
#ifndef CHEX_DATA_ARCHIVE_H
#define CHEX_DATA_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_ARCHIVE_NAME_BYTES = 1024 };

struct chex_archive;

struct chex_archive_member {
    const char *name; /* without a leading "./" or "/"; lasts until the next call */
    uint64_t bytes;
    uint64_t offset; /* of the bytes in the file; only where the archive is not compressed */
};

/* By its name alone: .tar, .tar.gz or .tgz, in any case. */
bool chex_archive_named(const char *path);

/* CHEX_E_ENV: this chexnet was built without libarchive, or the file cannot be opened. CHEX_E_DATA:
 * it is no archive. */
enum chex_status chex_archive_open(const char *path, struct chex_archive **archive_out,
                                   struct chex_error *err);
void chex_archive_close(struct chex_archive *archive); /* NULL allowed */

bool chex_archive_compressed(const struct chex_archive *archive);

/* Goes to the next member; *more_out is false at a sound end, where the end mark and the checksum
 * of a compressed archive were right. CHEX_E_DATA is a fault of the archive: the text names it, the
 * last member that was whole and what is wrong. */
enum chex_status chex_archive_next(struct chex_archive *archive,
                                   struct chex_archive_member *member_out, bool *more_out,
                                   struct chex_error *err);

/* All bytes of the member that chex_archive_next gave, once. */
enum chex_status chex_archive_read(struct chex_archive *archive, uint8_t *data,
                                   struct chex_error *err);

#endif

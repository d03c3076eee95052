/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the members of a zip archive in memory that are stored without compression, as torch.save
 * writes them. Zip64 is read. The central directory counts, not the headers before the members.
 *
 * libarchive would be an optional dependency, and reads more than is wanted here: a compressed
 * member is refused, so no member is larger than its archive.
 */
#ifndef CHEX_MODEL_ZIP_H
#define CHEX_MODEL_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_zip_member {
    const char *name; /* in the archive, not NUL-terminated */
    size_t name_bytes;
    uint64_t header_at, stored_bytes, bytes;
    uint32_t crc32;
    unsigned method;
    const char *checked; /* data whose checksum was right, or NULL */
};

struct chex_zip {
    const char *subject, *data;
    size_t bytes;
    struct chex_zip_member *members; /* sorted by name, without case, as PyTorch finds them */
    size_t count;
};

/* Reads the central directory. `data` and `subject` (for errors) must live as long as the archive.
 * CHEX_E_DATA: not a whole zip archive, or of several parts, or two members have one name (other
 * programs may read the other member). The caller calls _close. */
enum chex_status chex_zip_open(const char *data, size_t bytes, const char *subject,
                               struct chex_zip *zip_out, struct chex_error *err);
void chex_zip_close(struct chex_zip *zip);

/* The member of this name, or NULL. */
struct chex_zip_member *chex_zip_find(const struct chex_zip *zip, const char *name,
                                      size_t name_bytes);

/* The bytes of a member, in the archive. Its checksum is verified once. CHEX_E_DATA: compressed,
 * encrypted, outside of the archive, or damaged. */
enum chex_status chex_zip_data(const struct chex_zip *zip, struct chex_zip_member *member,
                               const char **data_out, struct chex_error *err);

#endif

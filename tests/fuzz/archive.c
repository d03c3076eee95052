/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as an archive: members of a plain one lie within it, all can be read, and there is an
 * end or one error text. Any bytes as a gzip stream: ISA-L and zlib give the same bytes and the
 * same verdict.
 */
#include <fcntl.h>
#include <string.h>

#include "base/gunzip.h"
#include "fuzz.h"
#include "ingest/archive.h"

enum { MOST_BYTES = 4 << 20 }; /* of output: a bomb is long, not wrong */

static void check_members(const char *path, size_t size) {
    static uint8_t data[MOST_BYTES];
    struct chex_archive *archive = NULL;
    struct chex_error err = {0};
    enum chex_status st = chex_archive_open(path, &archive, &err);
    if (st == CHEX_E_ENV)
        return; /* built without libarchive */
    size_t read = 0;
    for (bool more = true; st == CHEX_OK && more && read < MOST_BYTES;) {
        struct chex_archive_member m;
        st = chex_archive_next(archive, &m, &more, &err);
        if (st != CHEX_OK || !more)
            break;
        FUZZ_CHECK(m.name[0] && strlen(m.name) <= CHEX_ARCHIVE_NAME_BYTES);
        if (!chex_archive_compressed(archive))
            FUZZ_CHECK(m.offset <= size && m.bytes <= size - m.offset);
        if (m.bytes <= MOST_BYTES && !m.unread)
            st = chex_archive_read(archive, data, &err);
        read += 512 + (size_t)(m.bytes <= MOST_BYTES ? m.bytes : 0);
    }
    FUZZ_CHECK(st == CHEX_OK || (st == CHEX_E_DATA && err.text[0]));
    chex_archive_close(archive);
}

/* How many bytes come before the end or a fault; past MOST_BYTES it stops looking. */
static enum chex_status inflate_all(int fd, bool portable, size_t *made_out) {
    struct chex_gunzip *gz = NULL;
    struct chex_error err = {0};
    size_t bytes = 1;
    *made_out = 0;
    FUZZ_CHECK(chex_gunzip_open(fd, portable, &gz, &err) == CHEX_OK);
    enum chex_status st = CHEX_OK;
    while (st == CHEX_OK && bytes && *made_out < MOST_BYTES) {
        const uint8_t *block;
        st = chex_gunzip_read(gz, &block, &bytes, &err);
        if (st == CHEX_OK)
            *made_out += bytes;
    }
    FUZZ_CHECK(st == CHEX_OK || (st == CHEX_E_DATA && err.text[0]));
    chex_gunzip_close(gz);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t a, b;
    const char *path = fuzz_file("", 0, data, size);
    check_members(path, size);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    FUZZ_CHECK(file >= 0);
    enum chex_status first = inflate_all(file, false, &a), second = inflate_all(file, true, &b);
    close(file);
    /* How far each gets in a damaged stream is its own; a sound one is the same for both. */
    if (a < MOST_BYTES && b < MOST_BYTES)
        FUZZ_CHECK((first == CHEX_OK) == (second == CHEX_OK) && (first != CHEX_OK || a == b));
    return 0;
}

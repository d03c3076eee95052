/* SPDX-License-Identifier: Apache-2.0
 *
 * Zip archives with stored members. The layout is that of PKWARE's APPNOTE.TXT, sections 4.3 and
 * 4.5.3 (zip64). All numbers are little-endian; every offset is checked before it is used.
 */
#include "model/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/alloc.h"

enum {
    LOCAL_BYTES = 30,
    ENTRY_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    MAX_COMMENT = 65535,
    ZIP64_FIELD = 1,
    ENCRYPTED = 1,
};

static uint64_t number(const char *from, size_t bytes) {
    uint64_t n = 0;
    for (size_t i = bytes; i-- > 0;)
        n = n << 8 | (unsigned char)from[i];
    return n;
}

static bool is_signature(const char *from, const char *rest) {
    return from[0] == 'P' && from[1] == 'K' && from[2] == rest[0] && from[3] == rest[1];
}

static enum chex_status damaged(const struct chex_zip *z, const char *what,
                                struct chex_error *err) {
    return chex_error_data(err, "%s: damaged zip archive: %s", z->subject, what);
}

/* Where the central directory is. */
struct directory {
    uint64_t at, bytes, count;
};

/* The end record, which has a comment of unknown length after it. NULL: there is none. */
static const char *find_end(const struct chex_zip *z) {
    for (size_t back = END_BYTES; back <= z->bytes && back <= END_BYTES + MAX_COMMENT; back++) {
        const char *end = z->data + z->bytes - back;
        if (is_signature(end, "\5\6"))
            return end;
    }
    return NULL;
}

static enum chex_status find_directory(const struct chex_zip *z, struct directory *d,
                                       struct chex_error *err) {
    const char *end = find_end(z);
    if (!end)
        return damaged(z, "no end record (truncated?)", err);
    *d = (struct directory){number(end + 16, 4), number(end + 12, 4), number(end + 10, 2)};
    const char *locator = end - LOCATOR_BYTES;
    if (end - z->data >= LOCATOR_BYTES && is_signature(locator, "\6\7")) {
        const uint64_t at = number(locator + 8, 8);
        if (z->bytes < END64_BYTES || at > z->bytes - END64_BYTES ||
            !is_signature(z->data + at, "\6\6"))
            return damaged(z, "no zip64 end record", err);
        *d = (struct directory){number(z->data + at + 48, 8), number(z->data + at + 40, 8),
                                number(z->data + at + 32, 8)};
    }
    if (d->bytes > z->bytes || d->at > z->bytes - d->bytes)
        return damaged(z, "its directory is outside of the file (truncated?)", err);
    if (d->count > d->bytes / ENTRY_BYTES)
        return damaged(z, "its directory has fewer entries than it says", err);
    return CHEX_OK;
}

/* Replaces sizes and the offset of 0xffffffff by those of the zip64 field among the extra fields.
 */
static enum chex_status read_zip64(const struct chex_zip *z, const char *extra, size_t bytes,
                                   struct chex_zip_member *m, struct chex_error *err) {
    uint64_t *const values[] = {&m->bytes, &m->stored_bytes, &m->header_at};
    while (bytes >= 4) {
        const size_t length = (size_t)number(extra + 2, 2);
        if (length > bytes - 4)
            return damaged(z, "an extra field is too long", err);
        const char *at = extra + 4, *end = at + length;
        for (size_t i = 0; number(extra, 2) == ZIP64_FIELD && i < 3; i++)
            if (*values[i] == UINT32_MAX) {
                if (end - at < 8)
                    return damaged(z, "a zip64 field is too short", err);
                *values[i] = number(at, 8);
                at += 8;
            }
        extra = end;
        bytes -= length + 4;
    }
    return CHEX_OK;
}

/* Reads the entry at *at and moves *at to the next. */
static enum chex_status read_entry(const struct chex_zip *z, const char **at, const char *end,
                                   struct chex_zip_member *m, struct chex_error *err) {
    const char *e = *at;
    if (end - e < ENTRY_BYTES || !is_signature(e, "\1\2"))
        return damaged(z, "an entry of its directory is broken", err);
    const size_t name = (size_t)number(e + 28, 2), extra = (size_t)number(e + 30, 2),
                 comment = (size_t)number(e + 32, 2);
    if ((size_t)(end - e) - ENTRY_BYTES < name + extra + comment)
        return damaged(z, "an entry of its directory is too long", err);
    *m = (struct chex_zip_member){
        .name = e + ENTRY_BYTES,
        .name_bytes = name,
        .header_at = number(e + 42, 4),
        .stored_bytes = number(e + 20, 4),
        .bytes = number(e + 24, 4),
        .crc32 = (uint32_t)number(e + 16, 4),
        .method = number(e + 8, 2) & ENCRYPTED ? UINT32_MAX : (unsigned)number(e + 10, 2),
    };
    *at = e + ENTRY_BYTES + name + extra + comment;
    return read_zip64(z, e + ENTRY_BYTES + name, extra, m, err);
}

static int by_name(const void *a, const void *b) {
    const struct chex_zip_member *x = a, *y = b;
    const size_t n = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
    const int order = strncasecmp(x->name, y->name, n);
    return order ? order : x->name_bytes < y->name_bytes ? -1 : x->name_bytes > y->name_bytes;
}

static enum chex_status bad_member(const struct chex_zip *z, const struct chex_zip_member *m,
                                   const char *what, struct chex_error *err) {
    char name[64];
    size_t n = m->name_bytes < sizeof name ? m->name_bytes : sizeof name - 1;
    memcpy(name, m->name, n);
    name[n] = '\0';
    return chex_error_data(err, "%s: member '%s': %s", z->subject, name, what);
}

static enum chex_status refuse_doubles(const struct chex_zip *z, struct chex_error *err) {
    for (size_t i = 1; i < z->count; i++)
        if (by_name(&z->members[i - 1], &z->members[i]) == 0)
            return bad_member(z, &z->members[i], "is there twice, expected each name once", err);
    return CHEX_OK;
}

enum chex_status chex_zip_open(const char *data, size_t bytes, const char *subject,
                               struct chex_zip *zip_out, struct chex_error *err) {
    struct chex_zip z = {.subject = subject, .data = data, .bytes = bytes};
    struct directory d;
    CHEX_TRY(find_directory(&z, &d, err));
    CHEX_AUTO_FREE struct chex_zip_member *members =
        chex_alloc_zeroed((size_t)d.count, sizeof *members);
    if (!(z.members = members))
        return chex_error_memory(err, "%s", subject);
    const char *at = data + d.at, *end = at + d.bytes;
    for (; z.count < d.count; z.count++)
        CHEX_TRY(read_entry(&z, &at, end, &members[z.count], err));
    qsort(members, z.count, sizeof *members, by_name);
    CHEX_TRY(refuse_doubles(&z, err));
    members = NULL;
    *zip_out = z;
    return CHEX_OK;
}

void chex_zip_close(struct chex_zip *zip) {
    free(zip->members);
    *zip = (struct chex_zip){0};
}

struct chex_zip_member *chex_zip_find(const struct chex_zip *zip, const char *name,
                                      size_t name_bytes) {
    const struct chex_zip_member key = {.name = name, .name_bytes = name_bytes};
    return bsearch(&key, zip->members, zip->count, sizeof key, by_name);
}

static uint32_t checksum(const char *data, uint64_t bytes) {
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < 1u << 30 ? bytes - at : 1u << 30;
        crc = crc32(crc, (const Bytef *)data + at, (uInt)part);
    }
    return (uint32_t)crc;
}

enum chex_status chex_zip_data(const struct chex_zip *zip, struct chex_zip_member *member,
                               const char **data_out, struct chex_error *err) {
    const struct chex_zip *z = zip;
    const struct chex_zip_member *m = member;
    if (m->checked) {
        *data_out = m->checked;
        return CHEX_OK;
    }
    if (m->method)
        return bad_member(z, m, "compressed or encrypted (torch.save only stores)", err);
    if (m->bytes != m->stored_bytes)
        return bad_member(z, m, "two sizes for stored bytes", err);
    if (z->bytes < LOCAL_BYTES || m->header_at > z->bytes - LOCAL_BYTES ||
        !is_signature(z->data + m->header_at, "\3\4"))
        return bad_member(z, m, "its header is outside of the file (truncated?)", err);
    const char *header = z->data + m->header_at;
    const uint64_t at =
        m->header_at + LOCAL_BYTES + number(header + 26, 2) + number(header + 28, 2);
    if (at > z->bytes || m->bytes > z->bytes - at)
        return bad_member(z, m, "ends after the file (truncated?)", err);
    if (checksum(z->data + at, m->bytes) != m->crc32)
        return bad_member(
            z, m,
            "damaged: its bytes do not match its CRC-32 (or PyTorch saved it without: "
            "torch.serialization.set_crc32_options)",
            err);
    member->checked = z->data + at;
    *data_out = member->checked;
    return CHEX_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The archive reader. libarchive parses; this file supplies its input and checks what libarchive
 * accepts silently:
 * - A plain tar is read one page at a time and members are skipped by moving the read position, so
 *   indexing reads only the headers.
 * - libarchive treats the end of the file as the end mark: next_entry() checks that each member
 *   lies within the file, and check_end() that the end mark is there.
 * - libarchive does not read after the end mark: check_end() reads to the end of the gzip stream,
 *   which verifies its checksum.
 */
#include "ingest/archive.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/gunzip.h"
#include "base/text.h"

bool chex_archive_named(const char *path) {
    static const char *const ends[] = {".tar", ".tar.gz", ".tgz"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t k = strlen(ends[i]);
        if (n > k && strcasecmp(path + n - k, ends[i]) == 0)
            return true;
    }
    return false;
}

#if CHEXNET_HAVE_ARCHIVE
#include <archive.h>
#include <archive_entry.h>

/* Read size of a plain tar: one page holds a header and its extension. */
enum { HEADER_BYTES = 4096, TAR_BLOCK = 512 };

struct chex_archive {
    char *path;
    int fd;
    uint64_t file_bytes, at; /* at: position of the next read of a plain tar */
    struct archive *reader;
    struct chex_gunzip *gz;  /* NULL: not compressed */
    struct chex_error fault; /* of feed(), which libarchive calls */
    bool inside;             /* the current member's bytes are not skipped yet */
    uint64_t member_bytes;   /* of the last member */
    uint64_t member_end;     /* of the last member with padding, as uncompressed position */
    char name[CHEX_ARCHIVE_NAME_BYTES + 1];      /* of the current member */
    char last_good[CHEX_ARCHIVE_NAME_BYTES + 1]; /* "" before the first */
    char reason[256];                            /* of the current member */
    uint8_t buffer[HEADER_BYTES];
};

static la_ssize_t feed(struct archive *reader, void *arg, const void **data) {
    struct chex_archive *a = arg;
    ssize_t n;
    if (a->gz) {
        const uint8_t *block = NULL;
        size_t bytes = 0;
        if (chex_gunzip_read(a->gz, &block, &bytes, &a->fault) == CHEX_OK) {
            *data = block;
            return (la_ssize_t)bytes;
        }
        archive_set_error(reader, EIO, "%s", a->fault.text);
        return ARCHIVE_FATAL;
    }
    do
        n = pread(a->fd, a->buffer, sizeof a->buffer, (off_t)a->at);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        chex_error_errno(&a->fault, CHEX_E_ENV, errno, "cannot read at byte %llu",
                         (unsigned long long)a->at);
        archive_set_error(reader, EIO, "%s", a->fault.text);
        return ARCHIVE_FATAL;
    }
    a->at += (uint64_t)n;
    *data = a->buffer;
    return (la_ssize_t)n;
}

/* Never skips past the end of the file; next_entry() reports members that are cut. */
static la_int64_t skip(struct archive *reader, void *arg, la_int64_t bytes) {
    struct chex_archive *a = arg;
    (void)reader;
    if (a->gz || a->at > a->file_bytes)
        return 0;
    uint64_t left = a->file_bytes - a->at;
    uint64_t n = (uint64_t)bytes < left ? (uint64_t)bytes : left;
    a->at += n;
    return (la_int64_t)n;
}

static enum chex_status fault(const struct chex_archive *a, const char *what,
                              struct chex_error *err) {
    enum chex_status st = a->fault.status != CHEX_OK ? a->fault.status : CHEX_E_DATA;
    return chex_error_set(
        err, st, "%s: %s, %s%s", a->path, what,
        a->last_good[0] ? "after the last whole member " : "before the first member", a->last_good);
}

static enum chex_status archive_fault(const struct chex_archive *a, struct chex_error *err) {
    const char *text = a->fault.text[0] ? a->fault.text : archive_error_string(a->reader);
    return fault(a, text ? text : "damaged", err);
}

static bool open_reader(struct chex_archive *a) {
    return (a->reader = archive_read_new()) &&
           archive_read_support_format_tar(a->reader) == ARCHIVE_OK &&
           archive_read_set_callback_data(a->reader, a) == ARCHIVE_OK &&
           archive_read_set_read_callback(a->reader, feed) == ARCHIVE_OK &&
           archive_read_set_skip_callback(a->reader, skip) == ARCHIVE_OK;
}

enum chex_status chex_archive_open(const char *path, struct chex_archive **archive_out,
                                   struct chex_error *err) {
    CHEX_AUTO(chex_archive_close_at) struct chex_archive *a = calloc(1, sizeof *a);
    unsigned char magic[2] = {0};
    if (a)
        a->fd = -1;
    if (!a || !(a->path = strdup(path)) || !open_reader(a))
        return chex_error_memory(err, "%s", path);
    CHEX_TRY(chex_fs_open(path, &a->fd, &a->file_bytes, err));
    if (pread(a->fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b)
        CHEX_TRY(chex_gunzip_open(a->fd, false, &a->gz, err));
    if (archive_read_open1(a->reader) != ARCHIVE_OK)
        return archive_fault(a, err);
    *archive_out = CHEX_TAKE(a);
    return CHEX_OK;
}

void chex_archive_close(struct chex_archive *a) {
    if (!a)
        return;
    archive_read_free(a->reader);
    chex_gunzip_close(a->gz);
    if (a->fd >= 0)
        close(a->fd);
    free(a->path);
    free(a);
}

bool chex_archive_compressed(const struct chex_archive *a) { return a->gz != NULL; }

static enum chex_status leave_member(struct chex_archive *a, struct chex_error *err) {
    if (!a->inside)
        return CHEX_OK;
    a->inside = false;
    if (archive_read_data_skip(a->reader) < ARCHIVE_WARN)
        return archive_fault(a, err);
    memcpy(a->last_good, a->name, sizeof a->name);
    return CHEX_OK;
}

/* After the last member: checks the end mark and the gzip checksum (see the head). */
static enum chex_status check_end(struct chex_archive *a, struct chex_error *err) {
    if ((uint64_t)archive_filter_bytes(a->reader, 0) < a->member_end + TAR_BLOCK)
        return fault(a, "the archive ends without its end mark: it is truncated", err);
    const uint8_t *block;
    size_t bytes = 1;
    while (a->gz && bytes)
        if (chex_gunzip_read(a->gz, &block, &bytes, &a->fault) != CHEX_OK)
            return archive_fault(a, err);
    return CHEX_OK;
}

/* Why the entry cannot be read as a file; NULL if it can. */
static const char *find_reason(struct chex_archive *a, struct archive_entry *entry, size_t length) {
    const char *target = archive_entry_hardlink(entry);
    char shown[200];
    if (!target && archive_entry_filetype(entry) == AE_IFLNK)
        target = archive_entry_symlink(entry) ? archive_entry_symlink(entry) : "?";
    if (target) {
        snprintf(a->reason, sizeof a->reason, "a link to %s, expected a file: unpack the archive",
                 chex_text_printable(target, shown, sizeof shown));
        return a->reason;
    }
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_size(entry) < 0)
        return "not a regular file";
    if (length == 0 || length > CHEX_ARCHIVE_NAME_BYTES)
        return "a name of 0 or more than 1024 bytes";
    for (const char *p = a->name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (p[0] == '.' && p[1] == '.' && (!p[2] || p[2] == '/'))
            return "a path with '..', expected one within the archive";
    }
    return archive_entry_sparse_count(entry) > 0 ? "a sparse file, expected one without holes"
                                                 : NULL;
}

/* Stores the entry's name in a->name, cut if it is too long. False: a folder or a hidden name.
 * *reason_out: why it cannot be read, or NULL. */
static bool take_name(struct chex_archive *a, struct archive_entry *entry,
                      const char **reason_out) {
    const char *name = archive_entry_pathname(entry);
    if (!name)
        name = archive_entry_pathname_utf8(entry);
    name = name ? name : "";
    while (name[0] == '/' || (name[0] == '.' && name[1] == '/'))
        name += name[0] == '/' ? 1 : 2;
    if (archive_entry_filetype(entry) == AE_IFDIR || chex_fs_is_hidden(name))
        return false;
    snprintf(a->name, sizeof a->name, "%s", name);
    *reason_out = find_reason(a, entry, strlen(name));
    if (!*name)
        strcpy(a->name, "?");
    return true;
}

/* Reads one header. *found_out: a member to return. *more_out: false at the end. */
static enum chex_status next_entry(struct chex_archive *a, struct chex_archive_member *m,
                                   bool *found_out, bool *more_out, struct chex_error *err) {
    struct archive_entry *entry;
    const char *reason = NULL;
    int rc = archive_read_next_header(a->reader, &entry);
    *found_out = *more_out = false;
    if (rc == ARCHIVE_EOF)
        return check_end(a, err);
    /* For a damaged header libarchive returns ARCHIVE_RETRY and would search for the next one. */
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
        return archive_fault(a, err);
    *more_out = true;
    uint64_t at = (uint64_t)archive_filter_bytes(a->reader, 0);
    *found_out = take_name(a, entry, &reason);
    /* A link may have the size of its target in its header, but has no bytes. */
    bool has_bytes = archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry) &&
                     archive_entry_size(entry) > 0;
    uint64_t bytes = has_bytes ? (uint64_t)archive_entry_size(entry) : 0;
    if (!a->gz && (at > a->file_bytes || bytes > a->file_bytes - at))
        return fault(a, "the archive ends in the middle of a member: it is truncated", err);
    a->member_end = at + (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    a->inside = *found_out && !reason;
    a->member_bytes = bytes;
    *m = (struct chex_archive_member){a->name, bytes, at, reason};
    return CHEX_OK;
}

enum chex_status chex_archive_next(struct chex_archive *a, struct chex_archive_member *member_out,
                                   bool *more_out, struct chex_error *err) {
    struct chex_archive_member m;
    bool found = false, more = true;
    CHEX_TRY(leave_member(a, err));
    while (more && !found)
        CHEX_TRY(next_entry(a, &m, &found, &more, err));
    if (found)
        *member_out = m;
    *more_out = found;
    return CHEX_OK;
}

enum chex_status chex_archive_read(struct chex_archive *a, uint8_t *data, struct chex_error *err) {
    const void *block;
    size_t bytes;
    uint64_t done = 0;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(a->reader, &block, &bytes, &offset)) == ARCHIVE_OK ||
           rc == ARCHIVE_WARN) {
        if ((uint64_t)offset != done || bytes > a->member_bytes - done)
            return fault(a, "the bytes of a member are not contiguous", err);
        memcpy(data + done, block, bytes);
        done += bytes;
    }
    if (rc != ARCHIVE_EOF)
        return archive_fault(a, err);
    return done == a->member_bytes ? CHEX_OK
                                   : fault(a, "a member is shorter than its header says", err);
}

#else /* without libarchive */

enum chex_status chex_archive_open(const char *path, struct chex_archive **archive_out,
                                   struct chex_error *err) {
    (void)archive_out;
    return chex_error_set(err, CHEX_E_ENV,
                          "%s: this chexnet was built without libarchive and cannot read "
                          "archives: unpack it, or build with libarchive-dev installed",
                          path);
}

void chex_archive_close(struct chex_archive *archive) { (void)archive; }

bool chex_archive_compressed(const struct chex_archive *archive) {
    (void)archive;
    return false;
}

static enum chex_status none(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_FAIL, "no archive is open");
}

enum chex_status chex_archive_next(struct chex_archive *archive,
                                   struct chex_archive_member *member_out, bool *more_out,
                                   struct chex_error *err) {
    (void)archive, (void)member_out, (void)more_out;
    return none(err);
}

enum chex_status chex_archive_read(struct chex_archive *archive, uint8_t *data,
                                   struct chex_error *err) {
    (void)archive, (void)data;
    return none(err);
}
#endif

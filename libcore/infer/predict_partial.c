/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the folder of predict_partial.h.
 */
#include "infer/predict_partial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"

enum { HASH_DIGITS = 16 };
static const uint64_t RUN_LIMIT_BYTES = 1 << 20;

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the unfinished results");
}

static char *part_path(const char *out, int part) {
    return chex_fs_format("%s/" CHEX_PARTIAL_NAME "/part-%05d", out, part);
}

/* ---- the run ---- */

/* The first of our lines that is not in the text of the earlier run. NULL: all are. */
static const char *first_other(const char *text, const char *lines) {
    for (size_t n; *lines; lines += n) {
        const char *at = text;
        n = strcspn(lines, "\n") + 1;
        while (at && strncmp(at, lines, n) != 0)
            at = (at = strchr(at, '\n')) ? at + 1 : NULL;
        if (!at)
            return lines;
    }
    return NULL;
}

static enum chex_status refuse(const char *out, const char *line, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE,
                          "output folder %s has an unfinished run with another %.*s: name a new "
                          "folder, or pass --force to discard that run",
                          out, (int)strcspn(line, "="), line);
}

/* *same_out: the folder belongs to a run with these lines. */
static enum chex_status compare(const char *out, const char *run, const char *lines, bool force,
                                bool *same_out, struct chex_error *err) {
    char *text = NULL;
    *same_out = false;
    if (!chex_fs_exists(run))
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(run, RUN_LIMIT_BYTES, &text, NULL, err));
    const char *other = first_other(text, lines);
    free(text);
    *same_out = !other;
    return other && !force ? refuse(out, other, err) : CHEX_OK;
}

static enum chex_status make_folders(const char *folder, struct chex_error *err) {
    static const char *const names[] = {"thumbs", "maps"};
    for (size_t i = 0; i < CHEX_COUNT(names); i++) {
        char *path = chex_fs_join(folder, names[i]);
        enum chex_status st = path ? chex_fs_mkdirs(path, err) : no_memory(err);
        free(path);
        CHEX_TRY(st);
    }
    return CHEX_OK;
}

enum chex_status chex_partial_begin(const char *out, const char *lines, bool force,
                                    struct chex_error *err) {
    char *folder = chex_fs_join(out, CHEX_PARTIAL_NAME);
    char *run = folder ? chex_fs_join(folder, "run") : NULL;
    bool same = false;
    enum chex_status st = run ? compare(out, run, lines, force, &same, err) : no_memory(err);
    if (st == CHEX_OK && !same) {
        st = chex_fs_remove_tree(folder, err);
        if (st == CHEX_OK)
            st = make_folders(folder, err);
        if (st == CHEX_OK)
            st = chex_fs_write(run, lines, strlen(lines), err);
    }
    free(folder);
    free(run);
    return st;
}

/* ---- finding lines ---- */

/* The number in "part-NNNNN"; -1: another name. */
static int number_of(const char *name) {
    int part = -1, used = 0;
    return sscanf(name, "part-%5d%n", &part, &used) == 1 && !name[used] ? part : -1;
}

/* Adds a line if it is valid. line: `length` bytes with its line feed, at `offset` of the file. */
static void add_line(struct chex_partial_index *index, int part, char *line, size_t length,
                     uint64_t offset) {
    unsigned long long hash = 0, at = 0;
    int start = 0, text = 0;
    if (length < HASH_DIGITS + 2 || line[length - 1] != '\n' || line[HASH_DIGITS] != ' ')
        return;
    line[--length] = '\0';
    start = HASH_DIGITS + 1;
    if (strlen(line) != length || sscanf(line, "%16llx", &hash) != 1 ||
        sscanf(line + start, "%llu%n", &at, &text) != 1 || line[start + text] != ' ')
        return;
    if (chex_hash64(line + start, length - (size_t)start) != hash || at >= index->count)
        return;
    struct chex_partial_place *place = &index->places[at];
    const size_t from = (size_t)(start + text + 1);
    index->done += place->part < 0;
    *place = (struct chex_partial_place){part, (uint32_t)(length - from), offset + from};
}

static enum chex_status scan_part(const char *out, int part, struct chex_partial_index *index,
                                  struct chex_error *err) {
    char *path = part_path(out, part), *line = NULL;
    size_t capacity = 0;
    uint64_t offset = 0;
    ssize_t n = 0;
    int fd = -1;
    enum chex_status st = path ? chex_fs_open(path, &fd, NULL, err) : no_memory(err);
    FILE *f = st == CHEX_OK ? fdopen(fd, "r") : NULL;
    if (st == CHEX_OK && !f) {
        close(fd);
        st = no_memory(err);
    }
    while (st == CHEX_OK && (n = getline(&line, &capacity, f)) > 0) {
        add_line(index, part, line, (size_t)n, offset);
        offset += (uint64_t)n;
    }
    if (st == CHEX_OK && !feof(f))
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", path);
    if (f)
        fclose(f);
    free(line);
    free(path);
    return st;
}

static enum chex_status scan_folder(const char *out, const char *folder,
                                    struct chex_partial_index *index, struct chex_error *err) {
    struct dirent **list = NULL;
    const int n = scandir(folder, &list, NULL, alphasort);
    if (n < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", folder);
    enum chex_status st = CHEX_OK;
    for (int i = 0; i < n; i++) {
        const int part = number_of(list[i]->d_name);
        if (part >= 0 && st == CHEX_OK)
            st = scan_part(out, part, index, err);
        index->parts = part >= index->parts ? part + 1 : index->parts;
        free(list[i]);
    }
    free(list);
    return st;
}

enum chex_status chex_partial_scan(const char *out, size_t count, struct chex_partial_index *index,
                                   struct chex_error *err) {
    CHEX_AUTO_FREE char *folder = chex_fs_join(out, CHEX_PARTIAL_NAME);
    *index = (struct chex_partial_index){.count = count,
                                         .places = chex_alloc_zeroed(count, sizeof *index->places)};
    for (size_t i = 0; index->places && i < count; i++)
        index->places[i].part = -1;
    return folder && index->places ? scan_folder(out, folder, index, err) : no_memory(err);
}

void chex_partial_index_release(struct chex_partial_index *index) {
    free(index->places);
    *index = (struct chex_partial_index){0};
}

/* ---- writing ---- */

struct chex_partial_writer {
    char *path;
    int fd;
    char *data; /* lines that are not in the file yet */
    size_t bytes, capacity;
};

enum chex_status chex_partial_create(const char *out, int part, struct chex_partial_writer **w_out,
                                     struct chex_error *err) {
    struct chex_partial_writer *w = chex_alloc_zeroed(1, sizeof *w);
    if (!w || !(w->path = part_path(out, part))) {
        free(w);
        return no_memory(err);
    }
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        enum chex_status st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", w->path);
        free(w->path);
        free(w);
        return st;
    }
    *w_out = w;
    return CHEX_OK;
}

enum chex_status chex_partial_put(struct chex_partial_writer *w, size_t index, const char *text,
                                  struct chex_error *err) {
    const size_t most = HASH_DIGITS + 1 + 20 + 1 + strlen(text) + 2;
    if (w->bytes + most > w->capacity) {
        const size_t capacity = 2 * (w->bytes + most);
        char *grown = realloc(w->data, capacity);
        if (!grown)
            return no_memory(err);
        w->data = grown;
        w->capacity = capacity;
    }
    char *line = w->data + w->bytes, *rest = line + HASH_DIGITS + 1;
    const int n = sprintf(rest, "%zu %s", index, text);
    char hash[HASH_DIGITS + 1];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)chex_hash64(rest, (size_t)n));
    memcpy(line, hash, HASH_DIGITS);
    line[HASH_DIGITS] = ' ';
    rest[n] = '\n';
    w->bytes += HASH_DIGITS + 1 + (size_t)n + 1;
    return CHEX_OK;
}

enum chex_status chex_partial_flush(struct chex_partial_writer *w, struct chex_error *err) {
    for (size_t at = 0; at < w->bytes;) {
        const ssize_t n = write(w->fd, w->data + at, w->bytes - at);
        if (n < 0 && errno != EINTR)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->path);
        at += n > 0 ? (size_t)n : 0;
    }
    w->bytes = 0;
    return CHEX_OK;
}

enum chex_status chex_partial_close(struct chex_partial_writer *w, enum chex_status st,
                                    struct chex_error *err) {
    if (!w)
        return st;
    if (st == CHEX_OK)
        st = chex_partial_flush(w, err);
    if (close(w->fd) != 0 && st == CHEX_OK)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->path);
    free(w->path);
    free(w->data);
    free(w);
    return st;
}

/* ---- reading ---- */

struct chex_partial_reader {
    const char *out;
    const struct chex_partial_index *index;
    int open_part, fd; /* the file that is open; -1: none */
    char *text;
    size_t capacity;
};

enum chex_status chex_partial_open(const char *out, const struct chex_partial_index *index,
                                   struct chex_partial_reader **r_out, struct chex_error *err) {
    struct chex_partial_reader *r = chex_alloc_zeroed(1, sizeof *r);
    if (!r)
        return no_memory(err);
    *r = (struct chex_partial_reader){.out = out, .index = index, .open_part = -1, .fd = -1};
    *r_out = r;
    return CHEX_OK;
}

static enum chex_status go_to(struct chex_partial_reader *r, int part, struct chex_error *err) {
    if (r->open_part == part)
        return CHEX_OK;
    char *path = part_path(r->out, part);
    if (r->fd >= 0)
        close(r->fd);
    r->fd = r->open_part = -1;
    enum chex_status st = path ? chex_fs_open(path, &r->fd, NULL, err) : no_memory(err);
    free(path);
    r->open_part = st == CHEX_OK ? part : -1;
    return st;
}

enum chex_status chex_partial_read(struct chex_partial_reader *r, size_t index, char **text_out,
                                   struct chex_error *err) {
    const struct chex_partial_place *place = &r->index->places[index];
    *text_out = NULL;
    if (place->part < 0)
        return CHEX_OK;
    CHEX_TRY(go_to(r, place->part, err));
    if (place->length >= r->capacity) {
        free(r->text);
        r->capacity = 0;
        if (!(r->text = malloc((size_t)place->length + 1)))
            return no_memory(err);
        r->capacity = (size_t)place->length + 1;
    }
    CHEX_TRY(
        chex_fs_read_all(r->fd, CHEX_PARTIAL_NAME, r->text, place->length, place->offset, err));
    r->text[place->length] = '\0';
    *text_out = r->text;
    return CHEX_OK;
}

void chex_partial_reader_close(struct chex_partial_reader *r) {
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    free(r->text);
    free(r);
}

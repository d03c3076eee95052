/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the folder of predict_partial.h.
 */
#include "infer/predict_partial.h"

#include <dirent.h>
#include <errno.h>
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

static struct chex_path part_path(const char *out, int part) {
    char name[64];
    snprintf(name, sizeof name, CHEX_PARTIAL_NAME "/part-%05d", part);
    return chex_path(out, name);
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
    CHEX_AUTO_FREE char *text = NULL;
    *same_out = false;
    if (!chex_fs_exists(run))
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(run, RUN_LIMIT_BYTES, &text, NULL, err));
    const char *other = first_other(text, lines);
    *same_out = !other;
    return other && !force ? refuse(out, other, err) : CHEX_OK;
}

enum chex_status chex_partial_begin(const char *out, const char *lines, bool force,
                                    struct chex_error *err) {
    const struct chex_path folder = chex_path(out, CHEX_PARTIAL_NAME);
    const struct chex_path run = chex_path(folder.text, "run");
    bool same = false;
    CHEX_TRY(compare(out, run.text, lines, force, &same, err));
    if (same)
        return CHEX_OK;
    CHEX_TRY(chex_fs_remove_tree(folder.text, err));
    CHEX_TRY(chex_fs_mkdirs(chex_path(folder.text, "thumbs").text, err));
    CHEX_TRY(chex_fs_mkdirs(chex_path(folder.text, "maps").text, err));
    return chex_fs_write(run.text, lines, strlen(lines), err);
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
    const struct chex_path path = part_path(out, part);
    CHEX_AUTO_FREE char *line = NULL;
    size_t capacity = 0;
    uint64_t offset = 0;
    ssize_t n;
    int fd;
    CHEX_TRY(chex_fs_open(path.text, &fd, NULL, err));
    FILE *f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return no_memory(err);
    }
    while ((n = getline(&line, &capacity, f)) > 0) {
        add_line(index, part, line, (size_t)n, offset);
        offset += (uint64_t)n;
    }
    enum chex_status st = CHEX_OK;
    if (!feof(f))
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", path.text);
    fclose(f);
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
    const struct chex_path folder = chex_path(out, CHEX_PARTIAL_NAME);
    *index = (struct chex_partial_index){.count = count,
                                         .places = chex_alloc_zeroed(count, sizeof *index->places)};
    for (size_t i = 0; index->places && i < count; i++)
        index->places[i].part = -1;
    return index->places ? scan_folder(out, folder.text, index, err) : no_memory(err);
}

void chex_partial_index_release(struct chex_partial_index *index) {
    free(index->places);
    *index = (struct chex_partial_index){0};
}

/* ---- writing ---- */

struct chex_partial_writer {
    struct chex_path path;
    FILE *f;
};

static enum chex_status cannot_write(const struct chex_partial_writer *w, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", w->path.text);
}

enum chex_status chex_partial_create(const char *out, int part, struct chex_partial_writer **w_out,
                                     struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_partial_writer *w = chex_alloc_zeroed(1, sizeof *w);
    if (!w)
        return no_memory(err);
    w->path = part_path(out, part);
    if (!(w->f = fopen(w->path.text, "wxe")))
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", w->path.text);
    *w_out = w;
    w = NULL;
    return CHEX_OK;
}

enum chex_status chex_partial_put(struct chex_partial_writer *w, size_t index, const char *text,
                                  struct chex_error *err) {
    CHEX_AUTO_FREE char *line = chex_fs_format("%zu %s", index, text);
    if (!line)
        return no_memory(err);
    const unsigned long long hash = chex_hash64(line, strlen(line));
    return fprintf(w->f, "%016llx %s\n", hash, line) < 0 ? cannot_write(w, err) : CHEX_OK;
}

enum chex_status chex_partial_flush(struct chex_partial_writer *w, struct chex_error *err) {
    return fflush(w->f) != 0 ? cannot_write(w, err) : CHEX_OK;
}

enum chex_status chex_partial_close(struct chex_partial_writer *w, enum chex_status st,
                                    struct chex_error *err) {
    if (!w)
        return st;
    if (st == CHEX_OK)
        st = chex_partial_flush(w, err);
    if (fclose(w->f) != 0 && st == CHEX_OK)
        st = cannot_write(w, err);
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
    if (r->fd >= 0)
        close(r->fd);
    r->fd = r->open_part = -1;
    CHEX_TRY(chex_fs_open(part_path(r->out, part).text, &r->fd, NULL, err));
    r->open_part = part;
    return CHEX_OK;
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

/* ---- the text of an image ---- */

bool chex_predict_line_split(char *text, struct chex_predict_line *line) {
    char *part[6] = {text};
    int count = 1;
    for (char *at = text; (at = strchr(at, '\t')); count++) {
        *at++ = '\0';
        if (count == 6)
            return false;
        part[count] = at;
    }
    if (strcmp(part[0], "p") == 0 && count == 6)
        *line = (struct chex_predict_line){.predicted = true,
                                           .id = part[1],
                                           .study = part[2],
                                           .series = part[3],
                                           .cells = part[4],
                                           .flags = part[5]};
    else if (strcmp(part[0], "r") == 0 && count == 3)
        *line = (struct chex_predict_line){.id = part[1], .reason = part[2]};
    else
        return false;
    return true;
}

char *chex_predict_line_unquote(char *cell) {
    if (*cell != '"')
        return cell;
    char *out = cell;
    for (const char *in = cell + 1; *in && !(in[0] == '"' && in[1] != '"'); in++) {
        *out++ = *in;
        in += *in == '"';
    }
    *out = '\0';
    return cell;
}

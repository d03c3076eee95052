/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the list of images that a user names. image_list.h describes its order.
 *
 * Members of compressed archives come in two steps, because the ranks share the work. While the
 * names are walked, each compressed archive is only noted, with the place of its members in the
 * list. Then rank i mod size reads archive i, and all ranks get the names and sizes of all members.
 */
#include "ingest/image_list.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/archive.h"

/* A compressed archive before its members are known. */
struct noted {
    struct chex_folder_file file;
    size_t at; /* entries of the list before its members */
};

struct making {
    struct chex_image_list *list;
    struct chex_group *group;
    char *results; /* real path of the folder of the results; NULL: it does not exist */
    struct noted *noted;
    size_t noted_count, noted_capacity;
    char *names; /* members of all compressed archives, packed */
    size_t names_bytes;
};

static void release(struct making *m) {
    chex_image_list_destroy(m->list);
    CHEX_FREE(m->noted, m->names, m->results);
}

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the list of images");
}

static enum chex_status add(struct chex_image_list *l, const struct chex_listed_image *image,
                            struct chex_error *err) {
    if (!chex_alloc_grow(&l->images, l->count, &l->capacity, sizeof *l->images))
        return no_memory(err);
    l->images[l->count++] = *image;
    return CHEX_OK;
}

/* Gives `text` (malloc'd; NULL allowed) to the list. NULL: out of memory. */
static char *own(struct chex_image_list *l, char *text) {
    if (!text || !chex_alloc_grow(&l->owned, l->owned_count, &l->owned_capacity, sizeof text)) {
        free(text);
        return NULL;
    }
    return l->owned[l->owned_count++] = text;
}

/* ---- archives ---- */

/* Adds the fault of a damaged archive. */
static enum chex_status add_fault(struct making *m, const struct chex_folder_file *archive,
                                  const char *text, struct chex_error *err) {
    struct chex_image_list *l = m->list;
    const char *fault = own(l, strdup(text));
    if (!fault)
        return no_memory(err);
    if (m->group->rank == 0) /* no row of the results can say how much is missing */
        chex_warn("%s: the rest of the archive is left out", text);
    const struct chex_listed_image image = {
        .id = archive->path + archive->below, .file = *archive, .archive = -1, .fault = fault};
    return add(l, &image, err);
}

/* Adds something that cannot be read. `image` has id, file and archive. */
static enum chex_status add_unread(struct chex_image_list *l, struct chex_listed_image image,
                                   const char *reason, struct chex_error *err) {
    image.fault = own(l, chex_fs_format("%s: %s", image.file.path, reason));
    return image.fault ? add(l, &image, err) : no_memory(err);
}

/* Adds the members of a plain .tar. */
static enum chex_status add_tar(struct making *m, struct chex_archive *archive,
                                const struct chex_folder_file *file, struct chex_error *err) {
    const struct chex_container *container = NULL;
    CHEX_TRY(chex_folder_add_container(m->list->folder, file->path, &container, err));
    for (;;) {
        struct chex_archive_member member;
        bool more = false;
        CHEX_TRY(chex_archive_next(archive, &member, &more, err));
        if (!more)
            return CHEX_OK;
        char *path = own(m->list, chex_fs_join(file->path, member.name));
        if (!path)
            return no_memory(err);
        const struct chex_listed_image image = {.id = path + strlen(path) - strlen(member.name),
                                                .file = {.path = path,
                                                         .bytes = member.bytes,
                                                         .modified_ns = file->modified_ns,
                                                         .container = container,
                                                         .offset = member.offset},
                                                .archive = -1};
        CHEX_TRY(member.unread ? add_unread(m->list, image, member.unread, err)
                               : add(m->list, &image, err));
    }
}

/* A damaged archive gives its members before the damage, then one entry with the fault. */
static enum chex_status add_archive(struct making *m, const struct chex_folder_file *file,
                                    struct chex_error *err) {
    CHEX_AUTO(chex_archive_close_at) struct chex_archive *archive = NULL;
    enum chex_status st = chex_archive_open(file->path, &archive, err);
    if (st == CHEX_OK && chex_archive_compressed(archive)) {
        if (chex_alloc_grow(&m->noted, m->noted_count, &m->noted_capacity, sizeof *m->noted))
            m->noted[m->noted_count++] = (struct noted){*file, m->list->count};
        else
            st = no_memory(err);
    } else if (st == CHEX_OK) {
        st = add_tar(m, archive, file, err);
    }
    return st == CHEX_E_DATA ? add_fault(m, file, err->text, err) : st;
}

/* ---- the names of the user ---- */

static int by_path(const void *a, const void *b) {
    const struct chex_folder_file *const *x = a, *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

/* The path of the results below the real path of an image folder. NULL: they are elsewhere. */
static const char *results_below(const struct making *m, const char *real) {
    const size_t n = strlen(real);
    const bool inside = m->results && strncmp(m->results, real, n) == 0;
    if (inside && m->results[n] == '/')
        return m->results + n + 1;
    return inside && strcmp(real, "/") == 0 ? m->results + 1 : NULL;
}

static bool is_result(const struct chex_folder_file *file, const char *results) {
    const size_t n = results ? strlen(results) : 0;
    const char *below = file->path + file->below;
    return n && strncmp(below, results, n) == 0 && below[n] == '/';
}

static enum chex_status add_files(struct chex_image_list *l, const struct chex_folder_file *files,
                                  size_t count, const char *results, struct chex_error *err) {
    CHEX_AUTO_FREE const struct chex_folder_file **order = chex_alloc_zeroed(count, sizeof *order);
    if (!order)
        return no_memory(err);
    for (size_t i = 0; i < count; i++)
        order[i] = &files[i];
    qsort(order, count, sizeof *order, by_path);
    for (size_t i = 0; i < count; i++) {
        const struct chex_listed_image image = {
            .id = order[i]->path + order[i]->below, .file = *order[i], .archive = -1};
        if (!is_result(order[i], results))
            CHEX_TRY(image.file.unread ? add_unread(l, image, image.file.unread, err)
                                       : add(l, &image, err));
    }
    return CHEX_OK;
}

static void warn_left_out(const struct chex_folder *folder) {
    size_t count = 0;
    const char *skipped = chex_folder_skipped(folder, &count);
    if (chex_folder_closed(folder))
        chex_warn("%s: its images are left out", chex_folder_closed(folder));
    if (skipped)
        chex_warn("%s: left out, %zu such folder%s", skipped, count, chex_text_s(count));
}

static enum chex_status add_entries(struct making *m, const struct chex_folder *folder,
                                    const char *results, struct chex_error *err) {
    size_t archives = 0, count = 0;
    const struct chex_folder_file *files = chex_folder_files(folder, &count);
    CHEX_TRY(add_files(m->list, files, count, results, err));
    files = chex_folder_unread(folder, &count);
    CHEX_TRY(add_files(m->list, files, count, results, err));
    const struct chex_folder_file *archive = chex_folder_archives(folder, &archives);
    for (size_t i = 0; i < archives; i++)
        if (!is_result(&archive[i], results))
            CHEX_TRY(add_archive(m, &archive[i], err));
    return CHEX_OK;
}

static enum chex_status add_folder(struct making *m, const char *dir, struct chex_error *err) {
    struct chex_image_list *l = m->list;
    struct chex_folder **grown = realloc(l->folders, (l->folder_count + 1) * sizeof *grown);
    struct chex_folder *folder = NULL;
    if (!grown)
        return no_memory(err);
    l->folders = grown;
    CHEX_TRY(chex_folder_open(dir, &folder, err));
    l->folders[l->folder_count++] = folder;
    if (m->group->rank == 0)
        warn_left_out(folder);
    CHEX_AUTO_FREE char *real = realpath(dir, NULL);
    if (!real)
        return chex_error_errno(err, CHEX_E_DATA, errno, "--images %s", dir);
    if (m->results && strcmp(real, m->results) == 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--images %s is the folder of --output too: name another --output",
                              dir);
    return add_entries(m, folder, results_below(m, real), err);
}

static enum chex_status add_name(struct making *m, const char *name, struct chex_error *err) {
    struct stat info;
    if (stat(name, &info) != 0)
        return chex_error_errno(err, CHEX_E_DATA, errno, "--images %s", name);
    if (S_ISDIR(info.st_mode))
        return add_folder(m, name, err);
    if (!S_ISREG(info.st_mode))
        return chex_error_data(err, "--images %s: expected a file, a folder or an archive", name);
    const struct chex_folder_file file = {.path = name,
                                          .below = strlen(name) - strlen(chex_fs_name(name)),
                                          .bytes = (uint64_t)info.st_size,
                                          .modified_ns = chex_fs_modified_ns(&info)};
    if (chex_archive_named(name))
        return add_archive(m, &file, err);
    const struct chex_listed_image image = {.id = name + file.below, .file = file, .archive = -1};
    return add(m->list, &image, err);
}

/* ---- members of compressed archives ---- */

/* Packs one archive: members as their size, their name and why they cannot be read or ""; then
 * UINT64_MAX, the fault or "", and "". */
static enum chex_status pack_archive(FILE *to, const char *path, struct chex_error *err) {
    static const uint64_t end = UINT64_MAX;
    CHEX_AUTO(chex_archive_close_at) struct chex_archive *archive = NULL;
    enum chex_status st = chex_archive_open(path, &archive, err);
    for (bool more = true; st == CHEX_OK && more;) {
        struct chex_archive_member member;
        st = chex_archive_next(archive, &member, &more, err);
        if (st == CHEX_OK && more) {
            fwrite(&member.bytes, sizeof member.bytes, 1, to);
            fwrite(member.name, strlen(member.name) + 1, 1, to);
            fputs(member.unread ? member.unread : "", to);
            putc('\0', to);
        }
    }
    if (st != CHEX_OK && st != CHEX_E_DATA)
        return st;
    fwrite(&end, sizeof end, 1, to);
    fputs(st == CHEX_OK ? "" : err->text, to);
    fwrite("\0", 2, 1, to);
    return CHEX_OK;
}

static enum chex_status pack_own(struct making *m, char **data_out, size_t *size_out,
                                 struct chex_error *err) {
    FILE *to = open_memstream(data_out, size_out);
    enum chex_status st = to ? CHEX_OK : no_memory(err);
    for (size_t i = (size_t)m->group->rank; st == CHEX_OK && i < m->noted_count;
         i += (size_t)m->group->size)
        st = pack_archive(to, m->noted[i].file.path, err);
    if (to && fclose(to) != 0 && st == CHEX_OK)
        st = no_memory(err);
    return st;
}

/* Gives all ranks the packed members of all archives, ordered by rank. Collective. */
static enum chex_status share_members(struct making *m, struct chex_error *err) {
    CHEX_AUTO_FREE char *mine = NULL;
    void *all = NULL;
    size_t bytes = 0, total = 0;
    uint64_t shared = 0;
    CHEX_TRY(chex_group_agree(m->group, pack_own(m, &mine, &bytes, err), err));
    CHEX_TRY(chex_group_gather(m->group, mine, bytes, &all, &total, err));
    m->names = all;
    shared = total;
    CHEX_TRY(chex_group_broadcast(m->group, &shared, sizeof shared, 0, err));
    m->names_bytes = (size_t)shared;
    if (m->group->rank != 0)
        m->names = malloc(m->names_bytes + 1);
    CHEX_TRY(chex_group_agree(m->group, m->names ? CHEX_OK : no_memory(err), err));
    return chex_group_broadcast(m->group, m->names, m->names_bytes, 0, err);
}

/* Reads the members of one archive from the packed form at *at, and adds them. */
static enum chex_status unpack_archive(struct making *m, const struct noted *n, const char **at,
                                       struct chex_error *err) {
    struct chex_image_list *l = m->list;
    struct chex_listed_archive *a = &l->archives[l->archive_count];
    if (!(a->path = strdup(n->file.path)))
        return no_memory(err);
    a->first = l->count;
    const int index = l->archive_count++;
    for (;;) {
        uint64_t size;
        memcpy(&size, *at, sizeof size);
        const char *name = *at + sizeof size, *reason = name + strlen(name) + 1;
        *at = reason + strlen(reason) + 1;
        if (size == UINT64_MAX) {
            a->count = l->count - a->first;
            return *name ? add_fault(m, &n->file, name, err) : CHEX_OK;
        }
        char *path = own(l, chex_fs_join(n->file.path, name));
        if (!path)
            return no_memory(err);
        const struct chex_listed_image image = {
            .id = path + strlen(path) - strlen(name),
            .file = {.path = path, .bytes = size, .modified_ns = n->file.modified_ns},
            .archive = index};
        CHEX_TRY(*reason ? add_unread(l, image, reason, err) : add(l, &image, err));
    }
}

/* Where the packed form of each archive begins. The form has the archives of rank 0 first. */
static void find_packed(const struct making *m, const char **at_out) {
    const char *at = m->names;
    for (int r = 0; r < m->group->size; r++)
        for (size_t i = (size_t)r; i < m->noted_count; i += (size_t)m->group->size) {
            at_out[i] = at;
            for (uint64_t size = 0; size != UINT64_MAX;) {
                memcpy(&size, at, sizeof size);
                at += sizeof size;
                for (int text = 0; text < 2; text++)
                    at += strlen(at) + 1;
            }
        }
}

/* Builds the list again, with the members of each compressed archive in their place. */
static enum chex_status insert_members(struct making *m, struct chex_error *err) {
    struct chex_image_list *l = m->list;
    CHEX_AUTO_FREE struct chex_listed_image *before = CHEX_TAKE(l->images);
    CHEX_AUTO_FREE const char **at = chex_alloc_zeroed(m->noted_count, sizeof *at);
    const size_t count = l->count;
    l->archives = chex_alloc_zeroed(m->noted_count, sizeof *l->archives);
    l->count = l->capacity = 0;
    if (!at || !l->archives)
        return no_memory(err);
    find_packed(m, at);
    for (size_t i = 0, n = 0; i <= count; i++) {
        for (; n < m->noted_count && m->noted[n].at == i; n++)
            CHEX_TRY(unpack_archive(m, &m->noted[n], &at[n], err));
        if (i < count)
            CHEX_TRY(add(l, &before[i], err));
    }
    return CHEX_OK;
}

/* ---- ids and digest ---- */

static int by_id(const void *a, const void *b) {
    const struct chex_listed_image *const *x = a, *const *y = b;
    return strcmp((*x)->id, (*y)->id);
}

/* Images with the same id get their paths as ids. What cannot be read has no row in the results. */
static enum chex_status make_unique(struct chex_image_list *l, struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_listed_image **order = chex_alloc_zeroed(l->count, sizeof *order);
    if (!order)
        return no_memory(err);
    size_t count = 0;
    for (size_t i = 0; i < l->count; i++)
        if (!l->images[i].fault)
            order[count++] = &l->images[i];
    for (int pass = 0; pass < 2; pass++) {
        qsort(order, count, sizeof *order, by_id);
        for (size_t i = 0, stop; i < count; i = stop) {
            for (stop = i + 1; stop < count && strcmp(order[stop]->id, order[i]->id) == 0;)
                stop++;
            if (stop - i > 1 && pass == 1)
                return chex_error_data(err, "--images: %s is there twice: name each image once",
                                       order[i]->id);
            for (size_t k = i; stop - i > 1 && pass == 0 && k < stop; k++)
                order[k]->id = order[k]->file.path;
        }
    }
    return CHEX_OK;
}

static uint64_t digest_of(const struct chex_image_list *l) {
    uint64_t h = 0;
    for (size_t i = 0; i < l->count; i++) {
        const struct chex_listed_image *image = &l->images[i];
        const int64_t facts[] = {(int64_t)image->file.bytes, image->file.modified_ns,
                                 image->archive, image->fault != NULL};
        h = chex_hash64_mix(h, facts, sizeof facts);
        h = chex_hash64_mix_text(h, image->id);
    }
    return h;
}

/* Do all ranks see the same files? Collective. */
static enum chex_status compare(const struct chex_image_list *l, struct chex_group *g,
                                struct chex_error *err) {
    const uint64_t mine[] = {l->digest, l->count};
    CHEX_TRY(chex_group_exchange(g, "images", mine, sizeof mine, err));
    const uint64_t *all = g->all;
    for (int r = 1; r < g->size; r++)
        if (memcmp(all, all + 2 * r, sizeof mine) != 0)
            return chex_error_data(
                err,
                "--images: rank 0 sees %llu files and rank %d sees %llu, or files of other sizes "
                "or times: the ranks must see the same files",
                (unsigned long long)all[1], r, (unsigned long long)all[2 * r + 1]);
    return CHEX_OK;
}

/* ---- the list ---- */

static enum chex_status list_names(struct making *m, const char *const *names, size_t count,
                                   struct chex_error *err) {
    CHEX_TRY(chex_folder_create(&m->list->folder, err));
    for (size_t i = 0; i < count; i++)
        CHEX_TRY(add_name(m, names[i], err));
    if (!m->list->count && !m->noted_count)
        return chex_error_data(err, "--images %s: there is no file", names[0]);
    return CHEX_OK;
}

/* What each rank does for itself after the members are known. */
static enum chex_status complete(struct making *m, struct chex_error *err) {
    if (m->noted_count)
        CHEX_TRY(insert_members(m, err));
    CHEX_TRY(make_unique(m->list, err));
    if (!m->list->count)
        return chex_error_data(err, "--images: the archives have no file");
    m->list->digest = digest_of(m->list);
    return CHEX_OK;
}

static enum chex_status make(struct making *m, const char *const *names, size_t count,
                             struct chex_error *err) {
    uint64_t archives;
    CHEX_TRY(chex_group_agree(m->group, list_names(m, names, count, err), err));
    archives = m->noted_count;
    CHEX_TRY(chex_group_broadcast(m->group, &archives, sizeof archives, 0, err));
    enum chex_status st = archives == m->noted_count
                              ? CHEX_OK
                              : chex_error_data(err,
                                                "--images: rank 0 sees %llu compressed archives, "
                                                "this rank %zu: the ranks must see the same files",
                                                (unsigned long long)archives, m->noted_count);
    CHEX_TRY(chex_group_agree(m->group, st, err));
    if (archives)
        CHEX_TRY(share_members(m, err));
    CHEX_TRY(chex_group_agree(m->group, complete(m, err), err));
    return compare(m->list, m->group, err);
}

enum chex_status chex_image_list_create(const char *const *names, size_t name_count,
                                        const char *results, struct chex_group *group,
                                        struct chex_image_list **list_out, struct chex_error *err) {
    CHEX_AUTO(release)
    struct making m = {.group = group,
                       .results = realpath(results, NULL),
                       .list = chex_alloc_zeroed(1, sizeof *m.list)};
    CHEX_TRY(chex_group_agree(group, m.list ? CHEX_OK : no_memory(err), err));
    CHEX_TRY(make(&m, names, name_count, err));
    *list_out = CHEX_TAKE(m.list);
    return CHEX_OK;
}

void chex_image_list_destroy(struct chex_image_list *l) {
    if (!l)
        return;
    for (int i = 0; i < l->archive_count; i++)
        free(l->archives[i].path);
    for (size_t i = 0; i < l->owned_count; i++)
        free(l->owned[i]);
    for (size_t i = 0; i < l->folder_count; i++)
        chex_folder_close(l->folders[i]);
    chex_folder_close(l->folder);
    CHEX_FREE(l->folders, l->owned, l->archives, l->images, l);
}

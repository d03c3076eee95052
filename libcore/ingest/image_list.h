/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of images that a user names without labels: files, folders and archives, in one fixed
 * order.
 *
 * - The order is that of the names. A folder gives its files by path, then its archives by path. An
 *   archive gives its members in its own order.
 * - Every file of a folder and every member of an archive is listed. Its content decides later if
 * it is an image. What cannot be read as a file (dangling links of a folder, links of an archive,
 * ...) is listed with a fault, after the files. Names that begin with a dot are skipped, and so is
 * the folder of the results, which may hold heat maps of an earlier run.
 * - The id of an image is its path below the folder or in the archive, or the name of the file. If
 *   two images would have the same id, both have their whole paths instead.
 * - Members of a plain .tar are read at their offsets. A compressed archive can only be read from
 *   its start to its end, so it is read once to list its members, and again to predict.
 */
#ifndef CHEX_INGEST_IMAGE_LIST_H
#define CHEX_INGEST_IMAGE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ingest/folder.h"
#include "launch/group.h"

struct chex_listed_image {
    const char *id;
    struct chex_folder_file
        file;          /* not for members of compressed archives, except path and bytes */
    int archive;       /* index into the archives; -1: file can be read by itself */
    const char *fault; /* known to be unusable: a damaged archive, a link, ...; or NULL */
};

/* A compressed archive. Its members are images [first, first + count). */
struct chex_listed_archive {
    char *path;
    size_t first, count;
};

struct chex_image_list {
    struct chex_listed_image *images;
    size_t count;
    struct chex_listed_archive *archives;
    int archive_count;
    uint64_t digest; /* of ids, sizes and times of change: another list has another digest */
    size_t capacity;
    struct chex_folder *folder;   /* owns the containers */
    struct chex_folder **folders; /* own the paths of their files */
    size_t folder_count;
    char **owned; /* further texts */
    size_t owned_count, owned_capacity;
};

/* Makes the list. results: the folder of the results; it may be missing. Collective: the ranks
 * share the reading of compressed archives, and compare their lists.
 * - CHEX_E_USAGE: a name is the folder of the results.
 * - CHEX_E_DATA: a name does not exist, there is no file, a file is named twice, or the ranks see
 *   different files.
 * - CHEX_E_ENV: a folder cannot be read, or an archive is named and libarchive is missing.
 * - Warns on rank 0 about folders that were left out. */
enum chex_status chex_image_list_create(const char *const *names, size_t name_count,
                                        const char *results, struct chex_group *group,
                                        struct chex_image_list **list_out, struct chex_error *err);
void chex_image_list_destroy(struct chex_image_list *list); /* NULL allowed */

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The files below an image folder, found by name: data sets come in one folder or in a dozen
 * (images_001/images, ...), while label files give bare names.
 */
#ifndef CHEX_DATA_FOLDER_H
#define CHEX_DATA_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_folder;

struct chex_folder_file {
    const char *path; /* the folder's own name included */
    uint64_t bytes;
    int64_t modified_ns;
};

/* Reads the tree, links followed, 16 levels deep. CHEX_E_DATA: no such folder, one that cannot be
 * read. */
enum chex_status chex_folder_open(const char *dir, struct chex_folder **folder_out,
                                  struct chex_error *err);
void chex_folder_close(struct chex_folder *folder); /* NULL allowed */

size_t chex_folder_count(const struct chex_folder *folder);

/* The file a label file means by `path`: the one whose path below the folder is or ends in `path`,
 * else the one with its last component as name; where that has no ending and no file is named so, a
 * file of that name with any ending. NULL where there is none; *rival_out (NULL allowed)
 * is a second file that fits as well, or NULL. */
const struct chex_folder_file *chex_folder_find(const struct chex_folder *folder, const char *path,
                                                const struct chex_folder_file **rival_out);

#endif

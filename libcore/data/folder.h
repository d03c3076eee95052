/* SPDX-License-Identifier: Apache-2.0
 *
 * The images below a folder, found by name: data sets come in one folder or in a dozen
 * (images_001/images, ...), while label files give bare names. Images within files that hold many
 * (archives, TFRecords) are added to them.
 */
#ifndef CHEX_DATA_FOLDER_H
#define CHEX_DATA_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/image.h"
#include "data/spool.h"

struct chex_folder;

/* A file that holds images at known places. */
struct chex_holder;

struct chex_folder_file {
    const char *path; /* the folder's own name included; within an archive ARCHIVE/MEMBER */
    uint64_t bytes;
    int64_t modified_ns; /* of the file that holds it, where one does */
    /* Where the bytes are: a file of its own unless one of these is there. */
    const struct chex_holder *holder;
    uint64_t offset; /* in the holder */
    const struct chex_spool *spool;
    size_t spool_row; /* where in the spool the resized image is */
};

/* Reads the tree, links followed, 16 levels deep; `dir` may also be one archive. Archives are put
 * aside, see chex_folder_archives. CHEX_E_DATA: no such folder, one that cannot be read; for one
 * within that is closed to this user see chex_folder_closed. */
enum chex_status chex_folder_open(const char *dir, struct chex_folder **folder_out,
                                  struct chex_error *err);

/* One without any file. */
enum chex_status chex_folder_create(struct chex_folder **folder_out, struct chex_error *err);
void chex_folder_close(struct chex_folder *folder); /* NULL allowed; closes holders and spools */

/* Files and members, archives themselves not counted. */
size_t chex_folder_count(const struct chex_folder *folder);

/* Which folder within was left out because this user may not read it, and why; NULL where all were
 * read. */
const char *chex_folder_closed(const struct chex_folder *folder);

/* The path of one of them, from the middle, where a readme is rarely; NULL where there is none. */
const char *chex_folder_sample(const struct chex_folder *folder);

/* The archives that were met, by path. */
const struct chex_folder_file *chex_folder_archives(const struct chex_folder *folder,
                                                    size_t *count_out);

/* Adds a file that holds images; it belongs to the folder. */
enum chex_status chex_folder_add_holder(struct chex_folder *folder, const char *path,
                                        const struct chex_holder **holder_out,
                                        struct chex_error *err);

/* The folder closes the spool from now on, and on failure too. */
enum chex_status chex_folder_add_spool(struct chex_folder *folder, struct chex_spool *spool,
                                       struct chex_error *err);

/* Adds an image: all of *file but its path, which becomes HOLDER_PATH/NAME. chex_folder_sort must
 * follow before anything is looked for. */
enum chex_status chex_folder_add(struct chex_folder *folder, const struct chex_folder_file *file,
                                 const char *holder_path, const char *name, struct chex_error *err);
void chex_folder_sort(struct chex_folder *folder);

/* The file a label file means by `path`: the one whose path below the folder is or ends in `path`,
 * else the one with its last component as name; where that has no ending and no file is named so, a
 * file of that name with any ending. Files of their own go before those that are held by another.
 * NULL where there is none; *rival_out (NULL allowed) is a second file that fits as well, or NULL;
 * another link to the same file is none. */
const struct chex_folder_file *chex_folder_find(const struct chex_folder *folder, const char *path,
                                                const struct chex_folder_file **rival_out);

/* As chex_folder_find, of files only whose path is or ends in `path`: where names repeat from
 * folder to folder, a file of that name in another one is another image. */
const struct chex_folder_file *chex_folder_find_whole(const struct chex_folder *folder,
                                                      const char *path,
                                                      const struct chex_folder_file **rival_out);

/* The bytes of a file that is not in a spool; as chex_image_read. Thread-safe for different
 * readers. */
enum chex_status chex_folder_read(const struct chex_folder_file *file,
                                  struct chex_image_reader *reader, const uint8_t **data_out,
                                  size_t *size_out, struct chex_error *err);

/* Tells the kernel that the file will be read soon. */
void chex_folder_announce(const struct chex_folder_file *file);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds images below a folder by name. Data sets come in one folder or in many (images_001/images,
 * ...), while label files often give bare file names. Images in archives and TFRecord files can be
 * added; they are found by the same rules.
 */
#ifndef CHEX_INGEST_FOLDER_H
#define CHEX_INGEST_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "image/image.h"
#include "ingest/spool.h"

struct chex_folder;

/* A file that contains images at known offsets: a plain .tar or a TFRecord file. */
struct chex_container;

struct chex_folder_file {
    const char *path; /* with the folder's own name; ARCHIVE/MEMBER for an image in an archive */
    size_t below;     /* start of the part of `path` below the folder or in the archive */
    uint64_t bytes;
    int64_t modified_ns; /* of the file, or of the file that contains it */
    /* The image is in the container or the spool, if set; otherwise it is a file. */
    const struct chex_container *container;
    uint64_t offset; /* in the container */
    const struct chex_spool *spool;
    size_t spool_row;   /* row of the resized image in the spool */
    const char *unread; /* why an entry of chex_folder_unread() cannot be read; else NULL */
};

/* Lists the files below `dir`, or of `dir` if it is one archive.
 * - Follows links, at most 64 levels deep. Skips a link to a folder above it (chex_folder_skipped).
 * - Skips files and folders whose names begin with a dot.
 * - Archives are listed separately (chex_folder_archives); their members are not read.
 * - Leaves out subfolders without read permission (chex_folder_closed).
 * - CHEX_E_DATA: `dir` does not exist or cannot be read. CHEX_E_ENV: a folder cannot be listed to
 *   its end. */
enum chex_status chex_folder_open(const char *dir, struct chex_folder **folder_out,
                                  struct chex_error *err);

/* A folder without files, for chex_folder_add(). */
enum chex_status chex_folder_create(struct chex_folder **folder_out, struct chex_error *err);
void chex_folder_close(struct chex_folder *folder); /* NULL allowed; closes containers and spools */
CHEX_AUTO_POINTER(struct chex_folder, chex_folder_close)

/* Number of files and members; archives are not counted. */
size_t chex_folder_count(const struct chex_folder *folder);

/* All files and members, in no particular order. */
const struct chex_folder_file *chex_folder_files(const struct chex_folder *folder,
                                                 size_t *count_out);

/* Message about a subfolder that was left out because this user may not read it; NULL if there is
 * none. */
const char *chex_folder_closed(const struct chex_folder *folder);

/* Message about the first folder that was skipped because it is too deep or a link to a folder
 * above it; NULL if there is none. *count_out: number of such folders. */
const char *chex_folder_skipped(const struct chex_folder *folder, size_t *count_out);

/* The archives below the folder, sorted by path. */
const struct chex_folder_file *chex_folder_archives(const struct chex_folder *folder,
                                                    size_t *count_out);

/* What is neither a file that can be read nor a hidden name: dangling links, folders that were left
 * out, members added with chex_folder_add() that have a reason. In no particular order. */
const struct chex_folder_file *chex_folder_unread(const struct chex_folder *folder,
                                                  size_t *count_out);

/* The entry of chex_folder_unread() that a label file may mean by `path`, or NULL. */
const struct chex_folder_file *chex_folder_find_unread(const struct chex_folder *folder,
                                                       const char *path);

/* Adds a file that contains images. The folder owns *container_out. */
enum chex_status chex_folder_add_container(struct chex_folder *folder, const char *path,
                                           const struct chex_container **container_out,
                                           struct chex_error *err);

/* The folder takes ownership of the spool, also on failure. */
enum chex_status chex_folder_add_spool(struct chex_folder *folder, struct chex_spool *spool,
                                       struct chex_error *err);

/* Adds an image: a copy of *file, and of its `unread`, with the path CONTAINER_PATH/NAME. Call
 * chex_folder_sort() after the last one and before any search. */
enum chex_status chex_folder_add(struct chex_folder *folder, const struct chex_folder_file *file,
                                 const char *container_path, const char *name,
                                 struct chex_error *err);
void chex_folder_sort(struct chex_folder *folder);

/* The file that a label file means by `path`:
 * 1. the one whose path below the folder is `path`, if `path` has folders;
 * 2. the one whose path ends in `path`;
 * 3. the one whose file name is that of `path`.
 * If the name has no extension and no file has that name, files with any extension match. Files
 * have precedence over images in archives and other containers. NULL if nothing matches. *rival_out
 * (NULL allowed): a second file that matches equally well, or NULL. Another link to the same file
 * is no rival. */
const struct chex_folder_file *chex_folder_find(const struct chex_folder *folder, const char *path,
                                                const struct chex_folder_file **rival_out);

/* As chex_folder_find() without rule 3. For data sets whose names repeat in several folders: there,
 * a file of that name in another folder is another image. */
const struct chex_folder_file *chex_folder_find_whole(const struct chex_folder *folder,
                                                      const char *path,
                                                      const struct chex_folder_file **rival_out);

/* Reads an image file that is not in a spool, as chex_image_read(). Thread-safe if each thread has
 * its own reader. */
enum chex_status chex_folder_read(const struct chex_folder_file *file,
                                  struct chex_image_reader *reader, const uint8_t **data_out,
                                  size_t *size_out, struct chex_error *err);

/* Asks the kernel to prefetch the file. No-op for a spooled image. */
void chex_folder_prefetch(const struct chex_folder_file *file);

#endif

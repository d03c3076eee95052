/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that appear whole or not at all, and the few path helpers around them.
 */
#ifndef CHEX_BASE_FS_H
#define CHEX_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* mkdir -p. */
enum chex_status chex_fs_mkdirs(const char *path, struct chex_error *err);

/* Whether mkdir -p, and files in the folder, could be made: looks and makes nothing. CHEX_E_ENV
 * with the text of chex_fs_mkdirs, or with the folder that cannot be written to. */
enum chex_status chex_fs_check_mkdirs(const char *path, struct chex_error *err);

/* The same for a file, by its folder. CHEX_E_ENV, too, where the path is a folder, a device or a
 * pipe. */
enum chex_status chex_fs_check_create(const char *path, struct chex_error *err);

/* mkdir -p of a file's folder. */
enum chex_status chex_fs_make_folder_of(const char *path, struct chex_error *err);

bool chex_fs_exists(const char *path);
bool chex_fs_is_dir(const char *path);

/* "dir/name" in a fresh string; the caller frees it. NULL only when out of memory. */
char *chex_fs_join(const char *dir, const char *name);

/* printf into a fresh string; the caller frees it. NULL only when out of memory. */
char *chex_fs_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The whole file in fresh memory with a NUL behind it; the caller frees. Refuses files over
 * `limit` bytes (CHEX_E_DATA). size_out may be NULL. */
enum chex_status chex_fs_read(const char *path, uint64_t limit, char **data_out, size_t *size_out,
                              struct chex_error *err);

/* Writes to `path.tmp.PID`, fsyncs, renames to path, fsyncs the folder. Nothing stays behind on
 * failure. */
enum chex_status chex_fs_write(const char *path, const void *data, size_t size,
                               struct chex_error *err);

/* The temporary name for `path` (fresh string), and the commit of a file written under it:
 * fsync, rename, fsync of the folder. Only a file is replaced. On failure the temporary is removed.
 */
char *chex_fs_temp_name(const char *path);
enum chex_status chex_fs_commit(const char *temp, const char *path, struct chex_error *err);

/* The number behind `key` at the start of a line of a small text file, as of /proc and the cgroups;
 * key "": alone in a line. False: no such file, line or number ("max" is none). */
bool chex_fs_number(const char *path, const char *key, uint64_t *out);

/* Removes a tree; a missing one is no error. */
enum chex_status chex_fs_remove_tree(const char *path, struct chex_error *err);

/* Bytes a user may still write on the file system that holds `path` (or its nearest parent). */
enum chex_status chex_fs_free_bytes(const char *path, uint64_t *bytes_out, struct chex_error *err);

/* Makes room for `count` more open files, for `whose` (a path): the soft limit is raised where it
 * is too low, as far as the hard one allows. CHEX_E_ENV where that is too low as well. */
enum chex_status chex_fs_allow_open_files(size_t count, const char *whose, struct chex_error *err);

/* Writes out what stdout still holds: a command's last act. CHEX_E_RESOURCE where that, or an
 * earlier write, failed, so that a full disk or a closed pipe is no success. */
enum chex_status chex_fs_flush_stdout(struct chex_error *err);

#endif

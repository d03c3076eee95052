/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that appear complete or not at all, and path helpers.
 */
#ifndef CHEX_BASE_FS_H
#define CHEX_BASE_FS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* mkdir -p. */
enum chex_status chex_fs_mkdirs(const char *path, struct chex_error *err);

/* Whether mkdir -p and files in the folder would succeed. Changes nothing. CHEX_E_ENV: the error
 * text of chex_fs_mkdirs, or the folder that is not writable. */
enum chex_status chex_fs_check_mkdirs(const char *path, struct chex_error *err);

/* The same for the folder of a file. CHEX_E_ENV also if the path is a folder, a device or a pipe.
 */
enum chex_status chex_fs_check_create(const char *path, struct chex_error *err);

/* mkdir -p for the folder of a file. */
enum chex_status chex_fs_make_folder_of(const char *path, struct chex_error *err);

bool chex_fs_exists(const char *path);
bool chex_fs_is_dir(const char *path);

/* Whether both are there and are the same file or folder, also through links. */
bool chex_fs_same(const char *a, const char *b);

/* The time of the last change of the content. */
struct stat;
int64_t chex_fs_modified_ns(const struct stat *info);

/* "dir/name" in a fresh string; the caller frees it. NULL only when out of memory. */
char *chex_fs_join(const char *dir, const char *name);

/* The same on the stack: `chex_path(dir, name).text` lives to the end of the full expression. A
 * path that is cut stays longer than PATH_MAX, so the kernel refuses it (ENAMETOOLONG). */
struct chex_path {
    char text[PATH_MAX + 8];
};
struct chex_path chex_path(const char *dir, const char *name);

/* The part of a path after its last '/'. */
const char *chex_fs_name(const char *path);

/* printf into a fresh string; the caller frees it. NULL only when out of memory. */
char *chex_fs_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Opens a file for reading. Only regular files are opened, also through links, so that no open
 * waits for the writer of a FIFO or for a device. Every file that a user names is opened by this
 * function; /proc and /sys are not.
 * - fd_out: the caller closes it.
 * - size_out: bytes of the file; may be NULL.
 * - CHEX_E_DATA: no such file, or "PATH: not a regular file (a FIFO; expected a file)". */
enum chex_status chex_fs_open(const char *path, int *fd_out, uint64_t *size_out,
                              struct chex_error *err);

/* For CHEX_AUTO: close a file, unless fd is -1; and what a DIR pointer refers to, unless it is
 * NULL. */
void chex_fs_close_at(const int *fd);
void chex_fs_closedir_at(void *dir);

/* pread and pwrite of `size` bytes. They go on after a signal and after a part. Return the bytes
 * that were transferred. If these are fewer than `size`, errno is 0 at the end of the file and the
 * reason otherwise. */
size_t chex_fs_pread(int fd, void *data, size_t size, uint64_t at);
size_t chex_fs_pwrite(int fd, const void *data, size_t size, uint64_t at);

/* Reads `size` bytes at byte `at` of a file.
 * - path: for texts.
 * - CHEX_E_DATA: the file ends before; CHEX_E_ENV: it cannot be read. */
enum chex_status chex_fs_read_all(int fd, const char *path, void *data, size_t size, uint64_t at,
                                  struct chex_error *err);

/* Reads a whole file into fresh memory and adds a NUL; the caller frees it. CHEX_E_DATA: the file
 * is larger than `limit` bytes. size_out may be NULL. */
enum chex_status chex_fs_read(const char *path, uint64_t limit, char **data_out, size_t *size_out,
                              struct chex_error *err);

/* Writes a file: temporary file, fsync, rename to path, fsync of the folder. Leaves nothing on
 * failure. */
enum chex_status chex_fs_write(const char *path, const void *data, size_t size,
                               struct chex_error *err);

/* Temporary files have names of their target and random letters: PATH.tmp.k3x09qwz. All are made by
 * these functions, so another user can neither guess a name nor place a link under it. */

/* Creates an empty temporary file for `path` in the same folder: for reading and writing, new
 * (O_EXCL), never through a link.
 * - temp_out: its name in a fresh string; the caller frees it after chex_fs_commit or unlink.
 * - fd_out: the caller closes it. A library that opens files by name may open temp_out again.
 * - CHEX_E_ENV: cannot create. */
enum chex_status chex_fs_temp(const char *path, char **temp_out, int *fd_out,
                              struct chex_error *err);

/* The same as a stream for writing; the caller closes it. */
enum chex_status chex_fs_temp_stream(const char *path, char **temp_out, FILE **stream_out,
                                     struct chex_error *err);

/* Syncs the renames in a folder to disk. Errors are ignored: some file systems cannot sync a
 * folder, and the renames are done. */
void chex_fs_sync_folder(const char *dir);

/* Ends a temporary file: fsync, rename to `path`, fsync of the folder. Replaces regular files only.
 * Removes the temporary file on failure. */
enum chex_status chex_fs_commit(const char *temp, const char *path, struct chex_error *err);

/* Makes `path` a further name of `file` (a hard link, or a copy if the file system has no links),
 * by rename of a temporary name. */
enum chex_status chex_fs_alias(const char *file, const char *path, struct chex_error *err);

/* Whether a component of the path begins with a dot and is not "." or "..". */
bool chex_fs_is_hidden(const char *path);

/* Whether `name` is a temporary name. bare_out (may be NULL): bytes of the target's
 * name at its beginning. */
bool chex_fs_is_temp(const char *name, size_t *bare_out);

/* Removes temporary files of `path` that killed processes left. It cannot see whether a process
 * still writes one: call it only under a lock that every writer of the folder holds. */
void chex_fs_remove_temps(const char *path);

/* Reads the number after `key` at the start of a line of the small text file ROOT/FILE, as in /proc
 * and cgroups. key "": the number is alone in its line. False: no such file, line or number ("max"
 * is no number). */
bool chex_fs_number(const char *root, const char *file, const char *key, uint64_t *out);

/* Reads the rest of the first line that begins with `key` in ROOT/FILE, without blanks and colons
 * before it. key "": the first line. False, and "": no such file or line. */
bool chex_fs_line(const char *root, const char *file, const char *key, char *out, size_t size);

/* Lists the names in ROOT/DIR that do not begin with a dot, in order of the numbers in them.
 * Returns how many there are, `max` at most. */
enum { CHEX_FS_NAME = 48 };
struct chex_fs_name {
    char text[CHEX_FS_NAME];
};
int chex_fs_names(const char *root, const char *dir, struct chex_fs_name *names_out, int max);

/* Removes a tree; a missing one is no error. */
enum chex_status chex_fs_remove_tree(const char *path, struct chex_error *err);

/* The nearest part of `path` that exists, in a fresh string; the caller frees it. NULL only when
 * out of memory. */
char *chex_fs_existing(const char *path);

/* Whether the nearest folder of `path` that exists is on a file system of this node alone. */
bool chex_fs_is_local(const char *path);

/* Bytes that a user can still write on the file system of `path`, or of its nearest existing
 * parent. */
enum chex_status chex_fs_free_bytes(const char *path, uint64_t *bytes_out, struct chex_error *err);

/* Makes sure that `count` more files can be opened; `subject` (a path) is named in the error.
 * Raises the soft limit up to the hard limit if needed. CHEX_E_ENV: the hard limit is too low. */
enum chex_status chex_fs_allow_open_files(size_t count, const char *subject,
                                          struct chex_error *err);

/* Flushes stdout: the last action of a command. CHEX_E_RESOURCE: this or an earlier write failed
 * (full disk, closed pipe). */
enum chex_status chex_fs_flush_stdout(struct chex_error *err);

#endif

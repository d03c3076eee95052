/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a test program: recorded ones in tests/data, and a folder for its own.
 */
#ifndef CHEX_TESTS_UNIT_DIR_H
#define CHEX_TESTS_UNIT_DIR_H

#include <stdarg.h>
#include <unistd.h>

#include "base/fs.h"
#include "tap.h"

static char dir[256];

static inline void dir_make(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/chex-unit-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "cannot make %s", dir);
}

static inline void dir_remove(void) { chex_fs_remove_tree(dir, NULL); }

/* "PARENT/..."; the text stays until the program ends. */
__attribute__((format(printf, 2, 0))) static inline const char *
path_in(const char *parent, const char *format, va_list args) {
    enum { PATHS = 512 };
    static char *paths[PATHS];
    char text[512];
    int i = 0;
    const int n = snprintf(text, sizeof text, "%s/", parent);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    while (i < PATHS && paths[i] && strcmp(paths[i], text) != 0)
        i++;
    BAIL_UNLESS(i < PATHS && (paths[i] || (paths[i] = strdup(text))), "too many paths");
    return paths[i];
}

/* The path of a recorded file. */
__attribute__((format(printf, 1, 2))) static inline const char *data_path(const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *path = path_in(TEST_DATA, format, args);
    va_end(args);
    return path;
}

/* The path of a file in the folder. */
__attribute__((format(printf, 1, 2))) static inline const char *dir_path(const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *path = path_in(dir, format, args);
    va_end(args);
    return path;
}

/* Writes a file in the folder and returns its path. Does not wait for the disk. */
static inline const char *dir_put(const char *name, const void *data, size_t bytes) {
    const char *path = dir_path("%s", name);
    FILE *f = fopen(path, "wb");
    BAIL_UNLESS(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0, "cannot write %s", path);
    return path;
}

static inline const char *dir_put_text(const char *name, const char *text) {
    return dir_put(name, text, strlen(text));
}

#endif

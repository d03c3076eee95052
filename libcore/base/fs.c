/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum chex_status chex_fs_mkdirs(const char *path, struct chex_error *err) {
    char *copy = strdup(path);
    if (!copy)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "folder %s", path);
    enum chex_status st = CHEX_OK;
    for (char *p = copy + 1; st == CHEX_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char c = *p;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && (errno != EEXIST || !chex_fs_is_dir(copy)))
            st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot make folder %s", copy);
        *p = c;
        if (c == '\0')
            break;
    }
    free(copy);
    return st;
}

enum chex_status chex_fs_check_mkdirs(const char *path, struct chex_error *err) {
    char *copy = strdup(path), *at = copy;
    if (!copy)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "folder %s", path);
    struct stat s = {0};
    size_t missing = 0; /* length of the shortest part of the path that is not there; 0: none */
    while (stat(at, &s) != 0 && (errno == ENOENT || errno == ENOTDIR) && strcmp(at, ".")) {
        missing = strlen(at);
        at = dirname(at);
    }
    enum chex_status st = CHEX_OK;
    if (!S_ISDIR(s.st_mode) && s.st_mode)
        st = chex_error_errno(err, CHEX_E_ENV, EEXIST, "cannot make folder %s", at);
    else if (access(at, W_OK | X_OK) != 0 && missing)
        st =
            chex_error_errno(err, CHEX_E_ENV, errno, "cannot make folder %.*s", (int)missing, path);
    else if (access(at, W_OK | X_OK) != 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write to folder %s", path);
    free(copy);
    return st;
}

/* Calls what takes a folder with that of `path`. */
static enum chex_status with_folder_of(const char *path,
                                       enum chex_status (*fn)(const char *, struct chex_error *),
                                       struct chex_error *err) {
    char *copy = strdup(path);
    if (!copy)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    enum chex_status st = fn(dirname(copy), err);
    free(copy);
    return st;
}

/* A rename puts a file in the place of anything but a folder: of /dev/null, too, for root. */
static enum chex_status refuse_odd(const char *path, struct chex_error *err) {
    struct stat s;
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_ENV, "cannot create %s: it is %s", path,
                          S_ISDIR(s.st_mode) ? "a folder" : "a device or a pipe, and not a file");
}

enum chex_status chex_fs_check_create(const char *path, struct chex_error *err) {
    CHEX_TRY(refuse_odd(path, err));
    return with_folder_of(path, chex_fs_check_mkdirs, err);
}

enum chex_status chex_fs_make_folder_of(const char *path, struct chex_error *err) {
    return with_folder_of(path, chex_fs_mkdirs, err);
}

bool chex_fs_exists(const char *path) { return access(path, F_OK) == 0; }

bool chex_fs_is_dir(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

char *chex_fs_format(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    return text;
}

char *chex_fs_join(const char *dir, const char *name) {
    size_t n = strlen(dir);
    return chex_fs_format("%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}

static enum chex_status read_all(int fd, const char *path, char *data, size_t size,
                                 struct chex_error *err) {
    for (size_t at = 0; at < size;) {
        ssize_t n = read(fd, data + at, size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", path);
        if (n == 0)
            return chex_error_set(err, CHEX_E_DATA, "%s: shrank while it was read", path);
        at += (size_t)n;
    }
    return CHEX_OK;
}

enum chex_status chex_fs_read(const char *path, uint64_t limit, char **data_out, size_t *size_out,
                              struct chex_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_DATA, errno, "cannot open %s", path);
    struct stat s;
    char *data = NULL;
    enum chex_status st = CHEX_OK;
    if (fstat(fd, &s) != 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot stat %s", path);
    else if (!S_ISREG(s.st_mode))
        st = chex_error_set(err, CHEX_E_DATA, "%s: not a regular file", path);
    else if ((uint64_t)s.st_size > limit)
        st = chex_error_set(err, CHEX_E_DATA, "%s: %lld bytes, more than the limit of %llu", path,
                            (long long)s.st_size, (unsigned long long)limit);
    else if (!(data = malloc((size_t)s.st_size + 1)))
        st = chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    else
        st = read_all(fd, path, data, (size_t)s.st_size, err);
    close(fd);
    if (st != CHEX_OK) {
        free(data);
        return st;
    }
    data[s.st_size] = '\0';
    *data_out = data;
    if (size_out)
        *size_out = (size_t)s.st_size;
    return CHEX_OK;
}

char *chex_fs_temp_name(const char *path) {
    return chex_fs_format("%s.tmp.%ld", path, (long)getpid());
}

static int fsync_path(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd), saved = errno;
    close(fd);
    errno = saved;
    /* Some file systems refuse fsync on a folder; the rename itself has been done. */
    return rc != 0 && (flags & O_DIRECTORY) && (errno == EINVAL || errno == EROFS) ? 0 : rc;
}

enum chex_status chex_fs_commit(const char *temp, const char *path, struct chex_error *err) {
    enum chex_status st = refuse_odd(path, err);
    if (st != CHEX_OK) {
        unlink(temp);
        return st;
    }
    char *copy = strdup(path);
    if (!copy || fsync_path(temp, O_RDONLY) != 0 || rename(temp, path) != 0 ||
        fsync_path(dirname(copy), O_RDONLY | O_DIRECTORY) != 0) {
        int saved = errno;
        unlink(temp);
        free(copy);
        return chex_error_errno(err, CHEX_E_ENV, saved, "cannot finish %s", path);
    }
    free(copy);
    return CHEX_OK;
}

static enum chex_status write_all(const char *temp, const void *data, size_t size,
                                  struct chex_error *err) {
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", temp);
    int failed = 0;
    for (size_t at = 0; at < size && !failed;) {
        ssize_t n = write(fd, (const char *)data + at, size - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EINTR)
            failed = errno;
    }
    if (close(fd) != 0 && !failed)
        failed = errno;
    if (failed) {
        unlink(temp);
        return chex_error_errno(err, CHEX_E_ENV, failed, "cannot write %s", temp);
    }
    return CHEX_OK;
}

enum chex_status chex_fs_write(const char *path, const void *data, size_t size,
                               struct chex_error *err) {
    char *temp = chex_fs_temp_name(path);
    if (!temp)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    enum chex_status st = write_all(temp, data, size, err);
    if (st == CHEX_OK)
        st = chex_fs_commit(temp, path, err);
    free(temp);
    return st;
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at) {
    (void)s, (void)kind, (void)at;
    return remove(path);
}

enum chex_status chex_fs_remove_tree(const char *path, struct chex_error *err) {
    if (nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", path);
    return CHEX_OK;
}

enum chex_status chex_fs_free_bytes(const char *path, uint64_t *bytes_out, struct chex_error *err) {
    char *copy = strdup(path);
    if (!copy)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "%s", path);
    char *at = copy;
    struct statvfs s;
    int rc;
    while ((rc = statvfs(at, &s)) != 0 && errno == ENOENT && strcmp(at, "/") && strcmp(at, "."))
        at = dirname(at);
    int saved = errno;
    free(copy);
    if (rc != 0)
        return chex_error_errno(err, CHEX_E_ENV, saved, "cannot ask the free space at %s", path);
    *bytes_out = (uint64_t)s.f_bavail * s.f_frsize;
    return CHEX_OK;
}

/* 0 where nothing says so. */
static size_t open_files(void) {
    size_t count = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));)
        count += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return count;
}

enum chex_status chex_fs_allow_open_files(size_t count, const char *whose, struct chex_error *err) {
    enum { LEAST = 4, SPARE = 64 }; /* to open one of them; for all else that opens files */
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return CHEX_OK;
    const rlim_t need = open_files() + count;
    if (l.rlim_cur < need + SPARE && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max < need + SPARE ? l.rlim_max : need + SPARE;
        setrlimit(RLIMIT_NOFILE, &l);
        getrlimit(RLIMIT_NOFILE, &l);
    }
    if (l.rlim_cur >= need + LEAST)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_ENV,
                          "%s: %zu files are open at a time, but a process may open %llu files: "
                          "raise the hard limit (ulimit -Hn) to %llu",
                          whose, count, (unsigned long long)l.rlim_cur,
                          (unsigned long long)(need + SPARE));
}

enum chex_status chex_fs_flush_stdout(struct chex_error *err) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_RESOURCE, "cannot write to standard output%s%s",
                          errno ? ": " : "", errno ? strerror(errno) : "");
}

bool chex_fs_number(const char *path, const char *key, uint64_t *out) {
    char line[4352];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *end;
        *out = strtoull(line + strlen(key), &end, 10);
        found = end != line + strlen(key);
    }
    fclose(f);
    return found;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * File operations that are safe when a process is killed or a file is shared.
 *
 * New content goes to a temporary file in the target's folder: write, fsync, rename, fsync of the
 * folder. A reader therefore sees the old file or the new one, never a part. Files are opened with
 * O_NONBLOCK and checked by fstat, so that a FIFO or a device cannot block the command.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum chex_status chex_fs_mkdirs(const char *path, struct chex_error *err) {
    char *copy = strdup(path);
    if (!copy)
        return chex_error_memory(err, "folder %s", path);
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
        return chex_error_memory(err, "folder %s", path);
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

/* Calls fn with the folder of `path`. */
static enum chex_status with_folder_of(const char *path,
                                       enum chex_status (*fn)(const char *, struct chex_error *),
                                       struct chex_error *err) {
    char *copy = strdup(path);
    if (!copy)
        return chex_error_memory(err, "%s", path);
    enum chex_status st = fn(dirname(copy), err);
    free(copy);
    return st;
}

/* A rename replaces anything except a folder: for root even /dev/null. */
static enum chex_status refuse_special(const char *path, struct chex_error *err) {
    struct stat s;
    if (stat(path, &s) != 0 || S_ISREG(s.st_mode))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_ENV, "cannot create %s: it is %s", path,
                          S_ISDIR(s.st_mode) ? "a folder" : "a device or a pipe, and not a file");
}

enum chex_status chex_fs_check_create(const char *path, struct chex_error *err) {
    CHEX_TRY(refuse_special(path, err));
    return with_folder_of(path, chex_fs_check_mkdirs, err);
}

enum chex_status chex_fs_make_folder_of(const char *path, struct chex_error *err) {
    return with_folder_of(path, chex_fs_mkdirs, err);
}

bool chex_fs_exists(const char *path) { return access(path, F_OK) == 0; }

bool chex_fs_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int64_t chex_fs_modified_ns(const struct stat *info) {
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

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

struct chex_path chex_path(const char *dir, const char *name) {
    const size_t n = strlen(dir);
    struct chex_path p;
    snprintf(p.text, sizeof p.text, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
    return p;
}

const char *chex_fs_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

void chex_fs_close_at(const int *fd) {
    if (*fd >= 0)
        close(*fd);
}

void chex_fs_closedir_at(void *dir) {
    DIR *d = *(DIR **)dir;
    if (d)
        closedir(d);
}

size_t chex_fs_pread(int fd, void *data, size_t size, uint64_t at) {
    size_t done = 0;
    errno = 0;
    for (ssize_t n; done < size; done += (size_t)n) {
        do
            n = pread(fd, (char *)data + done, size - done, (off_t)(at + done));
        while (n < 0 && errno == EINTR);
        if (n == 0)
            errno = 0;
        if (n <= 0)
            break;
    }
    return done;
}

size_t chex_fs_pwrite(int fd, const void *data, size_t size, uint64_t at) {
    size_t done = 0;
    for (ssize_t n; done < size; done += (size_t)n) {
        do
            n = pwrite(fd, (const char *)data + done, size - done, (off_t)(at + done));
        while (n < 0 && errno == EINTR);
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            break;
    }
    return done;
}

enum chex_status chex_fs_read_all(int fd, const char *path, void *data, size_t size, uint64_t at,
                                  struct chex_error *err) {
    if (chex_fs_pread(fd, data, size, at) == size)
        return CHEX_OK;
    return errno ? chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", path)
                 : chex_error_set(err, CHEX_E_DATA, "%s: shrank while it was read", path);
}

static const char *kind_of_file(mode_t mode) {
    switch (mode & S_IFMT) {
    case S_IFDIR: return "a folder";
    case S_IFIFO: return "a FIFO";
    case S_IFSOCK: return "a socket";
    case S_IFCHR:
    case S_IFBLK: return "a device";
    default: return "of an unknown kind";
    }
}

static enum chex_status refuse_irregular(const char *path, mode_t mode, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_DATA, "%s: not a regular file (%s; expected a file)", path,
                          kind_of_file(mode));
}

/* open(2) fails for a socket (ENXIO). With O_NONBLOCK it also fails for a file with a lease that a
 * file server must release first (EWOULDBLOCK): such a file is opened again without O_NONBLOCK. */
static enum chex_status open_failed(const char *path, int *fd_out, struct chex_error *err) {
    const int why = errno;
    struct stat s;
    if ((why == ENXIO || why == EWOULDBLOCK) && stat(path, &s) == 0) {
        if (!S_ISREG(s.st_mode))
            return refuse_irregular(path, s.st_mode, err);
        *fd_out = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        if (*fd_out >= 0)
            return CHEX_OK;
    }
    return chex_error_errno(err, CHEX_E_DATA, why, "cannot open %s", path);
}

enum chex_status chex_fs_open(const char *path, int *fd_out, uint64_t *size_out,
                              struct chex_error *err) {
    struct stat s;
    enum chex_status st = CHEX_OK;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        CHEX_TRY(open_failed(path, &fd, err));
    if (fstat(fd, &s) != 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot stat %s", path);
    else if (!S_ISREG(s.st_mode))
        st = refuse_irregular(path, s.st_mode, err);
    else if (fcntl(fd, F_SETFL, 0) != 0)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot open %s", path);
    if (st != CHEX_OK) {
        close(fd);
        return st;
    }
    *fd_out = fd;
    if (size_out)
        *size_out = (uint64_t)s.st_size;
    return CHEX_OK;
}

enum chex_status chex_fs_read(const char *path, uint64_t limit, char **data_out, size_t *size_out,
                              struct chex_error *err) {
    int fd = -1;
    uint64_t size = 0;
    char *data = NULL;
    CHEX_TRY(chex_fs_open(path, &fd, &size, err));
    enum chex_status st = CHEX_OK;
    if (size > limit)
        st = chex_error_set(err, CHEX_E_DATA, "%s: %llu bytes, more than the limit of %llu", path,
                            (unsigned long long)size, (unsigned long long)limit);
    else if (!(data = malloc((size_t)size + 1)))
        st = chex_error_memory(err, "%s", path);
    else
        st = chex_fs_read_all(fd, path, data, (size_t)size, 0, err);
    close(fd);
    if (st != CHEX_OK) {
        free(data);
        return st;
    }
    data[size] = '\0';
    *data_out = data;
    if (size_out)
        *size_out = (size_t)size;
    return CHEX_OK;
}

enum { TEMP_LETTERS = 8 };
static const char temp_mark[] = ".tmp.";
static const char temp_alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";

/* PATH.tmp. and random letters. NULL with errno set on failure. */
static char *temp_name(const char *path) {
    unsigned char random[TEMP_LETTERS];
    char letters[TEMP_LETTERS + 1] = "";
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return NULL;
    for (int i = 0; i < TEMP_LETTERS; i++)
        letters[i] = temp_alphabet[random[i] % (sizeof temp_alphabet - 1)];
    return chex_fs_format("%s%s%s", path, temp_mark, letters);
}

/* Calls make(arg, name) with temporary names until one is new. make returns 0 or an errno value. */
static enum chex_status make_temp(const char *path, int (*make)(void *arg, const char *name),
                                  void *arg, char **temp_out, struct chex_error *err) {
    enum { TRIES = 100 };
    int why = EEXIST;
    for (int i = 0; i < TRIES && why == EEXIST; i++) {
        char *temp = temp_name(path);
        why = temp ? make(arg, temp) : errno ? errno : ENOMEM;
        if (!why) {
            *temp_out = temp;
            return CHEX_OK;
        }
        free(temp);
    }
    return chex_error_errno(err, CHEX_E_ENV, why, "cannot create %s", path);
}

static int make_file(void *arg, const char *name) {
    int *fd_out = arg, flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    *fd_out = open(name, flags, 0666);
    return *fd_out < 0 ? errno : 0;
}

static int make_link(void *arg, const char *name) {
    const char *file = arg;
    return link(file, name) != 0 ? errno : 0;
}

enum chex_status chex_fs_temp(const char *path, char **temp_out, int *fd_out,
                              struct chex_error *err) {
    return make_temp(path, make_file, fd_out, temp_out, err);
}

enum chex_status chex_fs_temp_stream(const char *path, char **temp_out, FILE **stream_out,
                                     struct chex_error *err) {
    int fd = -1;
    char *temp = NULL;
    CHEX_TRY(chex_fs_temp(path, &temp, &fd, err));
    if (!(*stream_out = fdopen(fd, "w"))) {
        close(fd);
        unlink(temp);
        free(temp);
        return chex_error_memory(err, "%s", path);
    }
    *temp_out = temp;
    return CHEX_OK;
}

bool chex_fs_is_hidden(const char *path) {
    for (const char *p = path; p; p = strchr(p, '/')) {
        p += *p == '/';
        const size_t n = strcspn(p, "/");
        if (p[0] == '.' && n > 1 && !(n == 2 && p[1] == '.'))
            return true;
    }
    return false;
}

bool chex_fs_is_temp(const char *name, size_t *bare_out) {
    const char *mark = NULL;
    for (const char *p = name; (p = strstr(p, temp_mark)); p++)
        mark = p;
    if (!mark || mark == name)
        return false;
    const char *tail = mark + strlen(temp_mark);
    if (bare_out)
        *bare_out = (size_t)(mark - name);
    return strlen(tail) == TEMP_LETTERS && !tail[strspn(tail, temp_alphabet)];
}

void chex_fs_remove_temps(const char *path) {
    char *copy = strdup(path);
    const char *base = chex_fs_name(path);
    DIR *d = copy ? opendir(dirname(copy)) : NULL;
    size_t bare;
    for (struct dirent *e; d && (e = readdir(d));)
        if (chex_fs_is_temp(e->d_name, &bare) && bare == strlen(base) &&
            strncmp(e->d_name, base, bare) == 0)
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    free(copy);
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

void chex_fs_sync_folder(const char *dir) { (void)fsync_path(dir, O_RDONLY | O_DIRECTORY); }

enum chex_status chex_fs_commit(const char *temp, const char *path, struct chex_error *err) {
    enum chex_status st = refuse_special(path, err);
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

/* Closes the descriptor. */
static enum chex_status write_all(int fd, const char *temp, const void *data, size_t size,
                                  struct chex_error *err) {
    int failed = chex_fs_pwrite(fd, data, size, 0) == size ? 0 : errno;
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
    char *temp = NULL;
    int fd = -1;
    CHEX_TRY(chex_fs_temp(path, &temp, &fd, err));
    enum chex_status st = write_all(fd, temp, data, size, err);
    if (st == CHEX_OK)
        st = chex_fs_commit(temp, path, err);
    free(temp);
    return st;
}

static enum chex_status copy_file(const char *file, const char *path, struct chex_error *err) {
    char *data = NULL;
    size_t size = 0;
    CHEX_TRY(chex_fs_read(file, UINT64_MAX, &data, &size, err));
    enum chex_status st = chex_fs_write(path, data, size, err);
    free(data);
    return st;
}

enum chex_status chex_fs_alias(const char *file, const char *path, struct chex_error *err) {
    char *temp = NULL;
    if (make_temp(path, make_link, (void *)(uintptr_t)file, &temp, err) != CHEX_OK)
        return copy_file(file, path, err);
    enum chex_status st = chex_fs_commit(temp, path, err);
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

char *chex_fs_existing(const char *path) {
    char *at = chex_fs_format("%s", *path ? path : ".");
    struct stat s;
    while (at && stat(at, &s) != 0 && (errno == ENOENT || errno == ENOTDIR) && strcmp(at, ".")) {
        char *up = dirname(at);
        if (up != at)
            strcpy(at, up); /* "." or "/" */
    }
    return at;
}

bool chex_fs_is_local(const char *path) {
    static const uint32_t local[] = {TMPFS_MAGIC,          RAMFS_MAGIC,      EXT4_SUPER_MAGIC,
                                     XFS_SUPER_MAGIC,      F2FS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                     OVERLAYFS_SUPER_MAGIC};
    struct statfs fs;
    char *at = chex_fs_existing(path);
    const bool known = at && statfs(at, &fs) == 0;
    free(at);
    for (size_t i = 0; known && i < sizeof local / sizeof local[0]; i++)
        if ((uint32_t)fs.f_type == local[i])
            return true;
    return false;
}

enum chex_status chex_fs_free_bytes(const char *path, uint64_t *bytes_out, struct chex_error *err) {
    struct statvfs s;
    char *at = chex_fs_existing(path);
    if (!at)
        return chex_error_memory(err, "%s", path);
    const int why = statvfs(at, &s) == 0 ? 0 : errno;
    free(at);
    if (why)
        return chex_error_errno(err, CHEX_E_ENV, why, "cannot read the free space of %s", path);
    *bytes_out = (uint64_t)s.f_bavail * s.f_frsize;
    return CHEX_OK;
}

/* Number of open files; 0 if unknown. */
static size_t open_files(void) {
    size_t count = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));)
        count += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return count;
}

enum chex_status chex_fs_allow_open_files(size_t count, const char *subject,
                                          struct chex_error *err) {
    enum {
        MINIMUM = 4,
        SPARE = 64
    }; /* files needed to open one of them; reserve for everything else */
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return CHEX_OK;
    const rlim_t need = open_files() + count;
    if (l.rlim_cur < need + SPARE && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max < need + SPARE ? l.rlim_max : need + SPARE;
        setrlimit(RLIMIT_NOFILE, &l);
        getrlimit(RLIMIT_NOFILE, &l);
    }
    if (l.rlim_cur >= need + MINIMUM)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_ENV,
                          "%s: %zu files are open at a time, but a process may open %llu files: "
                          "raise the hard limit (ulimit -Hn) to %llu",
                          subject, count, (unsigned long long)l.rlim_cur,
                          (unsigned long long)(need + SPARE));
}

enum chex_status chex_fs_flush_stdout(struct chex_error *err) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_RESOURCE, "cannot write to standard output%s%s",
                          errno ? ": " : "", errno ? strerror(errno) : "");
}

bool chex_fs_line(const char *root, const char *file, const char *key, char *out, size_t size) {
    char path[16384], line[4352];
    bool found = false;
    out[0] = '\0';
    snprintf(path, sizeof path, "%s/%s", root, file);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        found = strncmp(line, key, strlen(key)) == 0;
        line[strcspn(line, "\n")] = '\0';
        if (found)
            snprintf(out, size, "%s", line + strlen(key) + strspn(line + strlen(key), " \t:"));
    }
    if (f)
        fclose(f);
    return found;
}

bool chex_fs_number(const char *root, const char *file, const char *key, uint64_t *out) {
    char text[64], *end;
    if (!chex_fs_line(root, file, key, text, sizeof text))
        return false;
    *out = strtoull(text, &end, 10);
    return end != text;
}

static int is_shown(const struct dirent *entry) { return entry->d_name[0] != '.'; }

int chex_fs_names(const char *root, const char *dir, struct chex_fs_name *names_out, int max) {
    char path[16384];
    struct dirent **entries = NULL;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", root, dir);
    const int all = scandir(path, &entries, is_shown, versionsort);
    for (int i = 0; i < all; i++) {
        if (count < max && strlen(entries[i]->d_name) < CHEX_FS_NAME)
            snprintf(names_out[count++].text, CHEX_FS_NAME, "%s", entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return count;
}

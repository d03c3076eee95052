/* SPDX-License-Identifier: Apache-2.0
 *
 * Write and read rates of a file system.
 *
 * Writing: small synchronous writes, then several streams with an fsync, to a file without a name.
 * Reading: threads take the next 4 MiB block of the file from a shared counter, with O_DIRECT or,
 * if that is not supported, after dropping the cached pages.
 */
#include "check/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "check/outlier.h"

/* The status of an errno: resource, node or environment. */
static enum chex_status status_of(int number) {
    switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return CHEX_E_RESOURCE;
    case EIO:
    case ESTALE:
    case ENXIO: return CHEX_E_NODE;
    default: return CHEX_E_ENV;
    }
}

/* ---- writing ---- */

enum { PIECE = 1 << 20, SMALL = 4096, SMALL_WRITES = 16, STREAMS = 3 };
static const double small_s = 1; /* limit for all small writes together */

int chex_storage_open_nameless(const char *dir) {
    char path[4096];
    int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
        return fd;
    if (snprintf(path, sizeof path, "%s/.chex-env-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* 0 or an errno. */
static int write_all(int fd, const char *data, size_t bytes, uint64_t at) {
    return chex_fs_pwrite(fd, data, bytes, at) == bytes ? 0 : errno;
}

static int small_writes(int fd, const char *data, struct chex_write_rate *out) {
    double seconds[SMALL_WRITES];
    const double began = chex_clock_s();
    int n = 0;
    do {
        const double start = chex_clock_s();
        int rc = write_all(fd, data + n * 64, SMALL, 0);
        if (rc == 0 && fdatasync(fd) != 0)
            rc = errno;
        if (rc != 0)
            return rc;
        seconds[n++] = chex_clock_s() - start;
    } while (n < SMALL_WRITES && chex_clock_s() - began < small_s);
    out->sync_s = chex_median(seconds, n);
    out->sync_spread = chex_spread(seconds, n);
    return 0;
}

static int stream(int fd, const char *data, uint64_t bytes, double limit_s, double *rate_out) {
    const double start = chex_clock_s();
    uint64_t done = 0;
    for (; done < bytes && (done == 0 || chex_clock_s() - start < limit_s); done += PIECE) {
        int rc = write_all(fd, data, PIECE, done);
        if (rc != 0)
            return rc;
    }
    if (fsync(fd) != 0)
        return errno;
    *rate_out = (double)done / (chex_clock_s() - start);
    return 0;
}

/* Writes several streams to the same file, one after another, each for its share of the time. */
static int streams(int fd, const char *data, uint64_t bytes, double seconds,
                   struct chex_write_rate *out) {
    double rates[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        int rc = ftruncate(fd, 0) == 0 ? 0 : errno;
        if (rc == 0)
            rc = stream(fd, data, bytes, seconds / STREAMS, &rates[i]);
        if (rc != 0)
            return rc;
    }
    out->bytes_per_s = chex_median(rates, STREAMS);
    out->bytes_spread = chex_spread(rates, STREAMS);
    return 0;
}

enum chex_status chex_storage_write(const char *dir, uint64_t bytes, double seconds,
                                    struct chex_write_rate *out, struct chex_error *err) {
    struct chex_write_rate r = {0};
    uint32_t *data = chex_alloc_aligned(PIECE, 1);
    if (!data)
        return chex_error_memory(err, NULL);
    for (size_t i = 0; i < PIECE / sizeof *data; i++)
        data[i] = chex_rng(1, CHEX_RNG_TEST, i, 0).v[0];
    int rc = 0, fd = chex_storage_open_nameless(dir);
    if (fd < 0)
        rc = errno;
    if (rc == 0)
        rc = small_writes(fd, (const char *)data, &r);
    if (rc == 0)
        rc = streams(fd, (const char *)data, bytes, seconds, &r);
    if (fd >= 0 && close(fd) != 0 && rc == 0)
        rc = errno;
    free(data);
    if (rc != 0)
        return chex_error_errno(err, status_of(rc), rc, "%s: cannot write", dir);
    *out = r;
    return CHEX_OK;
}

/* ---- reading ---- */

enum { READERS = 4, BLOCK = 4 << 20 };

struct reading {
    int fd;
    double until_s;
    atomic_ullong next; /* number of the next block */
    atomic_ullong bytes;
    atomic_int error; /* the first errno */
};

static void *read_blocks(void *arg) {
    struct reading *r = arg;
    char *data = chex_alloc_aligned(BLOCK, 1);
    int zero = 0;
    if (!data)
        atomic_compare_exchange_strong(&r->error, &zero, ENOMEM);
    while (data && atomic_load(&r->error) == 0 && chex_clock_s() < r->until_s) {
        const off_t at = (off_t)(atomic_fetch_add(&r->next, 1) * BLOCK);
        const ssize_t n = pread(r->fd, data, BLOCK, at);
        if (n < 0 && errno != EINTR)
            atomic_compare_exchange_strong(&r->error, &zero, errno);
        if (n > 0)
            atomic_fetch_add(&r->bytes, (unsigned long long)n);
        if (n < BLOCK)
            break;
    }
    free(data);
    return NULL;
}

/* flags: for open files, 0 or O_DIRECT. Returns 0 or an errno. */
static int read_file(int fd, int flags, double seconds, struct chex_read_rate *out) {
    if (fcntl(fd, F_SETFL, flags) != 0)
        return errno;
    pthread_t threads[READERS];
    const double start = chex_clock_s();
    struct reading r = {.fd = fd, .until_s = start + seconds};
    int started = 0, rc = 0;
    for (; started < READERS && rc == 0; started += rc == 0)
        rc = pthread_create(&threads[started], NULL, read_blocks, &r);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    rc = started ? atomic_load(&r.error) : rc;
    out->bytes = atomic_load(&r.bytes);
    out->bytes_per_s = (double)out->bytes / (chex_clock_s() - start);
    return rc;
}

void chex_storage_forget(const char *path) {
    int fd = -1;
    if (chex_fs_open(path, &fd, NULL, NULL) != CHEX_OK)
        return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

enum chex_status chex_storage_read(const char *path, double seconds, struct chex_read_rate *out,
                                   struct chex_error *err) {
    struct chex_read_rate r = {0};
    int fd = -1;
    errno = 0;
    if (chex_fs_open(path, &fd, NULL, err) != CHEX_OK)
        return chex_error_prefix(err, status_of(errno), "cannot read");
    int rc = read_file(fd, O_DIRECT, seconds, &r);
    if (rc == EINVAL || rc == EOPNOTSUPP) {
        r = (struct chex_read_rate){.cached = true};
        chex_storage_forget(path);
        rc = read_file(fd, 0, seconds, &r);
    }
    close(fd);
    if (rc != 0)
        return chex_error_errno(err, status_of(rc), rc, "%s: cannot read", path);
    *out = r;
    return CHEX_OK;
}

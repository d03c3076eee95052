/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of the ranks of one node by shared memory, without a library.
 *
 * Segment. Rank 0 makes it by memfd_create: it has no name, so a killed rank leaves nothing behind,
 * and /dev/shm does not limit it. The others open /proc/PID/fd/N of rank 0. Data pass through it in
 * pieces, so its size depends on the number of ranks only.
 *
 * Collective operations. Each rank has a counter and two stages, used in turn. It writes its piece
 * into a stage, counts, waits until all ranks have counted, and reads the stages of the others.
 * A stage is written again two pieces later. By then all ranks have counted for the piece between,
 * so they have read the first one.
 *
 * Sum. The additions are those of launch/circulant.c, in the same order: the bits are those of MPI.
 * A stage has a share for each block of the vector. The rank at place b adds the shares b of all
 * stages, in place. No other rank touches them until all have counted again.
 *
 * Lost ranks. Each rank holds a lock on one byte of the segment's file. The kernel releases it when
 * the process ends, however it ends. A rank that waits looks at the locks once a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "launch/circulant.h"
#include "launch/coll.h"

enum {
    PAGE = 4096,
    TOTAL_BYTES = 16 << 20, /* of all stages of one turn, and of all boxes, with many ranks */
    STAGE_BYTES = 1 << 20,  /* at most */
    SHARE_BYTES = 256,      /* at least */
    BOX_BYTES = 64 << 10,   /* at most */
    SPIN_COUNT = 100,       /* yields before a rank sleeps */
};

struct counter {
    alignas(64) atomic_uint value;
    atomic_uint sleepers; /* ranks that wait for it */
};

struct box {                   /* for messages of an ordered pair of ranks */
    struct counter sent, read; /* pieces */
    size_t bytes;
    int tag;
};

struct shm {
    int rank, size, fd;
    bool broken;
    char *base; /* for each rank its counter, boxes, two stages */
    size_t bytes, rank_bytes, box_bytes, stage_bytes;
    unsigned pieces;
};

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static struct counter *arrivals(const struct shm *s, int rank) {
    return (void *)(s->base + (size_t)rank * s->rank_bytes);
}

static struct box *box(const struct shm *s, int from, int to) {
    return (void *)((char *)(arrivals(s, from) + 1) + (size_t)to * s->box_bytes);
}

/* The stage of the present piece. */
static char *stage(const struct shm *s, int rank) {
    return s->base + (size_t)(rank + 1) * s->rank_bytes - (2 - s->pieces % 2) * s->stage_bytes;
}

/* ---- waiting ---- */

/* The rank that has ended, or -1. */
static int find_ended(const struct shm *s) {
    for (int r = 0; r < s->size; r++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = r, .l_len = 1};
        if (r != s->rank && fcntl(s->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
            return r;
    }
    return -1;
}

static void count(struct counter *c) {
    atomic_fetch_add(&c->value, 1);
    if (atomic_load(&c->sleepers))
        (void)syscall(SYS_futex, &c->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the counter is at `target`. A rank may end after it has counted: after a loss the
 * counter is read once more. */
static enum chex_status reach(struct shm *s, struct counter *c, unsigned target,
                              struct chex_error *err) {
    const struct timespec second = {.tv_sec = 1};
    int ended = -1;
    for (int tries = 0;; tries++) {
        const unsigned now = atomic_load(&c->value);
        if ((int)(now - target) >= 0)
            return CHEX_OK;
        if (ended >= 0) {
            s->broken = true;
            return chex_error_set(err, CHEX_E_LOST, "rank %d of this node has ended", ended);
        }
        if (tries < SPIN_COUNT) {
            sched_yield();
            continue;
        }
        atomic_fetch_add(&c->sleepers, 1);
        if (syscall(SYS_futex, &c->value, FUTEX_WAIT, now, &second, NULL, 0) != 0 &&
            errno == ETIMEDOUT)
            ended = find_ended(s);
        atomic_fetch_sub(&c->sleepers, 1);
    }
}

/* Counts, and waits until all ranks have. */
static enum chex_status barrier(void *self, struct chex_error *err) {
    struct shm *s = self;
    count(arrivals(s, s->rank));
    const unsigned target = atomic_load(&arrivals(s, s->rank)->value);
    for (int r = 0; r < s->size; r++)
        CHEX_TRY(reach(s, arrivals(s, r), target, err));
    return CHEX_OK;
}

/* ---- collective operations ---- */

static enum chex_status broadcast(void *self, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    struct shm *s = self;
    for (size_t done = 0; done < bytes; done += s->stage_bytes, s->pieces++) {
        char *here = (char *)data + done;
        const size_t n = smaller(bytes - done, s->stage_bytes);
        if (s->rank == root)
            memcpy(stage(s, root), here, n);
        CHEX_TRY(barrier(s, err));
        if (s->rank != root)
            memcpy(here, stage(s, root), n);
    }
    return CHEX_OK;
}

static enum chex_status allgather(void *self, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err) {
    struct shm *s = self;
    for (size_t done = 0; done < bytes; done += s->stage_bytes, s->pieces++) {
        const size_t n = smaller(bytes - done, s->stage_bytes);
        memcpy(stage(s, s->rank), (const char *)mine + done, n);
        CHEX_TRY(barrier(s, err));
        for (int r = 0; r < s->size; r++)
            memcpy((char *)all_out + (size_t)r * bytes + done, stage(s, r), n);
    }
    return CHEX_OK;
}

/* A piece of a sum: elements [from, from + room) of each block. */
struct piece {
    float *data;
    size_t count, from, room;
};

static float *share(const struct shm *s, const struct piece *p, int place, int b) {
    const int rank = chex_circulant_place(s->size, (place + s->size) % s->size);
    return (float *)(void *)stage(s, rank) + (size_t)b * p->room;
}

/* The elements of block b in this piece. */
static float *part(const struct shm *s, const struct piece *p, int b, size_t *bytes_out) {
    const size_t first = chex_circulant_block(p->count, s->size, b) + p->from;
    const size_t end = chex_circulant_block(p->count, s->size, b + 1);
    *bytes_out = first < end ? smaller(end - first, p->room) * sizeof(float) : 0;
    return p->data + first;
}

static void add(float *restrict to, const float *restrict from, size_t n) {
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* Share `place` of this rank stays in its vector until it is the sum. */
static enum chex_status sum_piece(struct shm *s, const struct piece *p, struct chex_error *err) {
    const int place = chex_circulant_place(s->size, s->rank);
    size_t n;
    for (int b = 0; b < s->size; b++) {
        const float *from = part(s, p, b, &n);
        if (b != place)
            memcpy(share(s, p, place, b), from, n);
    }
    CHEX_TRY(barrier(s, err));
    float *own = part(s, p, place, &n);
    for (int wide = s->size, half; wide > 1; wide = half) {
        half = (wide + 1) / 2;
        for (int i = half; i < wide; i++)
            add(i == half ? own : share(s, p, place - (i - half), place),
                share(s, p, place - i, place), n / sizeof *own);
    }
    memcpy(share(s, p, place, place), own, n);
    CHEX_TRY(barrier(s, err));
    for (int b = 0; b < s->size; b++) {
        float *to = part(s, p, b, &n);
        if (b != place)
            memcpy(to, share(s, p, b, b), n);
    }
    return CHEX_OK;
}

static enum chex_status sum_f32(void *self, float *data, size_t count, struct chex_error *err) {
    struct shm *s = self;
    const size_t size = (size_t)s->size;
    struct piece p = {data, count, 0, s->stage_bytes / sizeof *data / size / 16 * 16};
    for (; p.from * size < count; p.from += p.room, s->pieces++)
        CHEX_TRY(sum_piece(s, &p, err));
    return CHEX_OK;
}

/* ---- messages ---- */

static enum chex_status send(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err) {
    struct shm *s = self;
    struct box *b = box(s, s->rank, to);
    const size_t room = s->box_bytes - sizeof *b;
    for (size_t done = 0; done < bytes; done += room) {
        CHEX_TRY(reach(s, &b->read, atomic_load(&b->sent.value), err));
        b->bytes = smaller(bytes - done, room);
        b->tag = tag;
        memcpy(b + 1, (const char *)data + done, b->bytes);
        count(&b->sent);
    }
    return CHEX_OK;
}

static enum chex_status receive(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err) {
    struct shm *s = self;
    struct box *b = box(s, from, s->rank);
    const size_t room = s->box_bytes - sizeof *b;
    for (size_t done = 0; done < bytes; done += room) {
        const size_t n = smaller(bytes - done, room);
        CHEX_TRY(reach(s, &b->sent, atomic_load(&b->read.value) + 1, err));
        if (b->bytes != n || b->tag != tag)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "rank %d sent %zu bytes (tag %d), expected %zu (tag %d)", from,
                                  b->bytes, b->tag, n, tag);
        memcpy((char *)data + done, b + 1, n);
        count(&b->read);
    }
    return CHEX_OK;
}

/* ---- the segment ---- */

struct offer { /* of rank 0 */
    int64_t pid, fd;
    uint64_t device, inode; /* in another PID name space the numbers are those of another file */
};

static enum chex_status failed(const char *what, int errno_value, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_ENV, errno_value, "shared memory: %s", what);
}

static enum chex_status make_segment(struct shm *s, struct offer *out, struct chex_error *err) {
    struct stat st;
    s->fd = memfd_create("chexnet", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) != 0 || fstat(s->fd, &st) != 0)
        return failed("memfd_create", errno, err);
    *out = (struct offer){getpid(), s->fd, st.st_dev, st.st_ino};
    return CHEX_OK;
}

static enum chex_status open_segment(struct shm *s, const struct offer *of,
                                     struct chex_error *err) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)of->pid, (long long)of->fd);
    s->fd = open(path, O_RDWR | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st) != 0)
        return failed(path, errno, err);
    if (st.st_dev != of->device || st.st_ino != of->inode)
        return chex_error_set(err, CHEX_E_ENV, "shared memory: %s is not of rank 0", path);
    return CHEX_OK;
}

/* Each rank allocates its own part, on its part of the node's memory. A write to pages that do not
 * exist could end the process. */
static enum chex_status map_segment(struct shm *s, struct chex_error *err) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = s->rank, .l_len = 1};
    const size_t from = (size_t)s->rank * s->rank_bytes;
    int rc;
    while ((rc = posix_fallocate(s->fd, (off_t)from, (off_t)s->rank_bytes)) == EINTR)
        ;
    if (rc != 0)
        return failed("posix_fallocate", rc, err);
    if (fcntl(s->fd, F_OFD_SETLK, &lock) != 0)
        return failed("F_OFD_SETLK", errno, err);
    s->base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    return s->base == MAP_FAILED ? failed("mmap", errno, err) : CHEX_OK;
}

static enum chex_status join(struct shm *s, struct chex_group *g, struct chex_error *err) {
    struct offer of = {.fd = -1};
    enum chex_status st = s->rank == 0 ? make_segment(s, &of, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(g, 0, st, err));
    CHEX_TRY(chex_group_broadcast(g, &of, sizeof of, 0, err));
    if (s->rank != 0)
        st = open_segment(s, &of, err);
    if (st == CHEX_OK)
        st = map_segment(s, err);
    return chex_group_agree(g, st, err);
}

static void release(struct shm *s) {
    if (s->base && s->base != MAP_FAILED)
        munmap(s->base, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

static enum chex_status init(struct chex_launch *launch, struct chex_group *start, void **self_out,
                             struct chex_error *err) {
    const size_t size = (size_t)launch->size;
    struct shm *s = chex_alloc_zeroed(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, NULL);
    *s = (struct shm){.rank = launch->rank, .size = launch->size, .fd = -1};
    s->stage_bytes = smaller(STAGE_BYTES, TOTAL_BYTES / size / PAGE * PAGE);
    if (s->stage_bytes < size * SHARE_BYTES)
        s->stage_bytes = size * SHARE_BYTES;
    s->box_bytes = 2 * sizeof(struct box) + smaller(BOX_BYTES, TOTAL_BYTES / size / size / 64 * 64);
    s->rank_bytes = sizeof(struct counter) + size * s->box_bytes + 2 * s->stage_bytes;
    s->rank_bytes = (s->rank_bytes + PAGE - 1) / PAGE * PAGE;
    s->bytes = size * s->rank_bytes;
    const enum chex_status st = join(s, start, err);
    if (st == CHEX_OK)
        *self_out = s;
    else
        release(s);
    return st;
}

static void destroy(void *self) {
    struct shm *s = self;
    if (!s->broken)
        (void)barrier(s, NULL); /* else a rank that still waits would find this one ended */
    release(s);
}

const struct chex_coll_impl chex_coll_shm = {.name = "shm",
                                             .init = init,
                                             .destroy = destroy,
                                             .barrier = barrier,
                                             .broadcast = broadcast,
                                             .allgather = allgather,
                                             .sum_f32 = sum_f32,
                                             .sums_by_tree = chex_circulant_is_tree,
                                             .send = send,
                                             .receive = receive};

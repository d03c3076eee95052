/* SPDX-License-Identifier: Apache-2.0
 *
 * A task of srun without PMIx and PMI-2 (srun --mpi=none). Slurm's variables give rank, size and
 * node. The ranks exchange values through a private folder: `.chexnet-JOB.STEP.RESTART` in
 * CHEX_STEP_DIR, or in the working folder, which the tasks of a step share. (The output folder is
 * not known yet when the ranks start.) A folder of another user or with other rights than 0700 is
 * refused, and a link is not followed.
 *
 * Each rank has one file, named by its number, and appends records to it. A record has two
 * checksums, so a reader sees it whole or not at all. NFS promises that who opens a file sees what
 * was written before the writer closed it, and opening a folder ends a cached "no such file". So
 * each write opens and closes, and each look opens the folder and the files again.
 *
 * Joining, at the first exchange. Names and Slurm's variables cannot tell this program from an
 * earlier one: two commands of one task share all of them. So each process has a random number.
 * Each rank writes `hello` with its number, and again with the number that it read from rank 0.
 * Rank 0 accepts a rank that answered its number, and writes the roster of all numbers. A rank
 * accepts a roster that has its own number. So no file of a dead process passes, and from then on
 * only records of these numbers count.
 *
 * An exchange. Each rank writes its value. Rank 0 reads all values and writes them as one record
 * (`all.KEY`), which the others read: N - 1 opened files on rank 0, one on each other rank. A wait
 * looks again after an eighth of the time that it has lasted, 0.5 ms to 1 s.
 *
 * Death. A rank holds a lock on its file. The kernel or the file server releases it when the
 * process ends in any way. A lock counts only if it was seen: some mounts keep locks to their node.
 *
 * Abort. A link `abort.N` has the status as its text; N is the number of rank 0. Ranks that wait
 * see it at once. In the others a watch looks for it: every second for up to 64 ranks, less often
 * for more. It also finds out if the next rank has died. Each rank ends itself with the status, so
 * srun has it too. If ranks remain (stopped or hung), scancel ends the step with srun's status 137.
 * This is the only request to slurmctld.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/methods.h"
#include "launch/slurm_step.h"

enum {
    TRIES = 100, /* to make a file in a folder that the last program of the step removes */
    KEY_BYTES = 96,
    LEAST_US = 500, /* between two looks */
    MOST_US = 1000000,
    ALIVE_NS = 1000000000, /* a longer wait looks whether the missing ranks live */
    FINISH_MS = 600000,    /* the last exchange; another rank may still write its results */
    LEAVE_MS = 60000,      /* rank 0 leaves the folder last */
    JOIN_MS = 10000,       /* an abort before the first exchange */
    FIRST_MS = 3000,       /* head start of rank 0 in naming lost ranks: it ends the others */
    END_MS = 5000,         /* to obey an abort, beside the pause of the watch */
    WATCH_RANKS = 64,      /* for each second of this pause */
    WATCH_MOST_MS = 10000,
};

/* Before the data of a record. */
struct head {
    uint64_t sum;      /* checksum of the rest of this head */
    uint64_t data_sum; /* checksum of the data */
    uint64_t writer;   /* number of the process */
    uint64_t bytes;
    char key[KEY_BYTES];
};

struct hello {
    uint64_t number, to; /* of this process; of rank 0, or 0 */
    char host[CHEX_HOST_BYTES];
};

/* One step for each process. */
static struct {
    struct chex_path path;
    int rank, size;
    int lock;     /* descriptor that holds the lock of the own file */
    uint64_t end; /* of the own file */
    pthread_mutex_t writing;
    struct hello me, *peers; /* (size) number 0: not accepted yet */
    uint64_t *at;            /* (size) how far the files were read */
    atomic_bool *held;       /* (size) its lock was seen */
    bool *here;              /* (size) in the exchange that runs */
    atomic_bool joined, ending;
    char abort_name[32];
    pthread_t watcher;
    pthread_mutex_t watching;
    pthread_cond_t wake;
    bool watched, stop;
} step = {.writing = PTHREAD_MUTEX_INITIALIZER, .watching = PTHREAD_MUTEX_INITIALIZER};

/* ---- Slurm's variables ---- */

/* A batch script also has SLURM_PROCID=0 and the SLURM_NTASKS of the job, but is one process. Only
 * a task of srun has SLURM_STEP_NUM_TASKS. */
static bool present(void) {
    return getenv("SLURM_PROCID") && getenv("SLURM_STEP_ID") && getenv("SLURM_STEP_NUM_TASKS");
}

static void why(char *buf, size_t size) {
    snprintf(buf, size, "a task of srun; neither PMIX_NAMESPACE nor PMI_FD is of this step");
}

/* The tasks of a node of the step, from a list such as "2(x3),1"; 0: unknown. *before_out: those of
 * the nodes before it. */
static int tasks_of(int node, int *before_out) {
    const char *at = getenv("SLURM_STEP_TASKS_PER_NODE");
    char *end;
    *before_out = 0;
    for (long n, times; at && *at; at = end + (*end == ',')) {
        n = strtol(at, &end, 10);
        if (end == at)
            break;
        times = strncmp(end, "(x", 2) == 0 ? strtol(end + 2, &end, 10) : 1;
        end += *end == ')';
        for (; times > 0; times--, *before_out += (int)n)
            if (node-- == 0)
                return (int)n;
    }
    return 0;
}

/* Name number k of a list such as "n[01-03,7],login". Writes nothing if there is none. */
static void name_of(const char *list, int k, char *buf, size_t size) {
    for (long from, to; list && *list; list += *list == ',') {
        const char *const name = list;
        const int prefix = (int)strcspn(list, "[,");
        list += prefix;
        if (*list != '[' && k-- == 0) {
            snprintf(buf, size, "%.*s", prefix, name);
            return;
        }
        for (list += *list == '['; *list && *list != ']' && list > name + prefix;) {
            const int digits = (int)strspn(list, "0123456789");
            if (!chex_text_next_range(&list, &from, &to))
                return;
            if (k <= to - from) {
                snprintf(buf, size, "%.*s%0*ld", prefix, name, digits, from + k);
                return;
            }
            k -= (int)(to - from) + 1;
        }
        list += *list == ']';
    }
}

/* Before the ranks have joined, their nodes are known if the tasks are in blocks. */
static void host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    (void)launch;
    const char *order = getenv("SLURM_DISTRIBUTION");
    int before, node = 0;
    const bool joined = atomic_load(&step.joined);
    snprintf(buf, size, "%s", joined ? step.peers[rank].host : "host unknown");
    if (joined || (order && strncmp(order, "block", 5) != 0))
        return;
    for (int n; (n = tasks_of(node, &before)) > 0 && before + n <= rank;)
        node++;
    name_of(getenv("SLURM_STEP_NODELIST"), node, buf, size);
}

/* ---- the folder and its records ---- */

/* A descriptor of the folder, or of a file in it, as it is now; -1 if there is none. */
static int enter(void) {
    return open(step.path.text, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_rank(int dir, int rank, int flags) {
    char name[12];
    snprintf(name, sizeof name, "%d", rank);
    return openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

static void remove_rank(int dir, int rank) {
    char name[12];
    snprintf(name, sizeof name, "%d", rank);
    unlinkat(dir, name, 0);
}

static uint64_t sum_of(const struct head *h) {
    return chex_hash64(&h->data_sum, sizeof *h - offsetof(struct head, data_sum));
}

/* Any thread. */
static enum chex_status append(const char *key, const void *data, size_t bytes,
                               struct chex_error *err) {
    struct head h = {
        .data_sum = chex_hash64(data, bytes), .writer = step.me.number, .bytes = bytes};
    snprintf(h.key, sizeof h.key, "%s", key);
    h.sum = sum_of(&h);
    pthread_mutex_lock(&step.writing);
    const int dir = enter(), fd = open_rank(dir, step.rank, O_WRONLY);
    errno = 0;
    bool good = fd >= 0 && chex_fs_pwrite(fd, &h, sizeof h, step.end) == sizeof h &&
                chex_fs_pwrite(fd, data, bytes, step.end + sizeof h) == bytes;
    int why = good ? 0 : errno ? errno : ENOENT;
    if (fd >= 0 && close(fd) != 0 && good) /* NFS reports a full disk here */
        why = errno;
    if (dir >= 0)
        close(dir);
    step.end += why ? 0 : sizeof h + bytes;
    pthread_mutex_unlock(&step.writing);
    return why ? chex_error_errno(err, CHEX_E_LOST, why, "cannot write to folder %s",
                                  step.path.text)
               : CHEX_OK;
}

/* Finds the next record of process `writer` (0: any) with this key in the file of a rank, from byte
 * *at on, and moves *at past it. *bytes_out is its length; if it is `bytes`, its data is written to
 * `data` (may be NULL). */
static bool find(int dir, int rank, uint64_t writer, const char *key, uint64_t *at, void *data,
                 size_t bytes, size_t *bytes_out) {
    const int fd = open_rank(dir, rank, O_RDONLY);
    struct head h;
    bool found = false;
    for (uint64_t from = *at;
         fd >= 0 && !found && chex_fs_pread(fd, &h, sizeof h, from) == sizeof h;
         from += sizeof h + h.bytes) {
        if (h.sum != sum_of(&h) || (writer && h.writer != writer))
            break;
        if (strcmp(h.key, key) != 0)
            continue;
        if (data && h.bytes == bytes &&
            (chex_fs_pread(fd, data, bytes, from + sizeof h) != bytes ||
             chex_hash64(data, bytes) != h.data_sum))
            break; /* its end is not visible yet */
        found = true;
        *bytes_out = (size_t)h.bytes;
        *at = from + sizeof h + h.bytes;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* Whether a process holds the lock of the file. */
static bool is_locked(int dir, int rank) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open_rank(dir, rank, O_RDONLY);
    const bool locked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    if (fd >= 0)
        close(fd);
    return locked;
}

/* Of an accepted rank. LEFT: it has removed its file. */
enum life { RUNS, LEFT, DEAD };
static enum life life_of(int dir, int rank) {
    for (int i = 0; i < 2; i++) { /* twice: it may just have left */
        uint64_t at = 0;
        size_t n;
        if (!find(dir, rank, step.peers[rank].number, "hello", &at, NULL, 0, &n))
            return LEFT;
        if (is_locked(dir, rank))
            atomic_store(&step.held[rank], true);
        else if (atomic_load(&step.held[rank]))
            continue;
        return RUNS;
    }
    return DEAD;
}

static enum chex_status unusable(const char *why, struct chex_error *err) {
    return chex_error_set(err, errno == ENOSPC || errno == EDQUOT ? CHEX_E_RESOURCE : CHEX_E_ENV,
                          "folder %s: %s: tasks of srun without PMIx meet there; set CHEX_STEP_DIR "
                          "to a folder of yours that all nodes share, or use srun --mpi=pmix or "
                          "--mpi=pmi2",
                          step.path.text, why);
}

/* Makes the folder if it is missing, checks it, and makes the own file. errno ENOENT: the last
 * program of the step has removed the folder meanwhile. */
static enum chex_status make_file(struct chex_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat s;
    if (mkdir(step.path.text, 0700) != 0 && errno != EEXIST)
        return unusable(strerror(errno), err);
    const int dir = enter();
    if (dir < 0 || fstat(dir, &s) != 0)
        return unusable(strerror(errno), err);
    if (s.st_uid != geteuid() || s.st_mode & 077) {
        close(dir);
        errno = EPERM;
        return unusable("belongs to another user, or others can enter it", err);
    }
    remove_rank(dir, step.rank); /* of an earlier program */
    step.lock = open_rank(dir, step.rank, O_RDWR | O_CREAT | O_EXCL);
    const int why = step.lock < 0 ? errno : 0;
    close(dir);
    if (!why)
        (void)fcntl(step.lock, F_OFD_SETLK, &whole);
    errno = why;
    return why ? unusable(strerror(why), err) : CHEX_OK;
}

/* ---- waiting ---- */

static void name_abort(uint64_t number_of_0) {
    snprintf(step.abort_name, sizeof step.abort_name, "abort.%016llx",
             (unsigned long long)number_of_0);
}

/* Ends this process if a rank has aborted the step. Before this rank has joined, rank 0 may be one
 * of an earlier step; then it does not hold its lock. */
static void obey_abort(int dir) {
    char text[8] = "";
    if (atomic_load(&step.ending) || readlinkat(dir, step.abort_name, text, sizeof text - 1) <= 0 ||
        (!atomic_load(&step.joined) && !is_locked(dir, 0)))
        return;
    remove_rank(dir, step.rank);
    _exit(atoi(text));
}

/* What a thread waits for. */
struct wait {
    const char *name, *key;
    int from, to; /* ranks */
    unsigned char *all;
    size_t bytes;
    bool *came; /* (to - from) of a look-up */
    uint64_t began_ns;
};

static enum chex_status dead(int rank, const char *name, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_LOST,
                          "rank %d (%s) of %d has ended and did not come to exchange %s", rank,
                          step.peers[rank].host, step.size, name);
}

/* Looks once; *done_out: all is here. */
typedef enum chex_status (*look_fn)(struct wait *w, int dir, bool *done_out,
                                    struct chex_error *err);

/* Looks until all is here, or the deadline has passed (*done_out is false). */
static enum chex_status look_until(look_fn look, struct wait *w, uint64_t deadline_ns,
                                   bool *done_out, struct chex_error *err) {
    w->began_ns = chex_clock_ns();
    for (*done_out = false;;) {
        const int dir = enter();
        if (dir < 0)
            return chex_error_errno(err, CHEX_E_LOST, errno, "cannot open folder %s",
                                    step.path.text);
        obey_abort(dir);
        *done_out = true;
        const enum chex_status st = look(w, dir, done_out, err);
        close(dir);
        const uint64_t now_ns = chex_clock_ns(), us = (now_ns - w->began_ns) / 8000;
        if (st != CHEX_OK || *done_out || now_ns >= deadline_ns)
            return st;
        const uint64_t left_us = (deadline_ns - now_ns) / 1000 + 1;
        const uint64_t pause_us = us < LEAST_US ? LEAST_US : us < MOST_US ? us : MOST_US;
        usleep((unsigned)(pause_us < left_us ? pause_us : left_us));
    }
}

/* ---- joining ---- */

/* Rank 0 looks for all ranks, the others for rank 0. */
static enum chex_status look_for_ranks(struct wait *w, int dir, bool *done_out,
                                       struct chex_error *err) {
    for (int r = w->from; r < w->to; r++) {
        struct hello h = {0}, next;
        uint64_t at = 0;
        size_t n;
        if (step.here[r])
            continue;
        while (h.to != step.me.number && find(dir, r, 0, "hello", &at, &next, sizeof next, &n) &&
               n == sizeof next)
            h = next;
        if (h.number) {
            step.peers[r] = h;
            if (life_of(dir, r) == DEAD)
                return dead(r, w->name, err);
        }
        if (step.rank == 0) {
            step.here[r] = h.to == step.me.number;
        } else if (h.number != step.me.to) {
            step.me.to = h.number;
            name_abort(h.number);
            CHEX_TRY(append("hello", &step.me, sizeof step.me, err));
        } else if (h.number) {
            step.here[0] = find(dir, 0, h.number, "roster", &at, step.peers,
                                (size_t)step.size * sizeof *step.peers, &n) &&
                           step.peers[step.rank].number == step.me.number;
        }
        *done_out = *done_out && step.here[r];
    }
    return CHEX_OK;
}

static void *watch(void *arg);

/* Collective. *done_out: all ranks have joined before the deadline. */
static enum chex_status join(const char *name, uint64_t deadline_ns, bool *done_out,
                             struct chex_error *err) {
    struct wait w = {.name = name, .from = step.rank == 0, .to = step.rank ? 1 : step.size};
    *done_out = true;
    if (atomic_load(&step.joined))
        return CHEX_OK;
    CHEX_TRY(look_until(look_for_ranks, &w, deadline_ns, done_out, err));
    if (!*done_out)
        return CHEX_OK;
    step.peers[step.rank] = step.me;
    if (step.rank == 0)
        CHEX_TRY(append("roster", step.peers, (size_t)step.size * sizeof *step.peers, err));
    atomic_store(&step.joined, true);
    step.watched = pthread_create(&step.watcher, NULL, watch, NULL) == 0;
    return CHEX_OK;
}

/* ---- exchange ---- */

/* After the deadline: the error with the ranks that have not come. */
static enum chex_status lost(struct chex_launch *launch, const char *name, const char *key,
                             uint64_t timeout_ms, struct chex_error *err) {
    const bool joined = atomic_load(&step.joined);
    bool shared = joined || launch->nodes == 1; /* a rank of another node has come */
    if (step.rank > 0)
        chex_clock_sleep_ms(FIRST_MS);
    const int dir = enter();
    obey_abort(dir);
    launch->came = chex_alloc_zeroed((size_t)step.size, sizeof *launch->came);
    for (int r = 0; launch->came && r < step.size; r++) {
        char node[CHEX_HOST_BYTES];
        uint64_t at = 0;
        size_t n;
        host(launch, r, node, sizeof node);
        launch->came[r] = r == step.rank || find(dir, r, joined ? step.peers[r].number : 0,
                                                 joined ? key : "hello", &at, NULL, 0, &n);
        shared |= launch->came[r] && strcmp(node, launch->host) != 0;
    }
    if (dir >= 0)
        close(dir);
    const enum chex_status st =
        chex_launch_lost(launch, name, "and memory is short", timeout_ms, err);
    if (shared)
        return st;
    const struct chex_error was = *err;
    return chex_error_set(err, chex_fs_is_local(step.path.text) ? CHEX_E_ENV : st,
                          "%s; no rank of another node is in folder %s: set CHEX_STEP_DIR to a "
                          "folder that all nodes share, or use srun --mpi=pmix or --mpi=pmi2",
                          was.text, step.path.text);
}

static enum chex_status look_for_values(struct wait *w, int dir, bool *done_out,
                                        struct chex_error *err) {
    for (int r = w->from; r < w->to; r++) {
        const size_t values = r == 0 ? (size_t)step.size : 1, bytes = values * w->bytes;
        size_t found = bytes;
        if (step.here[r])
            continue;
        step.here[r] = find(dir, r, step.peers[r].number, w->key, &step.at[r],
                            w->all ? w->all + (size_t)r * w->bytes : NULL, bytes, &found);
        if (found != bytes)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "exchange %s: rank %d gave %zu bytes, expected %zu", w->name, r,
                                  found / values, w->bytes);
        if (!step.here[r] && chex_clock_ns() - w->began_ns > ALIVE_NS && life_of(dir, r) == DEAD) {
            obey_abort(dir);
            return dead(r, w->name, err);
        }
        *done_out = *done_out && step.here[r];
    }
    return CHEX_OK;
}

static enum chex_status gather_at_0(struct chex_launch *launch, const char *name, const char *key,
                                    const void *mine, size_t bytes, unsigned char *all,
                                    uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t deadline_ns = chex_clock_in_ms(timeout_ms);
    struct wait w = {name, key, 1, step.size, all, bytes, NULL, 0};
    bool done;
    CHEX_TRY(join(name, deadline_ns, &done, err));
    if (!done)
        return lost(launch, name, key, timeout_ms, err);
    CHEX_TRY(append(key, mine, bytes, err));
    if (step.rank != 0)
        return CHEX_OK;
    if (bytes)
        memcpy(all, mine, bytes);
    memset(step.here, 0, (size_t)step.size * sizeof *step.here);
    CHEX_TRY(look_until(look_for_values, &w, deadline_ns, &done, err));
    return done ? CHEX_OK : lost(launch, name, key, timeout_ms, err);
}

static enum chex_status gather(struct chex_launch *launch, const char *name, const char *key,
                               const void *mine, size_t bytes, unsigned char *all,
                               uint64_t timeout_ms, struct chex_error *err) {
    const uint64_t deadline_ns = chex_clock_in_ms(timeout_ms);
    char whole[KEY_BYTES];
    struct wait w = {name, whole, 0, 1, all, bytes, NULL, 0};
    bool done;
    snprintf(whole, sizeof whole, "all.%s", key);
    CHEX_TRY(gather_at_0(launch, name, key, mine, bytes, all, timeout_ms, err));
    if (step.rank == 0)
        return append(whole, all, (size_t)step.size * bytes, err);
    step.here[0] = false;
    CHEX_TRY(look_until(look_for_values, &w, deadline_ns, &done, err));
    return done ? CHEX_OK : lost(launch, name, key, timeout_ms, err);
}

/* ---- publish and look-up ---- */

static enum chex_status publish(struct chex_launch *launch, const char *key, const void *mine,
                                size_t bytes, struct chex_error *err) {
    (void)launch;
    return append(key, mine, bytes, err);
}

static enum chex_status look_for_notes(struct wait *w, int dir, bool *done_out,
                                       struct chex_error *err) {
    (void)err;
    for (int r = w->from; r < w->to; r++) {
        bool *came = &w->came[r - w->from];
        uint64_t at = 0;
        size_t n = w->bytes;
        if (*came || r == step.rank)
            continue;
        *came = find(dir, r, step.peers[r].number, w->key, &at,
                     w->bytes ? w->all + (size_t)(r - w->from) * w->bytes : NULL, w->bytes, &n) &&
                (!w->bytes || n == w->bytes);
        *done_out = *done_out && *came;
    }
    return CHEX_OK;
}

static void lookup(const struct chex_launch *launch, const char *key, int from, int to,
                   size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms) {
    struct wait w = {NULL, key, from, to, all_out, bytes, came_out, 0};
    struct chex_error ignored;
    bool done;
    (void)launch;
    memset(came_out, 0, (size_t)(to - from) * sizeof *came_out);
    if (atomic_load(&step.joined))
        (void)look_until(look_for_notes, &w, chex_clock_in_ms(wait_ms), &done, &ignored);
}

/* ---- the end ---- */

static uint64_t watch_pause_ms(void) {
    const uint64_t ms = (uint64_t)step.size * 1000 / WATCH_RANKS;
    return ms < 1000 ? 1000 : ms < WATCH_MOST_MS ? ms : WATCH_MOST_MS;
}

/* Looks whether no other rank runs. Removes the files of dead ones. */
static enum chex_status look_for_end(struct wait *w, int dir, bool *done_out,
                                     struct chex_error *err) {
    (void)w, (void)err;
    for (int r = 0; r < step.size; r++) {
        const enum life life = r == step.rank ? LEFT : life_of(dir, r);
        if (life == DEAD)
            remove_rank(dir, r);
        *done_out = *done_out && life != RUNS;
    }
    return CHEX_OK;
}

/* Removes what is this rank's, and the folder if it is empty. */
static void leave(void) {
    const int dir = enter();
    remove_rank(dir, step.rank);
    if (atomic_load(&step.ending))
        unlinkat(dir, step.abort_name, 0);
    if (dir >= 0)
        close(dir);
    rmdir(step.path.text);
}

/* Does nothing if another rank has aborted. */
static void end_others(int status) {
    const uint64_t deadline_ns = chex_clock_in_ms(2 * watch_pause_ms() + END_MS);
    struct wait w = {0};
    struct chex_error ignored;
    char text[8];
    bool done = false;
    const int dir = enter();
    snprintf(text, sizeof text, "%d", status);
    atomic_store(&step.ending, true);
    const bool first = symlinkat(text, dir, step.abort_name) == 0;
    if (dir >= 0)
        close(dir);
    if (!first) {
        atomic_store(&step.ending, false);
        return;
    }
    (void)look_until(look_for_end, &w, deadline_ns, &done, &ignored);
    if (!done)
        chex_slurm_step_kill(getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
    leave();
}

static void abort_all(struct chex_launch *launch, int status) {
    const bool waited = launch->broken && !atomic_load(&step.joined); /* for ranks to join */
    struct chex_error ignored;
    bool done;
    launch->broken = true;
    if (step.rank == 0 ||
        (!waited && join("abort", chex_clock_in_ms(JOIN_MS), &done, &ignored) == CHEX_OK && done))
        end_others(status);
}

static void *watch(void *arg) {
    (void)arg;
    const int next = (step.rank + 1) % step.size;
    pthread_mutex_lock(&step.watching);
    while (!step.stop) {
        (void)chex_clock_cond_wait(&step.wake, &step.watching, chex_clock_in_ms(watch_pause_ms()));
        const int dir = step.stop ? -1 : enter();
        if (dir < 0)
            continue;
        obey_abort(dir);
        if (!atomic_load(&step.ending) && life_of(dir, next) == DEAD) {
            obey_abort(dir);
            chex_err("rank %d (%s) of %d has ended: ending the other ranks", next,
                     step.peers[next].host, step.size);
            end_others(CHEX_E_LOST);
            _exit(CHEX_E_LOST);
        }
        close(dir);
    }
    pthread_mutex_unlock(&step.watching);
    return NULL;
}

static void release(void) {
    if (step.lock >= 0)
        close(step.lock);
    free(step.peers);
    free(step.at);
    free(step.held);
    free(step.here);
}

/* Rank 0, or the rank that aborted, leaves the folder last. */
static void finish(struct chex_launch *launch) {
    struct wait w = {0};
    struct chex_error err = {0};
    unsigned char none = 0, *all = malloc((size_t)launch->size);
    bool done;
    if (launch->size > 1 && all && !launch->broken &&
        chex_launch_exchange(launch, "finish", &none, 1, all, FINISH_MS, &err) != CHEX_OK)
        chex_warn("%s", err.text);
    free(all);
    if (launch->size == 1)
        return;
    pthread_mutex_lock(&step.watching);
    step.stop = true;
    pthread_cond_signal(&step.wake);
    pthread_mutex_unlock(&step.watching);
    if (step.watched)
        pthread_join(step.watcher, NULL);
    if (step.rank == 0 && !launch->broken)
        (void)look_until(look_for_end, &w, chex_clock_in_ms(LEAVE_MS), &done, &err);
    leave();
    release();
}

/* ---- start ---- */

static enum chex_status enter_step(const struct chex_launch *launch, struct chex_error *err) {
    const char *base = getenv("CHEX_STEP_DIR"), *job = getenv("SLURM_JOB_ID");
    const size_t size = (size_t)launch->size;
    char name[64], here[PATH_MAX];
    enum chex_status st = CHEX_E_ENV;
    step.lock = -1;
    step.rank = launch->rank;
    step.size = launch->size;
    step.peers = chex_alloc_zeroed(size, sizeof *step.peers);
    step.at = chex_alloc_zeroed(size, sizeof *step.at);
    step.held = chex_alloc_zeroed(size, sizeof *step.held);
    step.here = chex_alloc_zeroed(size, sizeof *step.here);
    if (!step.peers || !step.at || !step.held || !step.here)
        return chex_error_memory(err, NULL);
    snprintf(step.me.host, sizeof step.me.host, "%s", launch->host);
    if (getrandom(&step.me.number, sizeof step.me.number, 0) != sizeof step.me.number)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot get a random number");
    step.me.number |= 1; /* 0: none */
    if (step.rank == 0)
        name_abort(step.me.number);
    snprintf(name, sizeof name, ".chexnet-%.20s.%.20s.%d", job ? job : "", getenv("SLURM_STEP_ID"),
             chex_launch_env_int("SLURM_RESTART_COUNT", 0));
    if (!base || !*base)
        base = getcwd(here, sizeof here) ? here : ".";
    step.path = chex_path(base, name);
    chex_clock_cond_init(&step.wake);
    errno = ENOENT;
    for (int i = 0; st != CHEX_OK && errno == ENOENT && i < TRIES; i++)
        st = make_file(err);
    CHEX_TRY(st);
    return append("hello", &step.me, sizeof step.me, err);
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    int before;
    chex_launch_fill_names(launch);
    launch->size = launch->local_size = launch->nodes = 1;
    if (chex_launch_env_int("SLURM_STEP_NUM_TASKS", 1) == 1)
        return CHEX_OK;
    launch->size = chex_launch_env_int("SLURM_STEP_NUM_TASKS", 0);
    launch->rank = chex_launch_env_int("SLURM_PROCID", -1);
    launch->node = chex_launch_env_int("SLURM_NODEID", -1);
    launch->nodes = chex_launch_env_int("SLURM_STEP_NUM_NODES", 0);
    launch->local_rank = chex_launch_env_int("SLURM_LOCALID", -1);
    launch->local_size = tasks_of(launch->node, &before);
    if (launch->rank < 0 || launch->rank >= launch->size || launch->local_rank < 0 ||
        launch->local_rank >= launch->local_size || launch->node < 0 ||
        launch->node >= launch->nodes)
        return chex_error_set(
            err, CHEX_E_ENV,
            "Slurm's variables: inconsistent: rank %d of %d, local rank %d of %d, node %d of %d",
            launch->rank, launch->size, launch->local_rank, launch->local_size, launch->node,
            launch->nodes);
    const enum chex_status st = enter_step(launch, err);
    if (st == CHEX_OK)
        return CHEX_OK;
    if (step.lock >= 0)
        leave();
    release();
    return st;
}

const struct chex_launch_method chex_launch_slurm = {.name = "slurm",
                                                     .rank_variable = "SLURM_PROCID",
                                                     .present = present,
                                                     .why = why,
                                                     .init = init,
                                                     .gather = gather,
                                                     .gather_at_0 = gather_at_0,
                                                     .publish = publish,
                                                     .lookup = lookup,
                                                     .host = host,
                                                     .abort = abort_all,
                                                     .finish = finish};

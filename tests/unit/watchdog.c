/* SPDX-License-Identifier: Apache-2.0
 *
 * The stall watch of one process, and of the ranks that are left if others stop in the middle of an
 * exchange. More of what several ranks say of each other: tests/unit/stall.c and tests/slurm.
 */
#include "train/watch/watchdog.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/coll.h"
#include "ras_server.h"
#include "tap.h"

/* The time of day is an hour ahead for whoever asks, and the kernel's is not: as if it was set back
 * after each question. */
int clock_gettime(clockid_t clock, struct timespec *t) {
    const long rc = syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_REALTIME)
        t->tv_sec += 3600;
    return (int)rc;
}

/* Whether the text comes. */
static bool comes(int fd, const char *text) {
    char said[4096];
    for (const double from_s = chex_clock_s(); chex_clock_s() - from_s < tap_wait_s();) {
        ssize_t n = pread(fd, said, sizeof said - 1, 0);
        said[n > 0 ? n : 0] = '\0';
        if (strstr(said, text))
            return true;
        chex_clock_sleep_ms(100);
    }
    return false;
}

/* ---- ranks of a job as objects of this process; a launcher's daemon that keeps what they publish
 */

enum { RANKS = 4, MARKS = 256, ANSWER = 2 };

struct published {
    const struct chex_launch *of;
    char key[64];
    struct chex_mark mark;
};

static struct published marks[MARKS];
static int mark_count;
static pthread_mutex_t marks_lock = PTHREAD_MUTEX_INITIALIZER;

static enum chex_status publish(struct chex_launch *launch, const char *key, const void *mine,
                                size_t bytes, struct chex_error *err) {
    (void)err;
    pthread_mutex_lock(&marks_lock);
    BAIL_UNLESS(mark_count < MARKS && bytes == sizeof marks[0].mark, "too many marks");
    for (int i = 0; i < mark_count; i++)
        BAIL_UNLESS(marks[i].of != launch || strcmp(marks[i].key, key) != 0, "%s twice", key);
    struct published *p = &marks[mark_count++];
    p->of = launch;
    snprintf(p->key, sizeof p->key, "%s", key);
    memcpy(&p->mark, mine, bytes);
    pthread_mutex_unlock(&marks_lock);
    return CHEX_OK;
}

/* The ranks of a job are neighbours in an array. */
static const struct published *find(const struct chex_launch *of, const char *key) {
    for (int i = 0; i < mark_count; i++)
        if (marks[i].of == of && strcmp(marks[i].key, key) == 0)
            return &marks[i];
    return NULL;
}

static bool look_once(const struct chex_launch *launch, const char *key, int from, int to,
                      size_t bytes, void *all_out, bool *came_out) {
    bool whole = true;
    pthread_mutex_lock(&marks_lock);
    for (int r = from; r < to; r++) {
        const struct published *p = r == launch->rank ? NULL : find(launch - launch->rank + r, key);
        came_out[r - from] = p != NULL;
        whole = whole && (p || r == launch->rank);
        if (p && bytes)
            memcpy((char *)all_out + (size_t)(r - from) * bytes, &p->mark, bytes);
    }
    pthread_mutex_unlock(&marks_lock);
    return whole;
}

static void look(const struct chex_launch *launch, const char *key, int from, int to, size_t bytes,
                 void *all_out, bool *came_out, uint64_t wait_ms) {
    for (uint64_t ms = 0; ms < wait_ms / 10; ms += 10) {
        if (look_once(launch, key, from, to, bytes, all_out, came_out))
            return;
        chex_clock_sleep_ms(10);
    }
}

static void host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    snprintf(buf, size, "%s", launch[rank - launch->rank].host);
}

static const struct chex_launch_method fake = {
    .name = "fake", .publish = publish, .lookup = look, .host = host};

struct job {
    struct chex_launch launch[RANKS];
    struct chex_watchdog *watch[RANKS]; /* NULL: a rank that has stopped */
};

/* Ranks 0 and 1 are in the exchange after step 7, and only rank `ahead` of them leaves it, because
 * the others have stopped. */
static void stop_in_exchange(struct job *job, const char *name, int ahead) {
    struct chex_error err;
    for (int r = 0; r < RANKS; r++) {
        struct chex_launch *l = &job->launch[r];
        *l = (struct chex_launch){.method = "fake", .impl = &fake, .rank = r, .size = RANKS};
        snprintf(l->host, sizeof l->host, "%s%d", name, r / 2);
    }
    for (int r = 0; r < ANSWER; r++) {
        OK_CALL(chex_watchdog_create(&job->launch[r], 300, 0, &job->watch[r], &err));
        chex_watchdog_wait(job->watch[r]);
        chex_watchdog_beat(job->watch[r], CHEX_PHASE_COMPUTE, 7);
        chex_watchdog_wait(job->watch[r]);
    }
    chex_watchdog_beat(job->watch[ahead], CHEX_PHASE_COMPUTE, 8);
    chex_watchdog_at(job->watch[ahead], CHEX_PHASE_REDUCE);
}

static void check_stop_in_exchange(int log) {
    static struct job a, b;
    struct ras_server nccl = {0};
    char said[4096];
    int warnings = 0;
    ras_start(&nccl);
    setenv("NCCL_RAS_ADDR", nccl.addr, 1);
    stop_in_exchange(&a, "a", 0);
    OK(comes(log, "warn: NCCL:     The missing rank: 21\n"),
       "a rank that reports a stall logs what NCCL says");
    ras_stop(&nccl);
    stop_in_exchange(&b, "b", 1);
    OK(comes(log, "at step 8; ranks 2-3 on a1 do not answer (stopped, gone or cut off); "
                  "ranks 0-1 wait"),
       "if ranks stop in an exchange that rank 0 has left, only these are named");
    OK(comes(log, "at step 8; ranks 2-3 on b1 do not answer (stopped, gone or cut off); "
                  "ranks 0-1 wait"),
       "and if rank 1 has left it");
    chex_clock_sleep_ms(300); /* the first look round of the other rank is over */
    const ssize_t n = pread(log, said, sizeof said - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    for (const char *at = said; (at = strstr(at, "at step 8")); at++)
        warnings++;
    OK(warnings == 2, "one rank of each job speaks: %d warnings", warnings);
    for (int r = 0; r < RANKS; r++) {
        chex_watchdog_destroy(a.watch[r]);
        chex_watchdog_destroy(b.watch[r]);
    }
}

int main(void) {
    struct chex_launch launch = {.method = "single", .size = 1, .local_size = 1, .nodes = 1};
    struct chex_coll *coll = NULL;
    struct chex_reduce *reduce = NULL;
    struct chex_watchdog *watch = NULL;
    struct chex_error err;
    char path[] = "/tmp/chex-watchdog-XXXXXX";
    const int fd = mkstemp(path), own = dup(STDERR_FILENO);
    BAIL_UNLESS(fd >= 0 && own >= 0 && dup2(fd, STDERR_FILENO) >= 0, "no file for the log");
    MUST(chex_coll_create(&launch, &coll, &err));
    const struct chex_reduce_config config = {.coll = coll, .logical_ranks = 1, .count = 16};
    MUST(chex_reduce_create(&config, &reduce, &err));
    OK_CALL(chex_watchdog_create(&launch, 300, 0, &watch, &err));
    chex_watchdog_reduce(watch, reduce);
    chex_watchdog_beat(watch, CHEX_PHASE_COMPUTE, 7);
    OK(comes(fd, ": computing at step 7"), "a stall is reported, though the clock was set back");
    chex_watchdog_destroy(watch);
    OK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0, "the log is emptied");
    check_stop_in_exchange(fd);
    chex_reduce_destroy(reduce);
    chex_coll_destroy(coll);
    dup2(own, STDERR_FILENO);
    close(own);
    close(fd);
    unlink(path);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are processes of one test, and a launch method of a few lines that exchanges by memory
 * they share.
 */
#ifndef CHEX_TESTS_FORK_RANKS_H
#define CHEX_TESTS_FORK_RANKS_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/launch.h"
#include "tap.h"

enum { FORK_RANKS = 9, FORK_BYTES = 1 << 16 };

static struct fork_world {
    pthread_barrier_t meet;
    char given[FORK_RANKS][FORK_BYTES];
    const char *spoilt; /* rank 1 gets zeros from the next exchange of this name */
    const char *lost;   /* the exchange of this name fails */
    int aborted_with;
} * fork_world;

static enum chex_status fork_exchange(struct chex_launch *launch, const char *name, const char *key,
                                      const void *mine, size_t bytes, unsigned char *all_out,
                                      uint64_t timeout_ms, struct chex_error *err) {
    struct fork_world *w = fork_world;
    (void)key, (void)timeout_ms;
    if (w->lost && strcmp(name, w->lost) == 0)
        return chex_error_set(err, CHEX_E_LOST, "rank 1 (vm) of 3 did not come");
    if (bytes > FORK_BYTES)
        return chex_error_set(err, CHEX_E_FAIL, "exchange of %zu bytes", bytes);
    memcpy(w->given[launch->rank], mine, bytes);
    pthread_barrier_wait(&w->meet);
    for (int r = 0; r < launch->size; r++)
        memcpy((char *)all_out + (size_t)r * bytes, w->given[r], bytes);
    if (launch->rank == 1 && w->spoilt && strcmp(name, w->spoilt) == 0) {
        memset(all_out, 0, (size_t)launch->size * bytes);
        w->spoilt = NULL;
    }
    pthread_barrier_wait(&w->meet);
    return CHEX_OK;
}

static void fork_abort(struct chex_launch *launch, int status) {
    (void)launch;
    fork_world->aborted_with = status;
}

static const struct chex_launch_method fork_method = {
    .name = "fork", .gather = fork_exchange, .abort = fork_abort};

/* Runs play() in `size` processes of one node. True: all returned CHEX_OK. status_out (NULL
 * allowed): the exit status of each. The text of an error goes to stderr. */
static bool fork_ranks(int size,
                       enum chex_status (*play)(struct chex_launch *, struct chex_error *),
                       int *status_out) {
    pthread_barrierattr_t shared;
    pid_t child[FORK_RANKS];
    bool good = true;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&fork_world->meet, &shared, (unsigned)size);
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        child[r] = fork();
        BAIL_UNLESS(child[r] >= 0, "fork");
        if (child[r] > 0)
            continue;
        struct chex_launch launch = {.method = "fork",
                                     .rank = r,
                                     .size = size,
                                     .local_rank = r,
                                     .local_size = size,
                                     .nodes = 1,
                                     .host = "vm",
                                     .impl = &fork_method};
        struct chex_error err = {0};
        alarm(100);
        const enum chex_status st = play(&launch, &err);
        if (st != CHEX_OK && !status_out)
            fprintf(stderr, "rank %d of %d: %s\n", r, size, err.text);
        _exit((int)st);
    }
    for (int r = 0; r < size; r++) {
        int status = -1;
        waitpid(child[r], &status, 0);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        good = good && code == CHEX_OK;
        if (status_out)
            status_out[r] = code;
    }
    return good;
}

static void fork_begin(void) {
    fork_world =
        mmap(NULL, sizeof *fork_world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BAIL_UNLESS(fork_world != MAP_FAILED, "mmap");
}

#endif

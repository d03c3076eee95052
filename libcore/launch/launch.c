/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the launch method from the environment and forwards calls to it.
 */
#include "launch/launch.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/units.h"
#include "launch/methods.h"

/* In order of preference; the first method that is present is used. */
static const struct chex_launch_method *const methods[] = {
#ifndef CHEXNET_NO_PMIX /* build of the engine only: tests/gpu/CMakeLists.txt */
    &chex_launch_pmix,
#endif
    &chex_launch_pmi2,
    &chex_launch_slurm,
    &chex_launch_single,
};

int chex_launch_env_int(const char *name, int otherwise) {
    const char *text = getenv(name);
    int64_t value;
    if (!text || !chex_parse_i64(text, &value) || value < 0 || value > INT_MAX)
        return otherwise;
    return (int)value;
}

void chex_launch_fill_names(struct chex_launch *launch) {
    const char *node = getenv("SLURMD_NODENAME"), *job = getenv("SLURM_JOB_ID");
    if (node && *node)
        snprintf(launch->host, sizeof launch->host, "%s", node);
    else if (gethostname(launch->host, sizeof launch->host) != 0)
        snprintf(launch->host, sizeof launch->host, "unknown");
    launch->host[sizeof launch->host - 1] = '\0';
    snprintf(launch->job_id, sizeof launch->job_id, "%s", job ? job : "");
}

static const struct chex_launch_method *find_method(void) {
    size_t i = 0;
    while (i + 1 < sizeof methods / sizeof methods[0] && !methods[i]->present())
        i++;
    return methods[i];
}

int chex_launch_env_rank(void) {
    const char *variable = find_method()->rank_variable;
    return variable ? chex_launch_env_int(variable, 0) : 0;
}

bool chex_launch_sits_out(const char *work) {
    const int rank = chex_launch_env_rank();
    if (rank == 1)
        chex_warn("%s is work for one process: rank 0 does it, ranks 1 and above do nothing", work);
    return rank != 0;
}

static enum chex_status init_by(const struct chex_launch_method *method, struct chex_launch *launch,
                                struct chex_error *err) {
    struct chex_launch made = {.method = method->name, .impl = method};
    if (method->why)
        method->why(made.why, sizeof made.why);
    const enum chex_status st = method->init(&made, err);
    if (st == CHEX_OK)
        *launch = made;
    else
        free(made.came);
    return st;
}

enum chex_status chex_launch_init(struct chex_launch *launch, struct chex_error *err) {
    return init_by(find_method(), launch, err);
}

enum chex_status chex_launch_init_alone(struct chex_launch *launch, struct chex_error *err) {
    return init_by(&chex_launch_single, launch, err);
}

int chex_launch_tasks_left_out(const struct chex_launch *launch) {
    const int tasks = chex_launch_env_int("SLURM_NTASKS", 1);
    return strcmp(launch->method, "single") == 0 && tasks > 1 ? tasks : 0;
}

void chex_launch_warn_left_out(const struct chex_launch *launch) {
    const int tasks = chex_launch_tasks_left_out(launch);
    if (tasks)
        chex_warn(
            "the job has %d tasks, but this is one process and does all the work alone: start "
            "it with srun",
            tasks);
}

/* Gathers under a new key. An error makes the launch broken. */
static enum chex_status with_new_key(chex_launch_gather_fn gather, struct chex_launch *launch,
                                     const char *name, const void *mine, size_t bytes,
                                     void *all_out, uint64_t timeout_ms, struct chex_error *err) {
    char key[64];
    if (launch->size == 1) {
        if (bytes)
            memcpy(all_out, mine, bytes);
        return CHEX_OK;
    }
    if (launch->broken)
        return chex_error_set(err, CHEX_E_LOST,
                              "exchange %s: not started, because an earlier exchange failed", name);
    snprintf(key, sizeof key, "chexnet.%u.%.27s", launch->round++, name);
    const enum chex_status st = gather(launch, name, key, mine, bytes, all_out, timeout_ms, err);
    launch->broken = st != CHEX_OK;
    return st;
}

enum chex_status chex_launch_exchange(struct chex_launch *launch, const char *key, const void *mine,
                                      size_t bytes, void *all_out, uint64_t timeout_ms,
                                      struct chex_error *err) {
    return with_new_key(launch->impl ? launch->impl->gather : NULL, launch, key, mine, bytes,
                        all_out, timeout_ms, err);
}

enum chex_status chex_launch_collect(struct chex_launch *launch, const char *key, const void *mine,
                                     size_t bytes, void *all_out, uint64_t timeout_ms,
                                     struct chex_error *err) {
    return with_new_key(launch->impl ? launch->impl->gather_at_0 : NULL, launch, key, mine, bytes,
                        all_out, timeout_ms, err);
}

enum { NAMED_RANKS = 8 }; /* in one message; fewer if their nodes have long names */

enum chex_status chex_launch_lost(const struct chex_launch *launch, const char *name,
                                  const char *unknown, uint64_t timeout_ms,
                                  struct chex_error *err) {
    const double s = (double)timeout_ms / 1e3;
    char who[384] = "", node[CHEX_HOST_BYTES];
    int missing = 0, named = 0;
    size_t at = 0;
    for (int r = 0; launch->came && r < launch->size; r++) {
        if (r == launch->rank || launch->came[r] || ++missing > NAMED_RANKS || at > sizeof who / 2)
            continue;
        named++;
        chex_launch_host(launch, r, node, sizeof node);
        int n = snprintf(who + at, sizeof who - at, "%s%d (%s)", missing == 1 ? "rank " : ", ", r,
                         node);
        at = n > 0 && (size_t)n < sizeof who - at ? at + (size_t)n : sizeof who - 1;
    }
    if (missing > named)
        snprintf(who + at, sizeof who - at, " and %d more", missing - named);
    if (!launch->came)
        return chex_error_set(err, CHEX_E_LOST,
                              "exchange %s of %d ranks did not end within %.1f s, %s", name,
                              launch->size, s, unknown);
    if (missing == 0)
        return chex_error_set(err, CHEX_E_LOST,
                              "exchange %s did not end within %.1f s, though every rank came to it",
                              name, s);
    return chex_error_set(err, CHEX_E_LOST, "%s of %d did not come to exchange %s within %.1f s",
                          who, launch->size, name, s);
}

bool chex_launch_can_lookup(const struct chex_launch *launch) {
    return launch->size > 1 && launch->impl && launch->impl->lookup;
}

enum chex_status chex_launch_publish(struct chex_launch *launch, const char *key, const void *mine,
                                     size_t bytes, struct chex_error *err) {
    return launch->impl->publish(launch, key, mine, bytes, err);
}

void chex_launch_lookup(const struct chex_launch *launch, const char *key, int from, int to,
                        size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms) {
    launch->impl->lookup(launch, key, from, to, bytes, all_out, came_out, wait_ms);
}

int chex_launch_ended(const struct chex_launch *launch, int from, int to, bool *ended_out) {
    memset(ended_out, 0, (size_t)(to - from) * sizeof *ended_out);
    return launch->impl && launch->impl->ended ? launch->impl->ended(launch, from, to, ended_out)
                                               : 0;
}

void chex_launch_host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    if (rank != launch->rank && launch->impl && launch->impl->host)
        launch->impl->host(launch, rank, buf, size);
    else
        snprintf(buf, size, "%s", rank == launch->rank ? launch->host : "host unknown");
}

void chex_launch_finish(struct chex_launch *launch) {
    if (launch->impl && launch->impl->finish)
        launch->impl->finish(launch);
    free(launch->came);
    launch->came = NULL;
    launch->impl = NULL;
}

void chex_launch_abort(struct chex_launch *launch, int status) {
    if (launch->size > 1 && launch->impl && launch->impl->abort)
        launch->impl->abort(launch, status);
}

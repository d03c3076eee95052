/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread of the probes.
 *
 * Thread and caller share one object, and the last of the two frees it. Work is a range: the thread
 * may run checks [done, until), and the caller raises `until` stage by stage. If the deadline
 * passes while done < until, the caller marks the prober as stuck, reads the answers [0, done) and
 * leaves. The thread never touches the caller's memory.
 */
#include "check/prober.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/progress.h"
#include "check/checks.h"
#include "check/measure.h"

enum { END_S = 10 }; /* seconds that the caller waits for the thread to end */

/* Shared by thread and caller; `holders` counts them. The lock protects until, done, stop, ended
 * and results. */
struct chex_prober {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders;
    size_t count, until, done; /* it may run [done, until); answers [0, done) are final */
    bool stop, ended;
    const struct chex_check **checks;
    struct chex_check_result *results;
    struct chex_check_context context;
    struct chex_launch launch;
    struct chex_binding binding;
    struct chex_error launch_error;
    struct chex_measure measure;
    char *data, *output;
    /* Used only by the caller. */
    uint64_t timeout_ms;
    double left_s;
    bool stuck;
    bool stuck_in_all; /* stuck in a collective probe; the thread may still continue */
    struct chex_progress *progress;
};

static void drop(struct chex_prober *p, int holders) {
    pthread_mutex_lock(&p->lock);
    p->holders -= holders;
    bool last = p->holders == 0;
    pthread_mutex_unlock(&p->lock);
    if (!last)
        return;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->checks);
    free(p->results);
    free(p->data);
    free(p->output);
    chex_group_destroy(p->measure.group);
    free(p);
}

/* ---- the thread ---- */

/* Waits for the next check. False: the thread must end. */
static bool next(struct chex_prober *p, size_t *index_out) {
    pthread_mutex_lock(&p->lock);
    while (p->done == p->until && !p->stop)
        pthread_cond_wait(&p->changed, &p->lock);
    *index_out = p->done;
    bool go = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return go;
}

static void answer(struct chex_prober *p, const struct chex_check_result *r) {
    pthread_mutex_lock(&p->lock);
    p->results[p->done++] = *r;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *probe_all(void *arg) {
    struct chex_prober *p = arg;
    for (size_t i; next(p, &i);) {
        struct chex_check_result r;
        memset(&r, 0, sizeof r); /* also the padding, because the bytes are sent */
        r.fault = p->checks[i]->fault;
        const double began = chex_clock_s();
        if (p->context.root && !p->checks[i]->recorded)
            chex_check_skip(&r, "not in the recording");
        else if (p->checks[i]->count)
            chex_check_probe_counts(&p->context, p->checks[i], &r);
        else if (p->checks[i]->probe)
            p->checks[i]->probe(&p->context, &r);
        chex_debug("check %s took %.3f s", p->checks[i]->name, chex_clock_s() - began);
        answer(p, &r);
    }
    chex_measure_release(&p->measure);
    pthread_mutex_lock(&p->lock);
    p->ended = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    drop(p, 1);
    return NULL;
}

/* ---- the caller ---- */

static void copy_context(struct chex_prober *p, const struct chex_check_context *context) {
    p->context = *context;
    p->launch = *context->launch;
    p->context.launch = &p->launch;
    p->context.measure = &p->measure;
    p->measure.launch = &p->launch;
    if (context->binding) {
        p->binding = *context->binding;
        p->context.binding = &p->binding;
    }
    if (context->launch_error) {
        p->launch_error = *context->launch_error;
        p->context.launch_error = &p->launch_error;
    }
    p->data = context->data ? strdup(context->data) : NULL;
    p->output = context->output ? strdup(context->output) : NULL;
    p->context.data = p->data;
    p->context.output = p->output;
}

static struct chex_prober *create(const struct chex_check *const *checks, size_t count,
                                  const struct chex_check_context *context, uint64_t timeout_ms) {
    struct chex_prober *p = chex_alloc_zeroed(1, sizeof *p);
    if (!p)
        return NULL;
    chex_clock_cond_init(&p->changed);
    pthread_mutex_init(&p->lock, NULL);
    p->holders = 2;
    p->checks = chex_alloc_zeroed(count, sizeof *p->checks);
    p->results = chex_alloc_zeroed(count, sizeof *p->results);
    copy_context(p, context);
    if (!p->checks || !p->results || (context->data && !p->data) ||
        (context->output && !p->output) ||
        chex_group_of_launch(&p->launch, timeout_ms, &p->measure.group, NULL) != CHEX_OK) {
        drop(p, 2);
        return NULL;
    }
    p->count = count;
    memcpy(p->checks, checks, count * sizeof *checks);
    return p;
}

enum chex_status chex_prober_create(const struct chex_check *const *checks, size_t count,
                                    const struct chex_check_context *context, uint64_t timeout_ms,
                                    struct chex_prober **prober_out, struct chex_error *err) {
    struct chex_prober *p = create(checks, count, context, timeout_ms);
    if (!p)
        return chex_error_memory(err, NULL);
    p->timeout_ms = timeout_ms;
    p->left_s = (double)timeout_ms / 1e3;
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, probe_all, p);
    if (rc != 0) {
        drop(p, 2);
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start a thread for the checks");
    }
    pthread_detach(thread);
    p->progress =
        context->show_progress ? chex_progress_create("checking", "checks", count, true) : NULL;
    *prober_out = p;
    return CHEX_OK;
}

static uint64_t in_seconds(double seconds) {
    return chex_clock_ns() + (seconds > 0 ? (uint64_t)(seconds * 1e9) : 0);
}

void chex_prober_run(struct chex_prober *p, size_t until) {
    if (p->stuck)
        return;
    const double began = chex_clock_s();
    const uint64_t deadline_ns = in_seconds(p->left_s);
    pthread_mutex_lock(&p->lock);
    p->context.until_s = began + p->left_s;
    p->until = until;
    pthread_cond_broadcast(&p->changed);
    for (int rc = 0; p->done < until && rc == 0;) {
        chex_progress_set(p->progress, p->done, p->checks[p->done]->name);
        rc = chex_clock_cond_wait(&p->changed, &p->lock, deadline_ns);
    }
    p->stuck = p->done < until;
    p->stop = p->stuck;
    p->stuck_in_all = p->stuck && p->checks[p->done]->start == CHEX_START_ALL;
    pthread_mutex_unlock(&p->lock);
    p->left_s -= chex_clock_s() - began;
}

void chex_prober_skip(struct chex_prober *p, size_t until, const char *why) {
    pthread_mutex_lock(&p->lock);
    for (; !p->stuck && p->done < until; p->done++) {
        struct chex_check_result *r = &p->results[p->done];
        r->verdict = CHEX_SKIP;
        r->fault = p->checks[p->done]->fault;
        chex_check_found(r, "%s", why);
    }
    if (!p->stuck)
        p->until = until;
    pthread_mutex_unlock(&p->lock);
}

bool chex_prober_stuck(const struct chex_prober *p) { return p->stuck; }

bool chex_prober_lost(const struct chex_prober *p) {
    return p->stuck ? p->stuck_in_all : p->measure.in_coll;
}

double chex_prober_left_s(const struct chex_prober *p) { return p->left_s > 0 ? p->left_s : 0; }

void chex_prober_limit(struct chex_prober *p, double left_s) {
    if (left_s < p->left_s)
        p->left_s = left_s;
}

static void unanswered(const struct chex_prober *p, size_t i, struct chex_check_result *r) {
    memset(r, 0, sizeof *r);
    chex_check_expect(r, "an answer within %.1f s", (double)p->timeout_ms / 1e3);
    r->verdict = CHEX_SKIP;
    r->fault = p->checks[i]->fault;
    if (i > p->done) {
        chex_check_found(r, "not run: %s did not answer", p->checks[p->done]->name);
        return;
    }
    chex_check_found(r, "no answer");
    chex_check_worsen(
        r, CHEX_FAIL, CHEX_FAULT_NODE, "%s",
        p->checks[i]->start == CHEX_START_ALL
            ? "a rank or the network between the ranks hangs: find the faulty node by "
              "halving the set of nodes"
            : "a file system or driver of this node hangs; leave the node out");
}

void chex_prober_answers(struct chex_prober *p, struct chex_check_result *out) {
    pthread_mutex_lock(&p->lock);
    memcpy(out, p->results, p->done * sizeof *out);
    for (size_t i = p->done; i < p->count; i++)
        unanswered(p, i, &out[i]);
    pthread_mutex_unlock(&p->lock);
}

void chex_prober_destroy(struct chex_prober *p) {
    if (!p)
        return;
    const uint64_t deadline_ns = in_seconds(END_S);
    chex_progress_destroy(p->progress, false);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    for (int rc = 0; !p->ended && !p->stuck && rc == 0;)
        rc = chex_clock_cond_wait(&p->changed, &p->lock, deadline_ns);
    pthread_mutex_unlock(&p->lock);
    drop(p, 1);
}

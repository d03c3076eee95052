/* SPDX-License-Identifier: Apache-2.0
 *
 * The run: probes on a thread of their own under one deadline, then two exchanges, then the same
 * comparison on every rank.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "check/check.h"
#include "check/expected.h"

/* What the prober and the caller share. The last of the two to let go frees it, because a probe may
 * hang in a system call for longer than we wait. */
struct probing {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int holders;
    size_t count, done; /* answers [0, done) are final */
    bool stop;
    const struct chex_check **checks;
    struct chex_check_result *results;
    /* Copies: the caller's may be gone before a late probe ends. */
    struct chex_check_context context;
    struct chex_launch launch;
    struct chex_binding binding;
    struct chex_error launch_error;
};

static void probing_drop(struct probing *p, int holders) {
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
    free(p);
}

static struct probing *probing_create(const struct chex_check *const *checks, size_t count,
                                      const struct chex_check_context *context) {
    struct probing *p = chex_mem_zalloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->checks = chex_mem_zalloc(count, sizeof *p->checks);
    p->results = chex_mem_zalloc(count, sizeof *p->results);
    if (!p->checks || !p->results) {
        free(p->checks);
        free(p->results);
        free(p);
        return NULL;
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&p->lock, NULL);
    p->holders = 2;
    p->count = count;
    memcpy(p->checks, checks, count * sizeof *checks);
    p->context = *context;
    p->launch = *context->launch;
    p->context.launch = &p->launch;
    if (context->binding) {
        p->binding = *context->binding;
        p->context.binding = &p->binding;
    }
    if (context->launch_error) {
        p->launch_error = *context->launch_error;
        p->context.launch_error = &p->launch_error;
    }
    return p;
}

static void *probe_all(void *arg) {
    struct probing *p = arg;
    bool stop = false;
    for (size_t i = 0; i < p->count && !stop; i++) {
        struct chex_check_result r;
        memset(&r, 0, sizeof r); /* all bytes: they are sent */
        r.fault = p->checks[i]->fault;
        if (p->checks[i]->probe)
            p->checks[i]->probe(&p->context, &r);
        pthread_mutex_lock(&p->lock);
        p->results[i] = r;
        p->done = i + 1;
        stop = p->stop;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    probing_drop(p, 1);
    return NULL;
}

static void fill_unanswered(const struct probing *p, uint64_t timeout_ms,
                            struct chex_check_result *out) {
    for (size_t i = p->done; i < p->count; i++) {
        struct chex_check_result *r = &out[i];
        memset(r, 0, sizeof *r);
        chex_check_expect(r, "an answer within %.1f s", (double)timeout_ms / 1e3);
        if (i == p->done) {
            chex_check_found(r, "no answer");
            chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                              "a file system or driver of this node hangs; leave the node out");
        } else {
            r->fault = p->checks[i]->fault;
            chex_check_found(r, "not asked: %s did not answer", p->checks[p->done]->name);
            chex_check_worsen(r, CHEX_SKIP, r->fault, "see %s", p->checks[p->done]->name);
        }
    }
}

/* Answers of this rank into out (count). */
static enum chex_status probe(const struct chex_check *const *checks, size_t count,
                              const struct chex_check_context *context, uint64_t timeout_ms,
                              struct chex_check_result *out, struct chex_error *err) {
    const uint64_t until_ns = chex_clock_ns() + timeout_ms * 1000000u;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    struct probing *p = probing_create(checks, count, context);
    if (!p)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, probe_all, p);
    if (rc != 0) {
        probing_drop(p, 2);
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot start a thread for the checks");
    }
    pthread_detach(thread);
    pthread_mutex_lock(&p->lock);
    while (p->done < count && pthread_cond_timedwait(&p->changed, &p->lock, &until) == 0)
        ;
    p->stop = true;
    memcpy(out, p->results, p->done * sizeof *out);
    fill_unanswered(p, timeout_ms, out);
    pthread_mutex_unlock(&p->lock);
    probing_drop(p, 1);
    return CHEX_OK;
}

/* As much as fits. The rest of `to` keeps its zeros. */
static void copy(char *to, size_t size, const char *from) {
    memcpy(to, from, strnlen(from, size - 1));
}

static void fill_card(const struct chex_check_context *c, struct chex_check_card *card) {
    const struct chex_launch *l = c->launch;
    memset(card, 0, sizeof *card);
    card->rank = l->rank;
    card->size = l->size;
    card->local_rank = l->local_rank;
    card->local_size = l->local_size;
    card->node = l->node;
    card->nodes = l->nodes;
    copy(card->method, sizeof card->method, l->method);
    copy(card->host, sizeof card->host, l->host);
    copy(card->gpu, sizeof card->gpu, chex_gpu_visibility_names[c->gpu.visibility]);
    copy(card->visible, sizeof card->visible, c->gpu.visible);
    if (!c->binding)
        return;
    copy(card->cpus, sizeof card->cpus, c->binding->cpus);
    card->cpu_count = c->binding->cpu_count;
    chex_bind_line(l, c->binding, &c->gpu, card->line, sizeof card->line);
}

/* The worst answer, and on which rank where it is not everybody's. */
static void merge(const struct chex_check *check, const struct chex_check_card *cards,
                  const struct chex_check_result *const *column, int n,
                  struct chex_check_result *out) {
    int worst = 0, same = 0;
    for (int r = 1; r < n; r++) {
        const struct chex_check_result *a = column[r], *b = column[worst];
        if (a->verdict > b->verdict ||
            (a->verdict == b->verdict && a->verdict == CHEX_FAIL && a->fault > b->fault))
            worst = r;
    }
    *out = *column[worst];
    for (int r = 0; r < n; r++)
        same += column[r]->verdict == out->verdict;
    if (n > 1 && out->verdict >= CHEX_WARN)
        chex_check_found(out, "rank %d (%s)%s: %.180s", cards[worst].rank, cards[worst].host,
                         same == n ? ", as all others" : "", column[worst]->found);
    if (check->across)
        check->across(cards, column, n, out);
}

static enum chex_status compare(struct chex_check_report *r, struct chex_error *err) {
    const struct chex_check_result **column = chex_mem_zalloc((size_t)r->ranks, sizeof *column);
    if (!column)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (size_t i = 0; i < r->count; i++) {
        for (int k = 0; k < r->ranks; k++)
            column[k] = &r->all[(size_t)k * r->count + i];
        merge(r->checks[i], r->cards, column, r->ranks, &r->merged[i]);
    }
    free(column);
    return CHEX_OK;
}

/* The first exchange brings the answers and is the meeting at which clocks are read; the second
 * brings the cards, with the clocks. Ranks leave the meeting within its length of each other. */
static enum chex_status exchange(struct chex_launch *launch, const struct chex_check_context *c,
                                 const struct chex_check_result *mine, uint64_t timeout_ms,
                                 struct chex_check_report *r, struct chex_error *err) {
    struct chex_check_card card;
    char here = 1, *there = chex_mem_zalloc((size_t)launch->size, 1);
    if (!there)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_launch_exchange(launch, "check-answers", mine,
                                               r->count * sizeof *mine, r->all, timeout_ms, err);
    double began = chex_clock_s();
    if (st == CHEX_OK)
        st = chex_launch_exchange(launch, "check-meet", &here, 1, there, timeout_ms, err);
    free(there);
    if (st != CHEX_OK)
        return st;
    fill_card(c, &card);
    card.clock_s = chex_clock_unix_s();
    card.clock_window_s = chex_clock_s() - began;
    return chex_launch_exchange(launch, "check-cards", &card, sizeof card, r->cards, timeout_ms,
                                err);
}

static enum chex_status select_checks(const struct chex_check *const *table,
                                      struct chex_check_report *r, struct chex_error *err) {
    size_t total = 0;
    while (table[total])
        total++;
    const struct chex_check **chosen = chex_mem_zalloc(total + 1, sizeof *chosen);
    if (!chosen)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (size_t i = 0; i < total; i++)
        if (table[i]->modes & (1u << r->mode))
            chosen[r->count++] = table[i];
    r->checks = chosen;
    return CHEX_OK;
}

enum chex_status chex_check_run(const struct chex_check *const *table,
                                const struct chex_check_context *context,
                                const struct chex_check_expected *expected, uint64_t timeout_ms,
                                struct chex_launch *launch, struct chex_check_report *report_out,
                                struct chex_error *err) {
    struct chex_check_report r = {.ranks = launch->size, .mode = context->mode};
    struct chex_check_result *mine = NULL;
    enum chex_status st = select_checks(table ? table : chex_checks, &r, err);
    if (st != CHEX_OK)
        goto out;
    mine = chex_mem_zalloc(r.count, sizeof *mine);
    r.cards = chex_mem_zalloc((size_t)r.ranks, sizeof *r.cards);
    r.all = chex_mem_zalloc((size_t)r.ranks * r.count, sizeof *r.all);
    r.merged = chex_mem_zalloc(r.count, sizeof *r.merged);
    if (!mine || !r.cards || !r.all || !r.merged) {
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
        goto out;
    }
    st = probe(r.checks, r.count, context, timeout_ms, mine, err);
    if (st != CHEX_OK)
        goto out;
    for (size_t i = 0; i < r.count && expected; i++)
        chex_check_expected_apply(expected, r.checks[i]->name, &mine[i]);
    /* Ranks whose probes hung come `timeout_ms` late. */
    st = exchange(launch, context, mine, timeout_ms + 10000, &r, err);
    if (st == CHEX_OK)
        st = compare(&r, err);
out:
    free(mine);
    if (st == CHEX_OK)
        *report_out = r;
    else
        chex_check_report_release(&r);
    return st;
}

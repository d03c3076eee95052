/* SPDX-License-Identifier: Apache-2.0
 *
 * The run: probes on a thread of their own under one deadline (check/prober.h), then two exchanges,
 * then the same comparison on every rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "check/check.h"
#include "check/compare.h"
#include "check/expected.h"
#include "check/prober.h"

/* What each rank says of itself before a stage of which it is not the only one. */
struct standing {
    double left_s;
    int32_t stuck, pad;
};

/* All ranks come together. *out_of_it: the first that is stuck, or -1; *left_s_out: the least time
 * that any of the others has left. */
static enum chex_status meet(struct chex_launch *launch, const struct chex_prober *p,
                             uint64_t timeout_ms, int *out_of_it, double *left_s_out,
                             struct chex_error *err) {
    const struct standing mine = {.left_s = chex_prober_left_s(p),
                                  .stuck = chex_prober_stuck(p) || chex_prober_lost(p)};
    struct standing *all = chex_mem_zalloc((size_t)launch->size, sizeof *all);
    if (!all)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st =
        chex_launch_exchange(launch, "check-start", &mine, sizeof mine, all, timeout_ms, err);
    *out_of_it = -1;
    *left_s_out = mine.left_s;
    for (int r = launch->size - 1; r >= 0 && st == CHEX_OK; r--) {
        if (all[r].stuck)
            *out_of_it = r;
        else if (all[r].left_s < *left_s_out)
            *left_s_out = all[r].left_s;
    }
    free(all);
    return st;
}

/* The check `first`, which begins on all ranks at once, and those behind it that need not. */
static enum chex_status begin_together(struct chex_launch *launch, struct chex_prober *p,
                                       const struct chex_check *const *checks, size_t first,
                                       uint64_t timeout_ms, struct chex_error *err) {
    int stuck;
    double left_s;
    char why[64];
    CHEX_TRY(meet(launch, p, timeout_ms, &stuck, &left_s, err));
    if (checks[first]->start != CHEX_START_ALL)
        return CHEX_OK;
    snprintf(why, sizeof why, "rank %d did not come so far", stuck);
    if (stuck >= 0)
        chex_prober_skip(p, first + 1, why);
    else
        chex_prober_limit(p, left_s);
    return CHEX_OK;
}

static enum chex_status probe(const struct chex_check *const *checks, size_t count,
                              const struct chex_check_context *context, uint64_t timeout_ms,
                              struct chex_launch *launch, struct chex_check_result *out,
                              bool *lost_out, struct chex_error *err) {
    struct chex_prober *p = NULL;
    enum chex_status st = chex_prober_create(checks, count, context, timeout_ms, &p, err);
    for (size_t i = 0, end; st == CHEX_OK && i < count; i = end) {
        for (end = i + 1; end < count && checks[end]->start == CHEX_START_ANY; end++)
            ;
        /* A rank whose probes hang comes up to timeout_ms late. */
        if (checks[i]->start != CHEX_START_ANY)
            st = begin_together(launch, p, checks, i, timeout_ms + 10000, err);
        if (st == CHEX_OK)
            chex_prober_run(p, end);
    }
    if (st == CHEX_OK) {
        chex_prober_answers(p, out);
        *lost_out = chex_prober_lost(p);
    }
    chex_prober_destroy(p);
    return st;
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
    int worst = 0, same = 0, whose;
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
    for (int k = 0; check->figures && check->figures[k].key; k++)
        out->figures[k] = chex_check_worst(&check->figures[k], k, column, n, &whose);
    if (check->across)
        check->across(cards, column, n, out);
    chex_check_compare(check, cards, column, n, out);
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
    card.lost = r->hung;
    card.clock_s = chex_clock_unix_s();
    card.clock_window_s = chex_clock_s() - began;
    st = chex_launch_exchange(launch, "check-cards", &card, sizeof card, r->cards, timeout_ms, err);
    for (int k = 0; k < launch->size && st == CHEX_OK; k++)
        r->hung = r->hung || r->cards[k].lost;
    return st;
}

static enum chex_status select_checks(const struct chex_check *const *table, int level,
                                      struct chex_check_report *r, struct chex_error *err) {
    size_t total = 0;
    while (table[total])
        total++;
    const struct chex_check **chosen = chex_mem_zalloc(total + 1, sizeof *chosen);
    if (!chosen)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (size_t i = 0; i < total; i++)
        if ((table[i]->modes & (1u << r->mode)) && table[i]->level <= (level ? level : 1))
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
    enum chex_status st = select_checks(table ? table : chex_checks, context->level, &r, err);
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
    st = probe(r.checks, r.count, context, timeout_ms, launch, mine, &r.hung, err);
    if (st != CHEX_OK)
        goto out;
    for (size_t i = 0; i < r.count && expected; i++)
        chex_check_expected_apply(expected, r.checks[i], &mine[i]);
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

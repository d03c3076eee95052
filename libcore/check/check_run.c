/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the checks on all ranks and merges their answers.
 *
 * 1. Each rank runs its probes on a separate thread under one deadline (check/prober.h). Checks
 * that must start together are preceded by an exchange, which also tells whether a rank is stuck.
 * 2. Two empty exchanges. The first waits for all ranks. Right after the second each rank reads its
 * clock.
 * 3. Rank 0 collects answers and records (some 30 kB a rank), merges and compares them.
 * 4. Rank 0 tells all ranks the verdicts, so that all end with the same status.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "check/checks.h"
#include "check/compare.h"
#include "check/prober.h"

/* The state that each rank sends before a stage that all ranks start together. */
struct rank_state {
    double left_s;
    int32_t stuck, pad;
};

/* Exchanges the states of all ranks.
 * *stuck_rank_out: the first rank that is stuck, or -1. *left_s_out: the least remaining time of
 * all ranks that are not stuck. */
static enum chex_status exchange_states(struct chex_group *group, const struct chex_prober *p,
                                        int *stuck_rank_out, double *left_s_out,
                                        struct chex_error *err) {
    const struct rank_state mine = {.left_s = chex_prober_left_s(p),
                                    .stuck = chex_prober_stuck(p) || chex_prober_lost(p)};
    CHEX_TRY(chex_group_exchange(group, "check-start", &mine, sizeof mine, err));
    const struct rank_state *all = group->all;
    *stuck_rank_out = -1;
    *left_s_out = mine.left_s;
    for (int r = group->size - 1; r >= 0; r--) {
        if (all[r].stuck)
            *stuck_rank_out = r;
        else if (all[r].left_s < *left_s_out)
            *left_s_out = all[r].left_s;
    }
    return CHEX_OK;
}

/* Prepares check `first`, which starts on all ranks together. A collective check is skipped if a
 * rank is stuck, and gets the least remaining time of all ranks. */
static enum chex_status begin_together(struct chex_group *group, struct chex_prober *p,
                                       const struct chex_check *const *checks, size_t first,
                                       struct chex_error *err) {
    int stuck;
    double left_s;
    char why[64];
    CHEX_TRY(exchange_states(group, p, &stuck, &left_s, err));
    if (checks[first]->start != CHEX_START_ALL)
        return CHEX_OK;
    snprintf(why, sizeof why, "rank %d is stuck in an earlier check", stuck);
    if (stuck >= 0)
        chex_prober_skip(p, first + 1, why);
    else
        chex_prober_limit(p, left_s);
    return CHEX_OK;
}

static enum chex_status probe(struct chex_prober *p, const struct chex_check *const *checks,
                              size_t count, struct chex_group *group, struct chex_check_result *out,
                              bool *lost_out, struct chex_error *err) {
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && checks[end]->start == CHEX_START_ANY; end++)
            ;
        if (checks[i]->start != CHEX_START_ANY)
            CHEX_TRY(begin_together(group, p, checks, i, err));
        chex_prober_run(p, end);
    }
    chex_prober_answers(p, out);
    *lost_out = chex_prober_lost(p);
    return CHEX_OK;
}

/* Copies as much as fits. The rest of `to` stays zero, so the record has no undefined bytes. */
static void copy(char *to, size_t size, const char *from) {
    memcpy(to, from, strnlen(from, size - 1));
}

static void fill_record(const struct chex_check_context *c, struct chex_check_record *record) {
    const struct chex_launch *l = c->launch;
    memset(record, 0, sizeof *record);
    record->rank = l->rank;
    record->size = l->size;
    record->local_rank = l->local_rank;
    record->local_size = l->local_size;
    record->node = l->node;
    record->nodes = l->nodes;
    copy(record->method, sizeof record->method, l->method);
    copy(record->host, sizeof record->host, l->host);
    copy(record->gpu, sizeof record->gpu, chex_gpu_visibility_names[c->gpu.visibility]);
    copy(record->visible, sizeof record->visible, c->gpu.visible);
    if (!c->binding)
        return;
    copy(record->cpus, sizeof record->cpus, c->binding->cpus);
    record->cpu_count = c->binding->cpu_count;
    chex_bind_line(l, c->binding, &c->gpu, record->line, sizeof record->line);
}

/* Sets the largest spread and the first disturbance of all ranks. */
static void merge_noise(const struct chex_check_result *const *column, int n,
                        struct chex_check_result *out) {
    for (int r = 0; r < n; r++) {
        for (int k = 0; k < CHEX_FIGURES; k++)
            if (column[r]->spread[k] > out->spread[k])
                out->spread[k] = column[r]->spread[k];
        if (!out->disturbed[0])
            memcpy(out->disturbed, column[r]->disturbed, sizeof out->disturbed);
    }
}

/* Whether the answers about the path `path` are bad on some nodes only: all ranks there that were
 * asked about it, and half of the nodes at most. */
static bool of_some_nodes(const struct chex_check_record *records,
                          const struct chex_check_result *const *column, const bool *bad, int n,
                          int nodes, uint64_t path) {
    bool any_good = false;
    for (int i = 0; i < n; i++) {
        const bool good = !bad[i] && column[i]->path == path;
        any_good |= good;
        if (bad[i] && column[i]->path != path)
            return false;
        for (int k = 0; good && k < n; k++)
            if (bad[k] && records[k].node == records[i].node)
                return false;
    }
    return path && any_good && 2 * nodes <= records[0].nodes;
}

/* Names the nodes whose ranks have the worst answer, `same` of n ranks. */
static void name_worst(const struct chex_check_record *records,
                       const struct chex_check_result *const *column, int n, int worst, int same,
                       struct chex_check_result *out) {
    char names[CHEX_NODES_BYTES], hosts[CHEX_NODES_BYTES], remedy[sizeof out->remedy];
    bool *bad = chex_alloc_zeroed((size_t)n, sizeof *bad);
    if (!bad || same == n) {
        chex_check_found(out, "rank %d (%s)%s: %s", records[worst].rank, records[worst].host,
                         same == n ? ", as all others" : "", column[worst]->found);
        free(bad);
        return;
    }
    for (int r = 0; r < n; r++)
        bad[r] = column[r]->verdict == out->verdict && column[r]->fault == out->fault;
    const int nodes = chex_check_name_nodes(records, bad, n, true, names, sizeof names);
    chex_check_found(out, "%s: %s", names, column[worst]->found);
    if (out->fault == CHEX_FAULT_USER &&
        of_some_nodes(records, column, bad, n, nodes, column[worst]->path)) {
        (void)chex_check_name_nodes(records, bad, n, false, hosts, sizeof hosts);
        memcpy(remedy, out->remedy, sizeof remedy);
        chex_check_worsen(out, out->verdict, CHEX_FAULT_NODE,
                          "the other nodes are fine: leave out with --exclude=%s; or there: %s",
                          hosts, remedy);
    }
    free(bad);
}

/* Merges the answers of all ranks to one check: the worst verdict with its nodes, the worst
 * figures, then the comparisons. */
static void merge(const struct chex_check *check, const struct chex_check_record *records,
                  const struct chex_check_result *const *column, int n,
                  struct chex_check_result *out) {
    int worst = 0, same = 0, ignored;
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
        name_worst(records, column, n, worst, same, out);
    for (int k = 0; check->figures[k].key; k++)
        out->figures[k] = chex_check_worst(&check->figures[k], k, column, n, &ignored);
    merge_noise(column, n, out);
    if (check->across)
        check->across(records, column, n, out);
    chex_check_compare(check, records, column, n, out);
}

/* column: scratch, (ranks). */
static void compare(struct chex_check_report *r, const struct chex_check_result **column) {
    for (size_t i = 0; i < r->count; i++) {
        for (int k = 0; k < r->ranks; k++)
            column[k] = &r->all[(size_t)k * r->count + i];
        merge(r->checks[i], r->records, column, r->ranks, &r->merged[i]);
    }
}

/* Rank 0 gets answers and records of all ranks.
 * The second exchange synchronises the ranks: all have entered it before one leaves. Each rank
 * reads its clock right after it. The duration of this exchange therefore bounds the
 * difference between the reading times. */
static enum chex_status collect(struct chex_group *group, const struct chex_check_context *c,
                                const struct chex_check_result *mine, struct chex_check_report *r,
                                struct chex_error *err) {
    struct chex_check_record record;
    const char here = 1;
    CHEX_TRY(chex_group_exchange(group, "check-arrive", &here, 1, err));
    const double began = chex_clock_s();
    CHEX_TRY(chex_group_exchange(group, "check-meet", &here, 1, err));
    fill_record(c, &record);
    record.lost = r->hung;
    record.clock_s = chex_clock_unix_s();
    record.clock_window_s = chex_clock_s() - began;
    CHEX_TRY(
        chex_group_collect(group, "check-answers", mine, r->count * sizeof *mine, r->all, err));
    CHEX_TRY(chex_group_collect(group, "check-records", &record, sizeof record, r->records, err));
    for (int k = 0; r->records && k < group->size; k++)
        r->hung = r->hung || r->records[k].lost;
    return CHEX_OK;
}

/* What the other ranks must know of a merged answer. */
struct ruling {
    uint8_t verdict, fault;
};

/* Copies `hung` and the verdicts of rank 0 to all ranks. rulings: scratch, (count + 1). */
static enum chex_status share_verdicts(struct chex_group *group, struct chex_check_report *r,
                                       struct ruling *rulings, struct chex_error *err) {
    for (size_t i = 0; i < r->count; i++)
        rulings[i] = (struct ruling){(uint8_t)r->merged[i].verdict, (uint8_t)r->merged[i].fault};
    rulings[r->count].verdict = r->hung;
    CHEX_TRY(chex_group_broadcast(group, rulings, (r->count + 1) * sizeof *rulings, 0, err));
    for (size_t i = 0; i < r->count; i++) {
        r->merged[i].verdict = (enum chex_verdict)rulings[i].verdict;
        r->merged[i].fault = (enum chex_fault)rulings[i].fault;
    }
    r->hung = rulings[r->count].verdict;
    return CHEX_OK;
}

/* If cpu-share was disturbed, this rank did not get its CPUs. Then all its figures are marked as
 * disturbed. */
static void share_disturbance(const struct chex_check_report *r, struct chex_check_result *mine) {
    const struct chex_check_result *share = NULL;
    for (size_t i = 0; i < r->count; i++)
        if (r->checks[i] == &chex_check_cpu_share)
            share = &mine[i];
    for (size_t i = 0; share && share->disturbed[0] && i < r->count; i++)
        if (chex_check_measured(r->checks[i], &mine[i]) && !mine[i].disturbed[0])
            memcpy(mine[i].disturbed, share->disturbed, sizeof share->disturbed);
}

static enum chex_status select_checks(const struct chex_check *const *table, int level,
                                      struct chex_check_report *r, struct chex_error *err) {
    size_t total = 0;
    while (table[total])
        total++;
    const struct chex_check **chosen = chex_alloc_zeroed(total + 1, sizeof *chosen);
    if (!chosen)
        return chex_error_memory(err, NULL);
    for (size_t i = 0; i < total; i++)
        if ((table[i]->modes & (1u << r->mode)) && table[i]->level <= (level ? level : 1))
            chosen[r->count++] = table[i];
    r->checks = chosen;
    return CHEX_OK;
}

enum chex_status chex_check_run(const struct chex_check *const *table,
                                const struct chex_check_context *context, uint64_t timeout_ms,
                                struct chex_group *group, struct chex_check_report *report_out,
                                struct chex_error *err) {
    struct chex_check_report r = {.ranks = group->size, .mode = context->mode};
    const bool compares = group->rank == 0;
    const size_t ranks = (size_t)r.ranks;
    struct chex_check_result *mine = NULL;
    const struct chex_check_result **column = NULL;
    struct ruling *rulings = NULL;
    struct chex_prober *prober = NULL;
    enum chex_status st = select_checks(table ? table : chex_checks, context->level, &r, err);
    if (st == CHEX_OK) {
        mine = chex_alloc_zeroed(r.count, sizeof *mine);
        rulings = chex_alloc_zeroed(r.count + 1, sizeof *rulings);
        r.merged = chex_alloc_zeroed(r.count, sizeof *r.merged);
        if (compares) {
            column = chex_alloc_zeroed(ranks, sizeof *column);
            r.records = chex_alloc_zeroed(ranks, sizeof *r.records);
            r.all = chex_alloc_zeroed(ranks * r.count, sizeof *r.all);
        }
        if (!mine || !rulings || !r.merged || (compares && (!column || !r.records || !r.all)))
            st = chex_error_memory(err, NULL);
    }
    if (st == CHEX_OK)
        st = chex_prober_create(r.checks, r.count, context, timeout_ms, &prober, err);
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = probe(prober, r.checks, r.count, group, mine, &r.hung, err);
    chex_prober_destroy(prober);
    if (st == CHEX_OK) {
        share_disturbance(&r, mine);
        for (size_t i = 0; i < r.count && context->expected; i++)
            if (!context->root || r.checks[i]->recorded)
                chex_check_expected_apply(context->expected, r.checks[i], &mine[i]);
        st = collect(group, context, mine, &r, err);
    }
    if (st == CHEX_OK && compares)
        compare(&r, column);
    if (st == CHEX_OK)
        st = share_verdicts(group, &r, rulings, err);
    free(mine);
    free(column);
    free(rulings);
    if (st == CHEX_OK)
        *report_out = r;
    else
        chex_check_report_release(&r);
    return st;
}

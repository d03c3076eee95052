/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds slow outliers among nodes, or among the ranks of one node. The rule is in check/outlier.h.
 */
#include "check/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check/outlier.h"

/* The units that are compared: nodes, or the ranks of one node. Each has the value of its worst
 * rank. */
struct units {
    int count;
    int *rank;
    double *value;
};

static bool worse(const struct chex_check_measurement *f, double a, double b) {
    return f->lower_is_better ? a > b : a < b;
}

double chex_check_worst(const struct chex_check_measurement *figure, int index,
                        const struct chex_check_result *const *all, int n, int *rank_out) {
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const double v = all[i]->figures[index];
        if (v <= 0 || (worst > 0 && !worse(figure, v, worst)))
            continue;
        worst = v;
        *rank_out = i;
    }
    return worst;
}

/* The unit of rank i, or u->count if it has none yet. */
static int unit_of(const struct units *u, const struct chex_check_record *records, int i) {
    int k = u->count;
    if (records[i].nodes > 1)
        for (k = 0; k < u->count && records[u->rank[k]].node != records[i].node; k++)
            ;
    return k;
}

/* Collects all units of the same kind as rank `first`, the first rank of that kind. */
static void collect(const struct chex_check_measurement *f, int index,
                    const struct chex_check_record *records,
                    const struct chex_check_result *const *all, int first, int n, struct units *u) {
    u->count = 0;
    for (int i = first; i < n; i++) {
        const double v = all[i]->figures[index];
        if (v <= 0 || all[i]->kind != all[first]->kind)
            continue;
        const int k = unit_of(u, records, i);
        if (k < u->count && !worse(f, v, u->value[k]))
            continue;
        u->rank[k] = i;
        u->value[k] = v;
        u->count += k == u->count;
    }
}

static bool shares_cpus(const struct chex_check_record *records, int n, int i) {
    for (int j = 0; j < n; j++)
        if (j != i && strcmp(records[j].host, records[i].host) == 0 &&
            chex_check_share_cpus(records[j].cpus, records[i].cpus))
            return true;
    return false;
}

static void blame(const struct chex_check *check, const struct chex_check_measurement *f,
                  const struct chex_check_record *records,
                  const struct chex_check_result *const *all, int n, const struct units *u,
                  const struct chex_outlier *o, struct chex_check_result *merged) {
    const struct chex_check_record *c = &records[u->rank[o->worst]];
    const char *disturbed = all[u->rank[o->worst]]->disturbed;
    const bool nodes = c->nodes > 1, shared = shares_cpus(records, n, u->rank[o->worst]);
    char more[48] = "";
    if (o->count > 1)
        snprintf(more, sizeof more, "; %d %s are slow", o->count, nodes ? "nodes" : "ranks");
    if (merged->verdict > CHEX_WARN)
        return;
    chex_check_expect(merged, "no %s 10 %% slower than the others", nodes ? "node" : "rank");
    chex_check_found(
        merged, "rank %d (%s): %.4g %s, %.0f %% slower than the %s of %d %s, %.4g %s%s", c->rank,
        c->host, u->value[o->worst], f->unit, o->percent, u->count == 2 ? "better" : "median",
        u->count, nodes ? "nodes" : "ranks", o->median, f->unit, more);
    if (shared)
        chex_check_worsen(merged, CHEX_WARN, CHEX_FAULT_USER,
                          "it shares its CPUs: fewer ranks a node, or srun --cpu-bind=cores");
    else if (disturbed[0])
        chex_check_worsen(merged, CHEX_WARN, CHEX_FAULT_USER,
                          "%s meanwhile: measure again when the nodes are idle, with srun "
                          "--exclusive",
                          disturbed);
    else if (o->far && !f->warn_only)
        chex_check_worsen(merged, CHEX_FAIL, CHEX_FAULT_NODE,
                          "leave it out with --exclude=%s; for an administrator: scontrol update "
                          "nodename=%s state=drain reason=\"chex-env %s\"",
                          c->host, c->host, check->name);
    else
        chex_check_worsen(merged, CHEX_WARN, CHEX_FAULT_NODE,
                          "measure again; if it stays so, leave it out with --exclude=%s and tell "
                          "the administrators",
                          c->host);
}

/* Whether rank i is the first rank of its kind that has a value. */
static bool first_of_kind(const struct chex_check_result *const *all, int index, int i) {
    if (all[i]->figures[index] <= 0)
        return false;
    for (int j = 0; j < i; j++)
        if (all[j]->figures[index] > 0 && all[j]->kind == all[i]->kind)
            return false;
    return true;
}

static void spread(const struct chex_check_measurement *f, int index,
                   const struct chex_check_record *records,
                   const struct chex_check_result *const *all, int n,
                   struct chex_check_result *merged) {
    int worst_rank = 0, best_rank = 0;
    struct chex_check_measurement reversed = *f; /* its worst value is the best one */
    reversed.lower_is_better = !f->lower_is_better;
    const double worst = chex_check_worst(f, index, all, n, &worst_rank);
    const double best = chex_check_worst(&reversed, index, all, n, &best_rank);
    if (worst <= 0 || merged->verdict != CHEX_PASS)
        return;
    char found[sizeof merged->found];
    memcpy(found, merged->found, sizeof found);
    chex_check_found(merged, "%s; of all ranks %.4g to %.4g %s, worst rank %d (%s)", found, worst,
                     best, f->unit, records[worst_rank].rank, records[worst_rank].host);
}

static void compare(const struct chex_check *check, int index,
                    const struct chex_check_record *records,
                    const struct chex_check_result *const *all, int n, struct units *u,
                    struct chex_check_result *merged) {
    const struct chex_check_measurement *f = &check->figures[index];
    struct chex_outlier o;
    if (index == 0)
        spread(f, index, records, all, n, merged);
    for (int i = 0; i < n; i++) {
        if (!first_of_kind(all, index, i))
            continue;
        collect(f, index, records, all, i, n, u);
        if (chex_outlier_find(u->value, u->count, f->lower_is_better, &o))
            blame(check, f, records, all, n, u, &o, merged);
    }
}

void chex_check_compare(const struct chex_check *check, const struct chex_check_record *records,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged) {
    struct units u = {.rank = chex_alloc_zeroed((size_t)n, sizeof *u.rank),
                      .value = chex_alloc_zeroed((size_t)n, sizeof *u.value)};
    for (int k = 0; n > 1 && check->figures[k].key && u.rank && u.value; k++)
        if (check->figures[k].compared)
            compare(check, k, records, all, n, &u, merged);
    free(u.rank);
    free(u.value);
}

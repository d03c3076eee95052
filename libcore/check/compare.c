/* SPDX-License-Identifier: Apache-2.0 */
#include "check/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check/outlier.h"

/* What is compared: nodes, or the ranks of one; each by its worst rank. */
struct units {
    int count;
    int *rank;
    double *value;
};

static bool worse(const struct chex_figure *f, double a, double b) {
    return f->less ? a > b : a < b;
}

double chex_check_worst(const struct chex_figure *figure, int index,
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

/* The unit to which rank i belongs, or units->count where it has none yet. */
static int unit_of(const struct units *u, const struct chex_check_card *cards, int i) {
    int k = u->count;
    if (cards[i].nodes > 1)
        for (k = 0; k < u->count && cards[u->rank[k]].node != cards[i].node; k++)
            ;
    return k;
}

/* All units of the kind of rank `first`, which is the first of that kind. */
static void collect(const struct chex_figure *f, int index, const struct chex_check_card *cards,
                    const struct chex_check_result *const *all, int first, int n, struct units *u) {
    u->count = 0;
    for (int i = first; i < n; i++) {
        const double v = all[i]->figures[index];
        if (v <= 0 || all[i]->kind != all[first]->kind)
            continue;
        const int k = unit_of(u, cards, i);
        if (k < u->count && !worse(f, v, u->value[k]))
            continue;
        u->rank[k] = i;
        u->value[k] = v;
        u->count += k == u->count;
    }
}

static bool shares_cpus(const struct chex_check_card *cards, int n, int i) {
    for (int j = 0; j < n; j++)
        if (j != i && strcmp(cards[j].host, cards[i].host) == 0 &&
            chex_check_share_cpus(cards[j].cpus, cards[i].cpus))
            return true;
    return false;
}

static void blame(const struct chex_check *check, const struct chex_figure *f,
                  const struct chex_check_card *cards, int n, const struct units *u,
                  const struct chex_outlier *o, struct chex_check_result *merged) {
    const struct chex_check_card *c = &cards[u->rank[o->worst]];
    const bool nodes = c->nodes > 1, shared = shares_cpus(cards, n, u->rank[o->worst]);
    char more[48] = "";
    if (o->count > 1)
        snprintf(more, sizeof more, "; %d %s are behind", o->count, nodes ? "nodes" : "ranks");
    if (merged->verdict > CHEX_WARN)
        return;
    chex_check_expect(merged, "no %s 10 %% behind the others", nodes ? "node" : "rank");
    chex_check_found(merged, "rank %d (%s): %.4g %s, %.0f %% behind the %s of %d %s, %.4g %s%s",
                     c->rank, c->host, u->value[o->worst], f->unit, o->percent,
                     u->count == 2 ? "better" : "median", u->count, nodes ? "nodes" : "ranks",
                     o->median, f->unit, more);
    if (shared)
        chex_check_worsen(merged, CHEX_WARN, CHEX_FAULT_USER,
                          "it shares its CPUs: fewer ranks a node, or srun --cpu-bind=cores");
    else if (o->far && !f->gentle)
        chex_check_worsen(
            merged, CHEX_FAIL, CHEX_FAULT_NODE,
            "leave it out with --exclude=%.60s; for an administrator: scontrol update "
            "nodename=%.60s state=drain reason=\"chex-env %.20s\"",
            c->host, c->host, check->name);
    else
        chex_check_worsen(
            merged, CHEX_WARN, CHEX_FAULT_NODE,
            "measure again; if it stays so, leave it out with --exclude=%.60s and tell "
            "the administrators",
            c->host);
}

/* Whether no rank before i has both a value and the kind of rank i. */
static bool first_of_kind(const struct chex_check_result *const *all, int index, int i) {
    if (all[i]->figures[index] <= 0)
        return false;
    for (int j = 0; j < i; j++)
        if (all[j]->figures[index] > 0 && all[j]->kind == all[i]->kind)
            return false;
    return true;
}

static void spread(const struct chex_figure *f, int index, const struct chex_check_card *cards,
                   const struct chex_check_result *const *all, int n,
                   struct chex_check_result *merged) {
    int who = 0, other = 0;
    struct chex_figure turned = *f;
    turned.less = !f->less;
    const double worst = chex_check_worst(f, index, all, n, &who);
    const double best = chex_check_worst(&turned, index, all, n, &other);
    if (worst <= 0 || merged->verdict != CHEX_PASS)
        return;
    char found[sizeof merged->found];
    memcpy(found, merged->found, sizeof found);
    chex_check_found(merged, "%.140s; of all ranks %.4g to %.4g %s, worst rank %d (%s)", found,
                     worst, best, f->unit, cards[who].rank, cards[who].host);
}

static void compare(const struct chex_check *check, int index, const struct chex_check_card *cards,
                    const struct chex_check_result *const *all, int n, struct units *u,
                    struct chex_check_result *merged) {
    const struct chex_figure *f = &check->figures[index];
    struct chex_outlier o;
    if (index == 0)
        spread(f, index, cards, all, n, merged);
    for (int i = 0; i < n; i++) {
        if (!first_of_kind(all, index, i))
            continue;
        collect(f, index, cards, all, i, n, u);
        if (chex_outlier_find(u->value, u->count, f->less, &o))
            blame(check, f, cards, n, u, &o, merged);
    }
}

void chex_check_compare(const struct chex_check *check, const struct chex_check_card *cards,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged) {
    struct units u = {.rank = chex_mem_zalloc((size_t)n, sizeof *u.rank),
                      .value = chex_mem_zalloc((size_t)n, sizeof *u.value)};
    for (int k = 0; n > 1 && check->figures && check->figures[k].key && u.rank && u.value; k++)
        if (check->figures[k].compared)
            compare(check, k, cards, all, n, &u, merged);
    free(u.rank);
    free(u.value);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a check that ended because ranks did not come to an exchange: their node hangs, or
 * it lacks the command. There are no answers to compare, so the report has one failed row for each
 * node with lost ranks, at the fault of that node. If it is not known which, one row says so.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check/checks.h"

/* A node with lost ranks. */
struct lost_node {
    char name[CHEX_HOST_BYTES];
    int first, count; /* of its ranks */
};

/* Fills nodes (launch->size) and returns their number. 0: it is not known which nodes are at fault:
 * a name is missing, or most nodes are lost, so the fault may be here. */
static int find_nodes(const struct chex_launch *launch, struct lost_node *nodes) {
    int count = 0;
    for (int rank = 0; launch->came && rank < launch->size; rank++) {
        int k = 0;
        if (launch->came[rank])
            continue;
        chex_launch_host(launch, rank, nodes[count].name, sizeof nodes[count].name);
        if (strchr(nodes[count].name, ' ')) /* "host unknown" */
            return 0;
        while (strcmp(nodes[k].name, nodes[count].name) != 0)
            k++;
        if (k == count)
            nodes[count++].first = rank;
        nodes[k].count++;
    }
    return 2 * count > launch->nodes ? 0 : count;
}

static void blame(const struct lost_node *node, const char *why, struct chex_check_result *row) {
    chex_check_found(row, "rank %d (%s)%s: no answer", node->first, node->name,
                     node->count == 1 ? "" : ", and others of this node");
    chex_check_worsen(row, CHEX_FAIL, CHEX_FAULT_NODE,
                      "leave the node out with --exclude=%s; the node hangs, or lacks this command "
                      "(%s)",
                      node->name, why);
}

static void blame_none(const char *why, struct chex_check_result *row) {
    chex_check_found(row, "%s", why);
    chex_check_worsen(row, CHEX_FAIL, CHEX_FAULT_UNKNOWN,
                      "if a task has ended, srun names it and its node: leave that node out with "
                      "--exclude");
}

enum chex_status chex_check_lost(const struct chex_launch *launch, const char *why,
                                 struct chex_check_report *report_out, bool *speaks_out,
                                 struct chex_error *err) {
    const size_t size = (size_t)launch->size;
    int speaker = 0;
    struct chex_check_report r = {.ranks = 1, .mode = CHEX_MODE_JOB, .hung = true};
    struct lost_node *nodes = chex_alloc_zeroed(size + 1, sizeof *nodes);
    const struct chex_check **checks = chex_alloc_zeroed(size + 1, sizeof *checks);
    r.checks = checks;
    r.records = chex_alloc_zeroed(1, sizeof *r.records);
    r.all = chex_alloc_zeroed(size, sizeof *r.all);
    r.merged = chex_alloc_zeroed(size, sizeof *r.merged);
    if (!nodes || !checks || !r.records || !r.all || !r.merged) {
        free(nodes);
        chex_check_report_release(&r);
        return chex_error_memory(err, NULL);
    }
    const int lost = find_nodes(launch, nodes);
    r.count = lost ? (size_t)lost : 1;
    for (size_t k = 0; k < r.count; k++) {
        checks[k] = &chex_check_ranks;
        chex_check_expect(&r.merged[k], "an answer of all %d ranks", launch->size);
        if (lost)
            blame(&nodes[k], why, &r.merged[k]);
        else
            blame_none(why, &r.merged[k]);
        r.all[k] = r.merged[k];
    }
    while (launch->came && !launch->came[speaker])
        speaker++;
    r.records->size = launch->size;
    r.records->nodes = launch->nodes;
    *speaks_out = speaker == launch->rank;
    *report_out = r;
    free(nodes);
    return CHEX_OK;
}

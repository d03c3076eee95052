/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a check that ended because ranks did not come to an exchange: their node hangs, or
 * it lacks the command. There are no answers to compare, so the report has one failed row for each
 * node with lost ranks, at the fault of that node.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "check/checks.h"

/* Fills the row of the node of rank `first`. */
static void fill_row(const struct chex_launch *launch, int first, const char *node, int count,
                     const char *why, struct chex_check_result *row) {
    chex_check_expect(row, "an answer of all %d ranks", launch->size);
    chex_check_found(row, "rank %d (%s)%s: no answer", first, node,
                     count == 1 ? "" : ", and others of this node");
    chex_check_worsen(row, CHEX_FAIL, CHEX_FAULT_NODE,
                      "leave the node out with --exclude=%s; the node hangs, or lacks this command "
                      "(%s)",
                      node, why);
}

enum chex_status chex_check_lost(const struct chex_launch *launch, const char *why,
                                 struct chex_check_report *report_out, bool *speaks_out,
                                 struct chex_error *err) {
    const int size = launch->size;
    int speaker = 0, rows = 0;
    if (!launch->came)
        return CHEX_E_LOST;
    struct chex_check_report r = {.ranks = 1, .mode = CHEX_MODE_JOB, .hung = true};
    char(*nodes)[CHEX_HOST_BYTES] = chex_alloc_zeroed((size_t)size, sizeof *nodes);
    int *first = chex_alloc_zeroed((size_t)size, sizeof *first);
    int *count = chex_alloc_zeroed((size_t)size, sizeof *count);
    const struct chex_check **checks = chex_alloc_zeroed((size_t)size + 1, sizeof *checks);
    r.checks = checks;
    r.records = chex_alloc_zeroed(1, sizeof *r.records);
    r.all = chex_alloc_zeroed((size_t)size, sizeof *r.all);
    r.merged = chex_alloc_zeroed((size_t)size, sizeof *r.merged);
    enum chex_status st = CHEX_OK;
    if (!nodes || !first || !count || !checks || !r.records || !r.all || !r.merged)
        st = chex_error_memory(err, NULL);
    for (int rank = 0; st == CHEX_OK && rank < size; rank++) {
        int k = 0;
        if (launch->came[rank])
            continue;
        chex_launch_host(launch, rank, nodes[rows], sizeof nodes[rows]);
        if (strchr(nodes[rows], ' ')) /* "host unknown" */
            st = CHEX_E_LOST;
        while (strcmp(nodes[k], nodes[rows]) != 0)
            k++;
        if (k == rows)
            first[rows++] = rank;
        count[k]++;
    }
    /* If most nodes are lost, the fault may be here. */
    if (st == CHEX_OK && (rows == 0 || 2 * rows > launch->nodes))
        st = CHEX_E_LOST;
    for (int k = 0; st == CHEX_OK && k < rows; k++) {
        checks[k] = &chex_check_ranks;
        fill_row(launch, first[k], nodes[k], count[k], why, &r.merged[k]);
        r.all[k] = r.merged[k];
    }
    while (st == CHEX_OK && !launch->came[speaker])
        speaker++;
    if (st == CHEX_OK) {
        r.count = (size_t)rows;
        r.records->size = size;
        r.records->nodes = launch->nodes;
        *speaks_out = speaker == launch->rank;
        *report_out = r;
    } else {
        chex_check_report_release(&r);
    }
    free(nodes);
    free(first);
    free(count);
    return st;
}

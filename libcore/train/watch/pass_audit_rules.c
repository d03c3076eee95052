/* SPDX-License-Identifier: Apache-2.0
 *
 * The rotation and the votes of audits.
 */
#include "train/watch/pass_audit_rules.h"

#include "launch/reduce.h"

/* The first rank from `from` on (cyclic) that is neither a nor b, on another node than both if
 * there is one; -1: no such rank. b may be -1. */
static int other_rank(int from, int a, int b, int size, const int *nodes) {
    int found = -1;
    for (int i = 0; i < size; i++) {
        const int r = (from + i) % size;
        if (r == a || r == b)
            continue;
        if (nodes[r] != nodes[a] && (b < 0 || nodes[r] != nodes[b]))
            return r;
        if (found < 0 || (nodes[found] == nodes[a] && nodes[r] != nodes[a]))
            found = r;
    }
    return found;
}

void chex_pass_audit_choose(uint64_t round, int logical_ranks, int size, const int *nodes,
                            struct chex_pass_audit_ranks *out) {
    int from, to;
    *out = (struct chex_pass_audit_ranks){0};
    const uint64_t turn = round / (uint64_t)size;
    out->audited = (int)(round % (uint64_t)size);
    chex_reduce_run(logical_ranks, size, out->audited, &from, &to);
    out->logical_rank = from + (int)(turn % (uint64_t)(to - from));
    if (size == 1)
        return;
    const int next = out->audited + 1 + (int)(turn % (uint64_t)(size - 1));
    out->auditor = other_rank(next, out->audited, -1, size, nodes);
    out->third = other_rank(out->auditor + 1, out->audited, out->auditor, size, nodes);
}

enum chex_pass_audit_fault chex_pass_audit_judge(uint64_t audited, uint64_t auditor,
                                                 uint64_t third) {
    return third == auditor   ? CHEX_PASS_AUDIT_AUDITED
           : third == audited ? CHEX_PASS_AUDIT_AUDITOR
                              : CHEX_PASS_AUDIT_UNKNOWN;
}

/* Boyer and Moore's majority vote: the candidate has more than half if any digest has. */
int chex_pass_audit_odd_one(const uint64_t *digests, int size) {
    uint64_t candidate = 0;
    int votes = 0, count = 0, odd = CHEX_PASS_AUDIT_ALL_EQUAL;
    for (int r = 0; r < size; r++) {
        if (votes == 0)
            candidate = digests[r];
        votes += digests[r] == candidate ? 1 : -1;
    }
    for (int r = size - 1; r >= 0; r--) {
        count += digests[r] == candidate;
        if (digests[r] != candidate)
            odd = r;
    }
    return 2 * count > size ? odd : CHEX_PASS_AUDIT_NO_MAJORITY;
}

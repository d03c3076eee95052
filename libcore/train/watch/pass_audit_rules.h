/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks take part in an audit (train/watch/pass_audit.h), and what follows from their
 * results. Pure functions: all ranks compute the same.
 */
#ifndef CHEX_TRAIN_WATCH_PASS_AUDIT_RULES_H
#define CHEX_TRAIN_WATCH_PASS_AUDIT_RULES_H

#include <stdint.h>

/* The ranks of one audit. With one rank all three are 0; with two, third is -1. */
struct chex_pass_audit_ranks {
    int audited;      /* its pass of logical_rank is repeated */
    int logical_rank; /* one of those that it plays */
    int auditor;      /* repeats the pass */
    int third;        /* decides if the two differ */
};

/* Audit number `round`, from 0.
 * - `size` consecutive audits have every rank as the audited one once.
 * - Auditor and third are on other nodes than the audited rank if there are such. nodes: (size).
 * - They and the logical rank change from one turn to the next. */
void chex_pass_audit_choose(uint64_t round, int logical_ranks, int size, const int *nodes,
                            struct chex_pass_audit_ranks *out);

/* Who is at fault, if the digests of audited and auditor differ. */
enum chex_pass_audit_fault {
    CHEX_PASS_AUDIT_AUDITED,
    CHEX_PASS_AUDIT_AUDITOR,
    CHEX_PASS_AUDIT_UNKNOWN
};
enum chex_pass_audit_fault chex_pass_audit_judge(uint64_t audited, uint64_t auditor,
                                                 uint64_t third);

/* The first rank whose digest is not that of more than half of the ranks.
 * CHEX_PASS_AUDIT_ALL_EQUAL: there is none. CHEX_PASS_AUDIT_NO_MAJORITY: no digest has more than
 * half. */
enum { CHEX_PASS_AUDIT_ALL_EQUAL = -1, CHEX_PASS_AUDIT_NO_MAJORITY = -2 };
int chex_pass_audit_odd_one(const uint64_t *digests, int size);

#endif

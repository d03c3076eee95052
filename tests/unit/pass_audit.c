/* SPDX-License-Identifier: Apache-2.0
 *
 * The rotation and the votes of audits.
 */
#include "train/watch/pass_audit_rules.h"

#include "tap.h"

/* Ranks 0 and 1 on node 0, ranks 2 and 3 on node 1, ranks 4 and 5 on node 2. */
static const int nodes[] = {0, 0, 1, 1, 2, 2};
enum { SIZE = 6, LOGICAL = 13 };

static void test_rotation(void) {
    int audited[SIZE] = {0}, passes[LOGICAL] = {0}, apart = 1, valid = 1;
    for (uint64_t round = 0; round < SIZE * 3; round++) {
        struct chex_pass_audit_ranks w;
        chex_pass_audit_choose(round, LOGICAL, SIZE, nodes, &w);
        audited[w.audited] += round < SIZE;
        passes[w.logical_rank]++;
        valid = valid && w.auditor != w.audited && w.third != w.audited && w.third != w.auditor;
        apart = apart && nodes[w.auditor] != nodes[w.audited] &&
                nodes[w.third] != nodes[w.audited] && nodes[w.third] != nodes[w.auditor];
    }
    int once = 1, all = 1;
    for (int r = 0; r < SIZE; r++)
        once = once && audited[r] == 1;
    for (int v = 0; v < LOGICAL; v++)
        all = all && passes[v] > 0;
    OK(once, "every rank is audited once in as many audits as there are ranks");
    OK(all, "every logical rank is audited in turn");
    OK(valid, "auditor and third are other ranks than the audited one");
    OK(apart, "the three ranks are on three nodes if there are three");
}

static void test_few(void) {
    struct chex_pass_audit_ranks w;
    chex_pass_audit_choose(5, 4, 1, nodes, &w);
    OK(w.audited == 0 && w.auditor == 0 && w.third == 0, "one rank audits itself");
    chex_pass_audit_choose(3, 4, 2, nodes, &w);
    OK(w.audited == 1 && w.auditor == 0 && w.third == -1, "of two ranks there is no third");
    chex_pass_audit_choose(1, 3, 3, nodes, &w);
    OK(w.audited == 1 && w.auditor == 2 && w.third == 0,
       "an auditor of another node comes before a rank of the same node");
}

static void test_votes(void) {
    OK(chex_pass_audit_judge(1, 2, 2) == CHEX_PASS_AUDIT_AUDITED, "the third confirms the auditor");
    OK(chex_pass_audit_judge(1, 2, 1) == CHEX_PASS_AUDIT_AUDITOR,
       "the third confirms the audited rank");
    OK(chex_pass_audit_judge(1, 2, 3) == CHEX_PASS_AUDIT_UNKNOWN, "three results accuse no rank");
    OK(chex_pass_audit_odd_one((const uint64_t[]){7, 7, 7}, 3) == CHEX_PASS_AUDIT_ALL_EQUAL,
       "equal digests have no odd one");
    OK(chex_pass_audit_odd_one((const uint64_t[]){7, 8, 7, 7}, 4) == 1, "the odd one is found");
    OK(chex_pass_audit_odd_one((const uint64_t[]){8, 7, 7}, 3) == 0, "also if it is the first");
    OK(chex_pass_audit_odd_one((const uint64_t[]){7, 8}, 2) == CHEX_PASS_AUDIT_NO_MAJORITY,
       "of two digests none has a majority");
    OK(chex_pass_audit_odd_one((const uint64_t[]){7, 8, 9}, 3) == CHEX_PASS_AUDIT_NO_MAJORITY,
       "three digests have no majority");
}

int main(void) {
    test_rotation();
    test_few();
    test_votes();
    return tap_done();
}

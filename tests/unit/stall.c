/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds the others up, in words. Real stalls are met in tests/slurm.
 */
#include "train/watch/stall.h"

#include "tap.h"

enum { RANKS = 40 };

/* Two ranks a node. */
static void host(void *arg, int rank, char *buf, size_t size) {
    (void)arg;
    snprintf(buf, size, "n%02d", rank / 2);
}

static struct chex_mark marks[RANKS];
static bool came[RANKS];

static struct chex_mark mark(enum chex_phase phase, uint64_t silent_s) {
    return (struct chex_mark){.step = 118, .silent_ms = silent_s * 1000, .phase = (int32_t)phase};
}

/* All of `size` ranks reduce gradients, and have waited for 60 s. */
static struct chex_stall all_wait(int size) {
    for (int r = 0; r < size; r++) {
        marks[r] = mark(CHEX_PHASE_REDUCE, 60);
        marks[r].bucket = 4;
        marks[r].buckets = 7;
        came[r] = true;
    }
    return (struct chex_stall){.size = size, .marks = marks, .came = came, .host = host};
}

static void says(const struct chex_stall *s, const char *wanted, const char *what) {
    char buf[1024];
    chex_stall_culprits(s, buf, sizeof buf);
    OK(strcmp(buf, wanted) == 0, "%s: %s", what, buf);
}

static void check_silent(void) {
    struct chex_stall s = all_wait(4);
    came[3] = false;
    says(&s, "rank 3 on n01 does not answer (stopped, gone or cut off); ranks 0-2 wait",
         "one is silent");
    came[2] = false;
    says(&s, "ranks 2-3 on n01 do not answer (stopped, gone or cut off); ranks 0-1 wait",
         "a node is silent");
    came[2] = true;
    came[1] = false;
    says(&s,
         "rank 1 on n00 does not answer (stopped, gone or cut off); rank 3 on n01 does not answer; "
         "the other 2 ranks wait",
         "ranks of two nodes are silent");
    s.unsure = true;
    says(&s,
         "ranks of several nodes do not answer, perhaps because of one of them; if a task has "
         "ended, srun names it",
         "several are silent, and it is not known who has ended");
    static bool ended[4] = {[2] = true};
    s.ended = ended;
    came[2] = false;
    says(&s, "rank 2 on n01 has ended; the other 3 ranks wait",
         "one has ended, another is silent because of it");
    s = all_wait(2);
    s.setup = true;
    came[0] = false;
    says(&s,
         "rank 0 on n00 does not answer (still setting up, stopped, gone or cut off); rank 1 waits",
         "before the first step");
    s = all_wait(4);
    marks[0] = marks[2] = mark(CHEX_PHASE_WAIT, 60);
    came[3] = false;
    says(&s, "rank 3 on n01 does not answer (stopped, gone or cut off); ranks 0-2 wait",
         "within a sum that others have the result of");
    marks[1] = mark(CHEX_PHASE_UPDATE, 60);
    says(&s,
         "rank 1 on n00 has been updating for 60 s; rank 3 on n01 does not answer (stopped, gone "
         "or cut off); the other 2 ranks wait",
         "an update waits for no rank");
}

static void check_behind(void) {
    struct chex_stall s = all_wait(4);
    marks[2] = mark(CHEX_PHASE_DATA, 61);
    says(&s, "rank 2 on n01 has been waiting for data for 61 s; the other 3 ranks wait",
         "one waits for data");
    marks[3] = mark(CHEX_PHASE_COMPUTE, 3);
    says(&s,
         "rank 2 on n01 has been waiting for data for 61 s; rank 3 on n01 is computing, and moved "
         "3 s ago; ranks 0-1 wait",
         "and another one is slow");
    came[3] = false;
    says(&s,
         "rank 2 on n01 has been waiting for data for 61 s; rank 3 on n01 does not answer "
         "(stopped, gone or cut off); ranks 0-1 wait",
         "and is silent");
    s = all_wait(3);
    for (int r = 0; r < 3; r++)
        marks[r] = mark(CHEX_PHASE_STATISTICS, 60);
    marks[1] = mark(CHEX_PHASE_COMPUTE, 60);
    says(&s, "rank 1 on n00 has been computing for 60 s; the other 2 ranks wait",
         "one has not come to a sum of --sync-bn");
    s = all_wait(3);
    marks[0] = mark(CHEX_PHASE_WAIT, 60);
    says(&s,
         "rank 1 on n00 has been reducing gradients for 60 s; rank 2 on n01 has been reducing "
         "gradients for 60 s; rank 0 waits",
         "all but one are behind it");
    s = all_wait(4);
    marks[0] = mark(CHEX_PHASE_WAIT, 60);
    marks[3] = mark(CHEX_PHASE_COMPUTE, 60);
    says(&s, "rank 3 on n01 has been computing for 60 s; ranks 0-2 wait",
         "but not where one has not come to the sums");
    s = all_wait(4);
    for (int r = 0; r < 4; r++)
        marks[r] = mark(CHEX_PHASE_WAIT, 60);
    marks[0] = mark(CHEX_PHASE_SAVE, 60);
    says(&s, "rank 0 on n00 has been saving a checkpoint for 60 s; ranks 1-3 wait",
         "all wait for who saves");
}

/* Ranks of two stages: an exchange has ended on some ranks only. */
static void check_stages(void) {
    struct chex_stall s = all_wait(4);
    for (int r = 0; r < 4; r++)
        marks[r].stage = 9;
    marks[1] = mark(CHEX_PHASE_WAIT, 61);
    marks[1].stage = 8;
    OK(chex_stall_waiter(&s) == 0, "a later stage is further than any phase of an earlier one");
    says(&s, "rank 1 on n00 has been waiting for the other ranks for 61 s; the other 3 ranks wait",
         "one has not left the exchange");
    came[3] = false;
    says(&s, "rank 3 on n01 does not answer (stopped, gone or cut off); ranks 0-2 wait",
         "but not if one is silent");
    came[3] = true;
    marks[3] = mark(CHEX_PHASE_COMPUTE, 60);
    marks[3].stage = 9;
    says(&s, "rank 3 on n01 has been computing for 60 s; ranks 0-2 wait", "or computes");
}

static void check_nobody(void) {
    struct chex_stall s = all_wait(4);
    says(&s, "all 4 ranks answer, and none is late: the network between them, or a device, hangs",
         "no rank is behind");
    marks[0] = mark(CHEX_PHASE_COMPUTE, 60);
    marks[1] = mark(CHEX_PHASE_DATA, 60);
    marks[2] = mark(CHEX_PHASE_SETUP, 60);
    marks[3] = mark(CHEX_PHASE_VALIDATE, 60);
    says(&s, "all 4 ranks answer, and none is late: the network between them, or a device, hangs",
         "nor among phases that need no other rank");
}

static void check_many(void) {
    struct chex_stall s = all_wait(RANKS);
    char small[40];
    for (int r = 0; r < RANKS; r++)
        came[r] = r % 4 > 1;
    says(&s,
         "ranks 0-1 on n00 do not answer (stopped, gone or cut off); ranks 4-5 on n02 do not "
         "answer; ranks 8-9 on n04 do not answer; ranks 12-13 on n06 do not answer; 12 more "
         "ranks are late; the other 20 ranks wait",
         "many are counted");
    chex_stall_culprits(&s, small, sizeof small);
    OK(strlen(small) == sizeof small - 1, "a text that does not fit is cut: %s", small);
}

static void check_place(void) {
    struct chex_stall s = all_wait(4);
    char buf[128];
    OK(strcmp(chex_stall_place(&marks[0], buf, sizeof buf),
              "reducing gradients at step 118, bucket 4 of 7") == 0,
       "a place: %s", buf);
    marks[0] = mark(CHEX_PHASE_WAIT, 60);
    OK(strcmp(chex_stall_place(&marks[0], buf, sizeof buf),
              "waiting for the other ranks at step 118") == 0,
       "another one: %s", buf);
    marks[0] = (struct chex_mark){.phase = CHEX_PHASE_OPEN};
    OK(strcmp(chex_stall_place(&marks[0], buf, sizeof buf),
              "opening the shards before the first step") == 0,
       "in the set-up: %s", buf);
    marks[0] = mark(CHEX_PHASE_COMPUTE, 60);
    marks[2].silent_ms++;
    OK(chex_stall_waiter(&s) == 2, "of those who have come furthest, who has waited longest");
    came[2] = came[1] = came[3] = false;
    OK(chex_stall_waiter(&s) == 0, "or the only one that answers");
}

int main(void) {
    check_silent();
    check_behind();
    check_stages();
    check_nobody();
    check_many();
    check_place();
    return tap_done();
}

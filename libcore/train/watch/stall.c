/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the marks of the ranks into one line of text. The furthest phase of any rank is the front;
 * ranks before it, or without an answer, are late. Neighbouring late ranks in the same phase on one
 * node form a group, and the line names up to NAMED_GROUPS groups.
 */
#include "train/watch/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "launch/launch.h"

static const char *const phase_names[] = {[CHEX_PHASE_SETUP] = "setting up",
                                          [CHEX_PHASE_RESTORE] = "reading checkpoints",
                                          [CHEX_PHASE_STAGE] = "copying the shards",
                                          [CHEX_PHASE_OPEN] = "opening the shards",
                                          [CHEX_PHASE_FEATURES] = "computing features",
                                          [CHEX_PHASE_REPORT] = "writing metrics",
                                          [CHEX_PHASE_DATA] = "waiting for data",
                                          [CHEX_PHASE_COMPUTE] = "computing",
                                          [CHEX_PHASE_VALIDATE] = "validating",
                                          [CHEX_PHASE_SAVE] = "saving a checkpoint",
                                          [CHEX_PHASE_STATISTICS] = "exchanging batch statistics",
                                          [CHEX_PHASE_REDUCE] = "reducing gradients",
                                          [CHEX_PHASE_UPDATE] = "updating",
                                          [CHEX_PHASE_WAIT] = "waiting for the other ranks"};

enum { NAMED_GROUPS = 4 }; /* in one message */

static uint64_t newest_stage(const struct chex_stall *s) {
    uint64_t newest = 0;
    for (int r = 0; r < s->size; r++)
        if (s->came[r] && s->marks[r].stage > newest)
            newest = s->marks[r].stage;
    return newest;
}

/* Phases that need no other rank all count as 0: ranks may be in any of them without making others
 * wait. A rank of an earlier stage is in the exchange before the newest one: 1. */
static int progress_of(const struct chex_mark *m, uint64_t newest) {
    if (m->phase < CHEX_PHASE_STATISTICS)
        return 0;
    return m->stage < newest ? 1 : m->phase - CHEX_PHASE_STATISTICS + 2;
}

int chex_stall_waiter(const struct chex_stall *s) {
    const uint64_t newest = newest_stage(s);
    int best = -1;
    for (int r = 0; r < s->size; r++) {
        if (!s->came[r])
            continue;
        const int more =
            best < 0 ? 1 : progress_of(&s->marks[r], newest) - progress_of(&s->marks[best], newest);
        if (more > 0 || (more == 0 && s->marks[r].silent_ms > s->marks[best].silent_ms))
            best = r;
    }
    return best;
}

const char *chex_stall_place(const struct chex_mark *mark, char *buf, size_t size) {
    struct chex_text_line l = {buf, size, 0};
    chex_text_append(&l, "%s ", phase_names[mark->phase]);
    if (mark->step)
        chex_text_append(&l, "at step %llu", (unsigned long long)mark->step);
    else
        chex_text_append(&l, "before the first step");
    if (mark->bucket > 0)
        chex_text_append(&l, ", bucket %d of %d", mark->bucket, mark->buckets);
    return buf;
}

/* The phase of the ranks that only wait. */
struct front {
    uint64_t newest; /* stage of the furthest rank */
    int most;        /* its progress */
    /* A rank has not reached the reduction: ranks in it, or in the exchange before, wait for it. */
    bool sums_wait;
    bool some_ended;
};

static struct front find_front(const struct chex_stall *s) {
    struct front f = {.newest = newest_stage(s)};
    f.most = progress_of(&s->marks[chex_stall_waiter(s)], f.newest);
    for (int r = 0; s->ended && r < s->size; r++)
        f.some_ended |= s->ended[r];
    for (int r = 0; r < s->size; r++)
        f.sums_wait |= !s->came[r] || progress_of(&s->marks[r], f.newest) == 0;
    return f;
}

/* No answer, or an answer from a phase before the front. If ranks have ended: only those. */
static bool is_late(const struct chex_stall *s, int r, const struct front *f) {
    const struct chex_mark *m = &s->marks[r];
    if (f->some_ended)
        return s->ended[r];
    if (!s->came[r])
        return true;
    const int progress = progress_of(m, f->newest);
    const bool in_sum = m->phase == CHEX_PHASE_REDUCE || (progress > 0 && m->stage < f->newest);
    return progress < f->most && !(f->sums_wait && in_sum);
}

static void name_ranks(int from, int to, struct chex_text_line *l) {
    if (to - from == 1)
        chex_text_append(l, "rank %d", from);
    else
        chex_text_append(l, "ranks %d-%d", from, to - 1);
}

/* The end of the group that starts with rank `from`: late ranks on one node, all silent or all in
 * the same phase. */
static int group_end(const struct chex_stall *s, int from, const struct front *f,
                     const char *node) {
    int to = from + 1;
    for (; to < s->size && is_late(s, to, f) && s->came[to] == s->came[from]; to++) {
        char other[CHEX_HOST_BYTES];
        s->host(s->arg, to, other, sizeof other);
        if (strcmp(node, other) != 0 || (s->came[to] && s->marks[to].phase != s->marks[from].phase))
            break;
    }
    return to;
}

/* longest_ms: how long the front has waited. The possible reasons of silence are printed only in
 * the first group. */
static void name_group(const struct chex_stall *s, int from, int to, const char *node,
                       uint64_t longest_ms, struct chex_text_line *l) {
    const struct chex_mark *m = &s->marks[from];
    const bool one = to - from == 1, first = !strstr(l->text, " not answer");
    name_ranks(from, to, l);
    chex_text_append(l, " on %s ", node);
    if (s->ended && s->ended[from])
        chex_text_append(l, "%s ended", one ? "has" : "have");
    else if (!s->came[from])
        chex_text_append(l, "%s not answer%s", one ? "does" : "do",
                         !first     ? ""
                         : s->setup ? " (still setting up, stopped, gone or cut off)"
                                    : " (stopped, gone or cut off)");
    else if (m->silent_ms < longest_ms / 2)
        chex_text_append(l, "%s %s, and moved %.0f s ago", one ? "is" : "are",
                         phase_names[m->phase], (double)m->silent_ms / 1e3);
    else
        chex_text_append(l, "%s been %s for %.0f s", one ? "has" : "have", phase_names[m->phase],
                         (double)m->silent_ms / 1e3);
}

/* count: the number of ranks that are not late. */
static void name_waiters(const struct chex_stall *s, const struct front *f, int count,
                         struct chex_text_line *l) {
    int from = 0, to;
    while (is_late(s, from, f))
        from++;
    for (to = from; to < s->size && !is_late(s, to, f); to++)
        ;
    if (to - from == count)
        name_ranks(from, to, l);
    else
        chex_text_append(l, "the other %d ranks", count);
    chex_text_append(l, " wait%s", count == 1 ? "s" : "");
}

/* Whether ranks of two or more nodes do not answer. */
static bool several_silent(const struct chex_stall *s) {
    char first[CHEX_HOST_BYTES] = "", node[CHEX_HOST_BYTES];
    for (int r = 0; r < s->size; r++) {
        if (s->came[r])
            continue;
        s->host(s->arg, r, node, sizeof node);
        if (first[0] && strcmp(node, first) != 0)
            return true;
        memcpy(first, node, sizeof first);
    }
    return false;
}

const char *chex_stall_culprits(const struct chex_stall *s, char *buf, size_t size) {
    const struct chex_mark *waiter = &s->marks[chex_stall_waiter(s)];
    const struct front front = find_front(s);
    struct chex_text_line line = {buf, size, 0}, *l = &line;
    int late = 0, named = 0, groups = 0;
    buf[0] = '\0';
    for (int r = 0; r < s->size; r++)
        late += is_late(s, r, &front);
    if (late == 0) {
        snprintf(
            buf, size,
            "all %d ranks answer, and none is late: the network between them, or a device, hangs",
            s->size);
        return buf;
    }
    if (s->unsure && !front.some_ended && several_silent(s)) {
        snprintf(buf, size,
                 "ranks of several nodes do not answer, perhaps because of one of them; if a task "
                 "has ended, srun names it");
        return buf;
    }
    for (int r = 0; r < s->size && groups < NAMED_GROUPS;) {
        if (!is_late(s, r, &front)) {
            r++;
            continue;
        }
        char node[CHEX_HOST_BYTES];
        s->host(s->arg, r, node, sizeof node);
        const int to = group_end(s, r, &front, node);
        chex_text_append(l, "%s", groups++ ? "; " : "");
        name_group(s, r, to, node, waiter->silent_ms, l);
        named += to - r;
        r = to;
    }
    if (named < late)
        chex_text_append(l, "; %d more ranks are late", late - named);
    chex_text_append(l, "; ");
    name_waiters(s, &front, s->size - late, l);
    return buf;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Audits. All ranks take part in the exchanges and see the same hashes, so they decide the same.
 */
#include "train/watch/pass_audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "train/store/provenance.h"
#include "train/store/save.h"
#include "train/watch/pass_audit_rules.h"

/* The hashes of one pass; the same number of bytes on all ranks. `whole` is that of all that
 * follows it. */
struct print {
    uint64_t whole;
    uint64_t input; /* rows and labels of the batch */
    double loss;
    uint64_t tensors[]; /* of the gradient of each parameter, then of each batch statistic */
};

/* The passes that are compared. */
enum { AUDITED, AUDITOR, THIRD, AUDITED_AGAIN, AUDITOR_AGAIN, PRINTS };

/* What ranks send to each other at the start. */
struct place {
    struct chex_machine machine;
    int32_t node;
};

struct chex_pass_audit {
    struct chex_pass_audit_ranks who; /* of the present step */
    bool due;
    struct place *places; /* (size) */
    int *nodes;           /* (size) */
    uint64_t *passed;     /* (size): the last step at which the rank passed an audit */
    uint64_t agreed;      /* the last step after which all ranks had the same parameters */
    float *grad;          /* of the engine */
    float *host;          /* (state_count) in row-major order */
    struct print *prints[PRINTS];
    size_t print_bytes;
};

static uint64_t present_step(const struct chex_session *s) { return s->at.step + 1; }

/* ---- one pass ---- */

/* Hashes a gradient. The order of the elements is that of the files, whatever the engine's is. */
static enum chex_status take_print(struct chex_session *s, const struct chex_ready *ready,
                                   const float *grad, double loss, struct print *out,
                                   struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    const struct chex_batch *b = &ready->batch;
    CHEX_TRY(s->engine->impl->grad_get(s->engine->self, grad, a->host, err));
    out->input = chex_hash64_mix(0, ready->rows, (size_t)b->n * sizeof *ready->rows);
    out->input = chex_hash64_mix(out->input, b->labels, (size_t)b->n * (size_t)s->net->classes);
    out->loss = loss;
    for (int i = 0; i < s->net->param_total; i++) {
        const struct chex_param *p = &s->net->params[i];
        out->tensors[i] = chex_hash64(a->host + p->offset, p->count * sizeof *a->host);
    }
    out->whole = chex_hash64(&out->input, a->print_bytes - sizeof out->whole);
    return CHEX_OK;
}

/* Repeats the pass of logical rank v of the present step, from the shards on. */
static enum chex_status repeat_pass(struct chex_session *s, int v, struct print *out,
                                    struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    struct chex_train_input_one one;
    struct chex_pass_result result;
    chex_watchdog_at(s->world.watchdog, CHEX_PHASE_COMPUTE);
    CHEX_TRY(chex_train_input_one_open(&s->input, v, s->at.epoch, s->at.step_in_epoch, &one, err));
    enum chex_status st =
        chex_engine_pass(s->engine, &one.ready.batch, a->grad, NULL, NULL, &result, err);
    if (st == CHEX_OK)
        st = take_print(s, &one.ready, a->grad, result.loss, out, err);
    chex_train_input_one_close(&one);
    return st;
}

enum chex_status chex_pass_audit_step_pass(struct chex_session *s, const struct chex_ready *ready,
                                           int v, struct chex_pass_result *result,
                                           struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    float *leaf = chex_reduce_leaf(s->reduce, v);
    if (a && v == s->input.run_from) { /* the first pass of the step */
        const uint64_t every = s->config.audit_steps, step = present_step(s);
        a->due = step % every == 0;
        chex_pass_audit_choose(step / every, s->config.logical_ranks, s->size, a->nodes, &a->who);
    }
    if (!a || !a->due || a->who.logical_rank != v)
        return chex_engine_pass(s->engine, &ready->batch, leaf, chex_reduce_ready, s->reduce,
                                result, err);
    CHEX_TRY(chex_engine_pass(s->engine, &ready->batch, leaf, NULL, NULL, result, err));
    CHEX_TRY(take_print(s, ready, leaf, result->loss, a->prints[AUDITED], err));
    chex_reduce_ready(s->reduce, 0, s->net->state_count);
    return CHEX_OK;
}

/* ---- texts ---- */

/* "rank 2 on node3 (DEVICE)". Returns `out`. */
static const char *rank_text(const struct chex_session *s, int rank, char *out, size_t size) {
    char host[CHEX_HOST_BYTES];
    chex_launch_host(s->world.launch, rank, host, sizeof host);
    snprintf(out, size, "rank %d on %s (%s)", rank, host, s->audit->places[rank].machine.device);
    return out;
}

/* Where two passes differ: the input, the loss or the first parameter. */
static const char *where_text(const struct chex_session *s, const struct print *x,
                              const struct print *y) {
    if (x->input != y->input)
        return "the rows or labels of its batch";
    for (int i = 0; i < s->net->param_total; i++)
        if (x->tensors[i] != y->tensors[i])
            return s->net->params[i].name;
    return "the loss";
}

/* Rank 0 sets the checkpoints after `trusted` aside, after the write in progress. `text` gets the
 * end of the message. */
static void go_back(struct chex_session *s, uint64_t trusted, char *text, size_t size) {
    struct chex_error why;
    uint64_t kept = 0;
    text[0] = '\0';
    if (s->rank != 0)
        return;
    (void)chex_session_saved(s, CHEX_HELD_DROP, &why);
    if (chex_checkpoint_store_abandon(s->config.output_dir, trusted, &kept, &why) != CHEX_OK)
        snprintf(text, size, "; the checkpoints after step %llu are not to be trusted (%.200s)",
                 (unsigned long long)trusted, why.text);
    else if (kept)
        snprintf(text, size, "; the next start goes on from step %llu", (unsigned long long)kept);
    else
        snprintf(text, size, "; the next start begins anew");
}

/* Ends the run on all ranks. Only rank 0 prints the text. */
static enum chex_status end_run(struct chex_session *s, uint64_t trusted, const char *text,
                                struct chex_error *err) {
    char back[320];
    go_back(s, trusted, back, sizeof back);
    s->together = true;
    return chex_error_set(err, CHEX_E_NODE, "audit of step %llu: %s%s",
                          (unsigned long long)present_step(s), text, back);
}

void chex_pass_audit_prune(const struct chex_session *s) {
    uint64_t all = UINT64_MAX; /* the last step up to which no rank is in doubt */
    if (!s->audit || s->rank != 0)
        return;
    for (int r = 0; r < s->size; r++)
        all = s->audit->passed[r] < all ? s->audit->passed[r] : all;
    chex_checkpoint_store_prune(s->config.output_dir, s->config.save_keep, all);
}

/* ---- a difference ---- */

/* Repeats for the decision, on the ranks that take part, and gives all ranks the hashes. */
static enum chex_status repeat_all(struct chex_session *s, struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    const struct chex_pass_audit_ranks *w = &a->who;
    const int ranks[PRINTS] = {w->audited, w->auditor, w->third, w->audited, w->auditor};
    enum chex_status st = CHEX_OK;
    for (int i = THIRD; i < PRINTS && st == CHEX_OK; i++)
        if (s->rank == ranks[i] && (i != THIRD || s->size > 2))
            st = repeat_pass(s, w->logical_rank, a->prints[i], err);
    CHEX_TRY(chex_session_agree(s, st, err));
    for (int i = AUDITOR; i < PRINTS; i++)
        if (ranks[i] >= 0)
            CHEX_TRY(chex_group_broadcast(s->world.coll->group, a->prints[i], a->print_bytes,
                                          ranks[i], err));
    return CHEX_OK;
}

/* One rank, which repeated its own pass. */
static enum chex_status accuse_self(struct chex_session *s, struct chex_error *err) {
    const struct chex_pass_audit *a = s->audit;
    char who[320], text[700];
    snprintf(text, sizeof text,
             "%s computed two different gradients of the same batch (first in %s): a device with a "
             "silent fault",
             rank_text(s, 0, who, sizeof who),
             where_text(s, a->prints[AUDITED], a->prints[AUDITOR]));
    return end_run(s, a->passed[0], text, err);
}

/* Two of three agree against `bad`. */
static enum chex_status accuse(struct chex_session *s, enum chex_pass_audit_fault fault,
                               struct chex_error *err) {
    const struct chex_pass_audit *a = s->audit;
    const struct chex_pass_audit_ranks *w = &a->who;
    const bool audited = fault == CHEX_PASS_AUDIT_AUDITED;
    const int bad = audited ? w->audited : w->auditor, good = audited ? w->auditor : w->audited;
    const struct print *first = a->prints[audited ? AUDITED : AUDITOR];
    const struct print *again = a->prints[audited ? AUDITED_AGAIN : AUDITOR_AGAIN];
    const bool wrong_again = again->whole != a->prints[THIRD]->whole;
    char who[320], other[320], third[320], text[1400];
    snprintf(text, sizeof text,
             "%s computed a wrong gradient of logical rank %d: it differs first in %s from that of "
             "%s, which %s confirms; repeated, it was %s: the node has a silent fault",
             rank_text(s, bad, who, sizeof who), w->logical_rank,
             where_text(s, first, a->prints[THIRD]), rank_text(s, good, other, sizeof other),
             rank_text(s, w->third, third, sizeof third),
             wrong_again ? "wrong again" : "right (a transient fault)");
    return end_run(s, a->passed[bad], text, err);
}

/* Two ranks, or three different results: those that differ are named and none is accused. */
static enum chex_status name_both(struct chex_session *s, struct chex_error *err) {
    const struct chex_pass_audit *a = s->audit;
    const struct chex_pass_audit_ranks *w = &a->who;
    const bool same = a->prints[AUDITED_AGAIN]->whole == a->prints[AUDITOR_AGAIN]->whole;
    const uint64_t x = a->passed[w->audited], y = a->passed[w->auditor];
    char who[320], other[320], text[1400];
    snprintf(text, sizeof text,
             "%s and %s computed different gradients of logical rank %d (first in %s); %s, and it "
             "is not known which of the two is wrong; repeated, their results were %s",
             rank_text(s, w->audited, who, sizeof who),
             rank_text(s, w->auditor, other, sizeof other), w->logical_rank,
             where_text(s, a->prints[AUDITED], a->prints[AUDITOR]),
             w->third < 0 ? "there is no third process" : "a third process computed another one",
             same ? "equal (a transient fault)" : "different again");
    return end_run(s, x < y ? x : y, text, err);
}

static enum chex_status decide(struct chex_session *s, struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    CHEX_TRY(repeat_all(s, err));
    if (s->size == 1)
        return accuse_self(s, err);
    if (a->who.third < 0)
        return name_both(s, err);
    const enum chex_pass_audit_fault fault = chex_pass_audit_judge(
        a->prints[AUDITED]->whole, a->prints[AUDITOR]->whole, a->prints[THIRD]->whole);
    return fault == CHEX_PASS_AUDIT_UNKNOWN ? name_both(s, err) : accuse(s, fault, err);
}

/* ---- the parameters of all ranks ---- */

/* The first rank with another digest than most (chex_pass_audit_odd_one). Collective. */
static enum chex_status find_odd(struct chex_session *s, uint64_t mine, int *odd_out,
                                 struct chex_error *err) {
    struct chex_group *g = s->world.coll->group;
    chex_watchdog_wait(s->world.watchdog);
    CHEX_TRY(chex_group_exchange(g, "audit", &mine, sizeof mine, err));
    *odd_out = chex_pass_audit_odd_one(g->all, s->size);
    return CHEX_OK;
}

static enum chex_status compare_parameters(struct chex_session *s, struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    char who[320], text[700];
    enum chex_status st = chex_engine_get(s->engine, CHEX_STATE_PARAMS, a->host, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    const uint64_t mine = chex_hash64(a->host, s->net->state_count * sizeof *a->host);
    int odd;
    CHEX_TRY(find_odd(s, mine, &odd, err));
    if (odd == CHEX_PASS_AUDIT_ALL_EQUAL) {
        a->agreed = s->at.step;
        return CHEX_OK;
    }
    if (odd == CHEX_PASS_AUDIT_NO_MAJORITY)
        snprintf(text, sizeof text,
                 "the ranks have different parameters, and none are those of more than half of the "
                 "%d ranks: a node has a silent fault, and it is not known which",
                 s->size);
    else
        snprintf(text, sizeof text,
                 "%s has other parameters than more than half of the %d ranks: the node has a "
                 "silent fault",
                 rank_text(s, odd, who, sizeof who), s->size);
    return end_run(s, a->agreed, text, err);
}

/* ---- an audit ---- */

static void record(struct chex_session *s, double seconds) {
    const struct chex_pass_audit_ranks *w = &s->audit->who;
    struct chex_error why;
    if (s->rank != 0)
        return;
    const enum chex_status st = chex_runfiles_metric(
        &s->files,
        chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("kind", "audit"),
                    CHEX_FIELD("epoch", s->at.epoch + 1), CHEX_FIELD("step", present_step(s)),
                    CHEX_FIELD("rank", w->audited), CHEX_FIELD("auditor", w->auditor),
                    CHEX_FIELD("logical_rank", w->logical_rank), CHEX_FIELD("seconds", seconds)),
        &why);
    chex_session_metric_written(s, st, &why);
}

enum chex_status chex_pass_audit_compare(struct chex_session *s, struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    if (!a || !a->due)
        return CHEX_OK;
    const double from_s = chex_clock_s();
    struct chex_group *g = s->world.coll->group;
    enum chex_status st = CHEX_OK;
    if (s->rank == a->who.auditor)
        st = repeat_pass(s, a->who.logical_rank, a->prints[AUDITOR], err);
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(compare_parameters(s, err));
    CHEX_TRY(chex_group_broadcast(g, a->prints[AUDITED], a->print_bytes, a->who.audited, err));
    uint64_t found = s->rank == a->who.auditor ? a->prints[AUDITOR]->whole : 0;
    CHEX_TRY(chex_group_broadcast(g, &found, sizeof found, a->who.auditor, err));
    if (found != a->prints[AUDITED]->whole)
        return decide(s, err);
    a->passed[a->who.audited] = a->passed[a->who.auditor] = present_step(s);
    record(s, chex_clock_s() - from_s);
    return CHEX_OK;
}

/* ---- the start ---- */

/* Whether two ranks have the same kind of device: the name without the number of the GPU. */
static bool same_kind(const struct place *x, const struct place *y) {
    const char *a = x->machine.device, *b = y->machine.device;
    const char *end = strstr(a, " (GPU-"), *other = strstr(b, " (GPU-");
    const size_t n = end ? (size_t)(end - a) : strlen(a);
    return n == (other ? (size_t)(other - b) : strlen(b)) && strncmp(a, b, n) == 0;
}

static enum chex_status check_engines(struct chex_session *s, struct chex_error *err) {
    const struct place *all = s->audit->places;
    char first[CHEX_MACHINE_BITS_BYTES], other[CHEX_MACHINE_BITS_BYTES], host[CHEX_HOST_BYTES];
    for (int r = 0; r < s->size; r++) {
        const struct chex_machine *m = &all[r].machine;
        chex_machine_bits(m->engine, m->variant, m->precision, r ? other : first);
        if (r == 0 || strcmp(other, first) == 0)
            continue;
        chex_launch_host(s->world.launch, r, host, sizeof host);
        return chex_error_set(err, CHEX_E_ENV,
                              "--audit-steps: rank %d on %s computes with %s, and rank 0 with %s: "
                              "their bits differ; give all ranks one --engine",
                              r, host, other, first);
    }
    return CHEX_OK;
}

static enum chex_status allocate(struct chex_session *s, struct chex_error *err) {
    const size_t size = (size_t)s->size;
    struct chex_pass_audit *a = s->audit = chex_alloc_zeroed(1, sizeof *a);
    CHEX_ALLOCATED(a, err, NULL);
    a->print_bytes = sizeof *a->prints[0] + (size_t)s->net->param_total * sizeof(uint64_t);
    a->places = chex_alloc_zeroed(size, sizeof *a->places);
    a->nodes = chex_alloc_zeroed(size, sizeof *a->nodes);
    a->passed = chex_alloc_zeroed(size, sizeof *a->passed);
    a->grad = chex_engine_grad_alloc(s->engine);
    a->host = chex_alloc_aligned(s->net->state_count, sizeof *a->host);
    bool whole = a->places && a->nodes && a->passed && a->grad && a->host;
    for (int i = 0; i < PRINTS; i++) {
        a->prints[i] = chex_alloc_zeroed(1, a->print_bytes);
        whole = whole && a->prints[i];
    }
    return whole ? CHEX_OK : chex_error_memory(err, "--audit-steps");
}

enum chex_status chex_pass_audit_open(struct chex_session *s, struct chex_error *err) {
    struct place mine;
    if (!s->config.audit_steps)
        return CHEX_OK;
    CHEX_TRY(chex_session_agree(s, allocate(s, err), err));
    memset(&mine, 0, sizeof mine);
    chex_machine_of(s, &mine.machine);
    mine.node = s->world.launch->node;
    CHEX_TRY(chex_group_exchange(s->world.coll->group, "audit", &mine, sizeof mine, err));
    memcpy(s->audit->places, s->world.coll->group->all, (size_t)s->size * sizeof mine);
    for (int r = 0; r < s->size; r++) {
        s->audit->nodes[r] = s->audit->places[r].node;
        s->audit->passed[r] = s->at.step;
    }
    s->audit->agreed = s->at.step;
    return check_engines(s, err);
}

void chex_pass_audit_close(struct chex_session *s) {
    struct chex_pass_audit *a = s->audit;
    if (!a)
        return;
    chex_engine_grad_free(s->engine, a->grad);
    for (int i = 0; i < PRINTS; i++)
        free(a->prints[i]);
    free(a->host);
    free(a->passed);
    free(a->nodes);
    free(a->places);
    free(a);
    s->audit = NULL;
}

double chex_pass_audit_share(const struct chex_session *s) {
    const double passes = s->input.run_to - s->input.run_from;
    return s->config.audit_steps ? 1 / ((double)s->config.audit_steps * passes) : 0;
}

/* The ranks do not all have the same bits, and `odd` is the first to differ. */
static enum chex_status refuse_start(struct chex_session *s, int odd, struct chex_error *err) {
    const struct place *all = s->audit->places;
    char who[320];
    s->together = true;
    for (int r = 1; r < s->size; r++)
        if (!same_kind(&all[r], &all[0]))
            return chex_error_set(err, CHEX_E_ENV,
                                  "--audit-steps: %s and rank 0 (%s) are different devices, and "
                                  "compute different bits: use equal nodes, or train without it",
                                  rank_text(s, r, who, sizeof who), all[0].machine.device);
    if (odd == CHEX_PASS_AUDIT_NO_MAJORITY)
        return chex_error_set(err, CHEX_E_NODE,
                              "audit before the first step: the %d ranks compute different "
                              "gradients of the same batch, and no more than half of them agree: a "
                              "node has a silent fault, and it is not known which",
                              s->size);
    return chex_error_set(err, CHEX_E_NODE,
                          "audit before the first step: %s computes another gradient of the same "
                          "batch than more than half of the %d ranks: the node has a silent fault",
                          rank_text(s, odd, who, sizeof who), s->size);
}

static enum chex_status repeats_itself(struct chex_session *s, double *pass_s_out,
                                       struct chex_error *err) {
    struct chex_pass_audit *a = s->audit;
    char who[320];
    CHEX_TRY(repeat_pass(s, 0, a->prints[AUDITED], err));
    const double from_s = chex_clock_s();
    CHEX_TRY(repeat_pass(s, 0, a->prints[AUDITOR], err));
    *pass_s_out = chex_clock_s() - from_s;
    if (a->prints[AUDITED]->whole == a->prints[AUDITOR]->whole)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_NODE,
                          "audit before the first step: %s computed two different gradients of the "
                          "same batch (first in %s): the node has a silent fault",
                          rank_text(s, s->rank, who, sizeof who),
                          where_text(s, a->prints[AUDITED], a->prints[AUDITOR]));
}

enum chex_status chex_pass_audit_first(struct chex_session *s, struct chex_error *err) {
    double seconds = 0;
    int odd;
    if (!s->audit)
        return CHEX_OK;
    CHEX_TRY(chex_session_agree(s, repeats_itself(s, &seconds, err), err));
    CHEX_TRY(find_odd(s, s->audit->prints[AUDITED]->whole, &odd, err));
    if (odd != CHEX_PASS_AUDIT_ALL_EQUAL)
        return refuse_start(s, odd, err);
    chex_info("audit: every %llu steps %s; %.2f s each, at least %.3g %% of the time",
              (unsigned long long)s->config.audit_steps,
              s->size == 1
                  ? "the process repeats a pass of its own (a device that is always wrong stays "
                    "unnoticed)"
                  : "another process repeats a pass of one",
              seconds, 100 * chex_pass_audit_share(s));
    return CHEX_OK;
}

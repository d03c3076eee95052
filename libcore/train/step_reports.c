/* SPDX-License-Identifier: Apache-2.0
 *
 * Step reports: one message of fixed size from each rank, exchanged by an all-gather. At an
 * epoch's end another one exchanges the times.
 */
#include "train/step_reports.h"

#include "base/alloc.h"
#include "launch/reduce.h"

static double *losses_of(struct chex_step_report *report) { return (double *)(report + 1); }

static int losses_in(const struct chex_step_reports *r, int ranks, int rank) {
    int from, to;
    chex_reduce_run(r->logical_ranks, ranks, rank, &from, &to);
    return to - from;
}

enum chex_status chex_step_reports_init(struct chex_step_reports *r, int logical_ranks, int ranks,
                                        struct chex_error *err) {
    int longest = 0;
    *r = (struct chex_step_reports){.logical_ranks = logical_ranks};
    for (int k = 0; k < ranks; k++)
        longest = losses_in(r, ranks, k) > longest ? losses_in(r, ranks, k) : longest;
    r->bytes = sizeof *r->own + (size_t)longest * sizeof(double);
    r->own = chex_alloc_zeroed(1, r->bytes);
    r->all = chex_alloc_zeroed((size_t)ranks, r->bytes);
    r->epoch_times = chex_alloc_zeroed((size_t)ranks, sizeof *r->epoch_times);
    r->total_times = chex_alloc_zeroed((size_t)ranks, sizeof *r->total_times);
    CHEX_ALLOCATED(r->own && r->all && r->epoch_times && r->total_times, err, NULL);
    r->own_losses = losses_of(r->own);
    return CHEX_OK;
}

void chex_step_reports_release(struct chex_step_reports *r) {
    free(r->own);
    free(r->all);
    free(r->epoch_times);
    free(r->total_times);
}

enum chex_status chex_step_reports_exchange(struct chex_step_reports *r, struct chex_coll *coll,
                                            struct chex_step_verdict *verdict_out,
                                            struct chex_error *err) {
    struct chex_step_verdict v = {0};
    double sum = 0;
    CHEX_TRY(coll->impl->allgather(coll->self, r->own, r->bytes, r->all, err));
    for (int k = 0; k < coll->size; k++) {
        struct chex_step_report *theirs = (void *)(r->all + (size_t)k * r->bytes);
        for (int i = 0; i < losses_in(r, coll->size, k); i++)
            sum += losses_of(theirs)[i];
        if (theirs->wants_stop > (int32_t)v.stop)
            v.stop = (enum chex_stop)theirs->wants_stop;
        v.save = v.save || theirs->wants_save;
    }
    chex_step_times_add(&r->epoch, &r->step);
    chex_step_times_add(&r->total, &r->step);
    v.loss = sum / r->logical_ranks;
    *verdict_out = v;
    return CHEX_OK;
}

enum chex_status chex_step_reports_gather_times(struct chex_step_reports *r, struct chex_coll *coll,
                                                struct chex_error *err) {
    CHEX_TRY(coll->impl->allgather(coll->self, &r->epoch, sizeof r->epoch, r->epoch_times, err));
    for (int k = 0; k < coll->size; k++)
        chex_step_times_add(&r->total_times[k], &r->epoch_times[k]);
    r->epoch = (struct chex_step_times){0};
    return CHEX_OK;
}

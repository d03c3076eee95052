/* SPDX-License-Identifier: Apache-2.0
 *
 * Step reports: the mean loss has the same bits for any number of ranks, and one request is enough
 * to stop or to save. The ranks are in one process: the all-gather copies their messages.
 */
#include "train/step_reports.h"

#include "launch/reduce.h"
#include "tap.h"

enum { V = 7, MAX_RANKS = 7 };

static struct chex_step_reports ranks[MAX_RANKS];

static enum chex_status gather(void *self, const void *mine, size_t bytes, void *all_out,
                               struct chex_error *err) {
    const struct chex_coll *coll = self;
    (void)err;
    for (int r = 0; r < coll->size && r < MAX_RANKS; r++)
        memcpy((char *)all_out + (size_t)r * bytes,
               mine == &ranks[0].epoch ? (const void *)&ranks[r].epoch : ranks[r].own, bytes);
    return CHEX_OK;
}

static struct chex_error err;
static const struct chex_coll_impl fake = {.allgather = gather};

/* Losses whose sum depends on the order. */
static double loss_of(int v) { return v % 2 ? 1e-17 * (v + 1) : 1.0 / (v + 3); }

static void fill(int size) {
    for (int r = 0; r < size; r++) {
        int from, to;
        OK_CALL(chex_step_reports_init(&ranks[r], V, size, &err));
        chex_reduce_run(V, size, r, &from, &to);
        for (int v = from; v < to; v++)
            ranks[r].own_losses[v - from] = loss_of(v);
        ranks[r].step = ranks[r].epoch = (struct chex_step_times){.data = r, .total = 10 + r};
    }
}

static void check(int size, double want) {
    struct chex_coll coll = {.impl = &fake, .self = &coll, .size = size};
    struct chex_step_verdict quiet, asked;
    fill(size);
    OK_CALL(chex_step_reports_exchange(&ranks[0], &coll, &quiet, &err));
    OK(memcmp(&quiet.loss, &want, sizeof want) == 0, "%d ranks have the mean loss of one", size);
    OK(!quiet.stop && !quiet.save, "without a request nothing stops");
    ranks[size - 1].own->wants_stop = 1;
    ranks[0].own->wants_save = 1;
    OK_CALL(chex_step_reports_exchange(&ranks[0], &coll, &asked, &err));
    OK(asked.stop && asked.save, "one rank's request is that of all ranks");
    OK(ranks[0].epoch.total == 30 && ranks[0].total.total == 20, "a rank adds up its own times");
    for (int gathering = 1; gathering <= 2; gathering++) {
        OK_CALL(chex_step_reports_gather_times(&ranks[0], &coll, &err));
        OK(ranks[0].epoch.total == 0, "the next epoch's sum starts at zero");
        ranks[0].epoch.total = 30;
    }
    const struct chex_step_times *last = &ranks[0].total_times[size - 1];
    OK(size == 1 || (last->data == 2.0 * (size - 1) && last->total == 2.0 * (9 + size)),
       "the gathered times of each rank are added up");
    for (int r = 0; r < size; r++)
        chex_step_reports_release(&ranks[r]);
}

int main(void) {
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += loss_of(v);
    for (int size = 1; size <= MAX_RANKS; size++)
        check(size, sum / V);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the bottleneck of an epoch from the step times of all ranks. The advice is the first rule
 * that applies: input, a slow rank, reduction, optimiser, compute. The thresholds are in advise().
 */
#include "train/watch/stepstats.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void chex_step_times_add(struct chex_step_times *sum, const struct chex_step_times *t) {
    sum->data += t->data;
    sum->forward += t->forward;
    sum->backward += t->backward;
    sum->exposed += t->exposed;
    sum->update += t->update;
    sum->other += t->other;
    sum->total += t->total;
}

static void find_slowest(const struct chex_step_times *times, int ranks,
                         struct chex_bottleneck *out) {
    double sum = 0, slowest_s = -1;
    for (int r = 0; r < ranks; r++) {
        double own = times[r].forward + times[r].backward + times[r].data;
        sum += own;
        if (own > slowest_s) {
            slowest_s = own;
            out->slowest_rank = r;
        }
    }
    out->slowest_ratio = sum > 0 ? slowest_s * ranks / sum : 1;
}

static void advise(struct chex_bottleneck *b, bool timed) {
    if (!timed)
        snprintf(b->advice, sizeof b->advice, "no step was timed");
    else if (b->data_share > 0.05)
        snprintf(b->advice, sizeof b->advice,
                 "input is the bottleneck: raise --workers, or put the shards on a faster disk");
    else if (b->slowest_ratio > 1.15)
        snprintf(b->advice, sizeof b->advice,
                 "rank %d is slower than the others: look at its node with chex-env",
                 b->slowest_rank);
    else if (b->reduce_share > 0.10)
        snprintf(b->advice, sizeof b->advice,
                 "the exchange of gradients is the bottleneck: raise --batch-size, or use a faster "
                 "network");
    else if (b->update_share > 0.15)
        snprintf(b->advice, sizeof b->advice,
                 "the optimiser takes its share because batches are small: raise --batch-size");
    else
        snprintf(b->advice, sizeof b->advice,
                 "compute is the bottleneck, as it should be; more ranks or a faster engine help");
}

void chex_bottleneck_find(const struct chex_step_times *times, int ranks,
                          struct chex_bottleneck *out) {
    struct chex_step_times sum = {0};
    memset(out, 0, sizeof *out);
    for (int r = 0; r < ranks; r++)
        chex_step_times_add(&sum, &times[r]);
    double total = sum.total > 0 ? sum.total : 1;
    out->data_share = sum.data / total;
    out->forward_share = sum.forward / total;
    out->backward_share = sum.backward / total;
    out->reduce_share = sum.exposed / total;
    out->update_share = sum.update / total;
    out->other_share = sum.other / total;
    find_slowest(times, ranks, out);
    advise(out, sum.total > 0);
}

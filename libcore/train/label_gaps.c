/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the labels: warns of findings without positives or without negatives, because these cannot
 * be learned and have no AUROC. Each rank counts its own rows; rank 0 adds the counts and judges.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/loss_setup.h"

static void count_rows(const struct chex_set *set, size_t first, size_t end,
                       struct chex_label_counts *counts) {
    for (size_t row = first; row < end; row++)
        chex_label_counts_add(counts, chex_set_labels(set, row), (size_t)set->classes);
}

/* counts: (2 * classes) of this rank's training rows, then of its validation rows. If every rank
 * has opened all training rows, only rank 0 counts them. */
static void count_own(const struct chex_train_input *in, enum chex_pipeline_kind kind, int rank,
                      struct chex_label_counts *counts) {
    size_t first, end;
    chex_pipeline_rows(kind, &in->order, in->run_from, in->run_to, &first, &end);
    const bool whole = first == 0 && end == in->train->rows;
    if (!whole || rank == 0)
        count_rows(in->train, first, end, counts);
    if (in->val)
        count_rows(in->val, in->val_first, in->val_end, counts + in->train->classes);
}

static void add_up(const struct chex_label_counts *all, int ranks, size_t count,
                   struct chex_label_counts *sum) {
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < count; i++) {
            const struct chex_label_counts *one = &all[(size_t)r * count + i];
            sum[i].positive += one->positive;
            sum[i].negative += one->negative;
            sum[i].uncertain += one->uncertain;
            sum[i].not_stated += one->not_stated;
        }
}

/* The size of a fold, and the finding with the fewest positives. */
static void describe_fold(const struct chex_selection *s, const struct chex_label_counts *train,
                          const struct chex_label_counts *val) {
    size_t least = SIZE_MAX;
    int rarest = 0;
    for (int c = 0; c < s->classes; c++) {
        const size_t positives = train[c].positive + val[c].positive;
        if (positives && positives < least) {
            least = positives;
            rarest = c;
        }
    }
    chex_info("fold %d of %d: %zu patients with %zu images to validate, %zu with %zu to train; "
              "rarest finding %s: %zu and %zu positive images",
              s->fold.number, s->fold.folds, s->fold_facts.patients,
              chex_selection_images(s, CHEX_PART_VAL), s->fold_facts.in_training,
              chex_selection_images(s, CHEX_PART_TRAIN), s->class_names[rarest],
              val[rarest].positive, train[rarest].positive);
}

static enum chex_status judge(const struct chex_train_input *in,
                              const struct chex_label_counts *counts, struct chex_label_gaps *gaps,
                              struct chex_error *err) {
    const struct chex_set *train = in->train;
    const char *const *names = chex_set_class_names(train);
    const size_t classes = (size_t)train->classes;
    const struct chex_fold fold = in->selection->fold;
    char part[32], val[32] = "split val";
    snprintf(part, sizeof part, "split %s", chex_split_names[train->split]);
    if (fold.folds) {
        snprintf(part, sizeof part, "the folds without %d", fold.number);
        snprintf(val, sizeof val, "fold %d of %d", fold.number, fold.folds);
        describe_fold(in->selection, counts, counts + classes);
    }
    CHEX_TRY(chex_label_counts_judge(part, names, counts, classes, true, gaps->train,
                                     sizeof gaps->train, err));
    if (!in->val)
        return CHEX_OK;
    counts += classes;
    CHEX_TRY(chex_label_counts_judge(val, names, counts, classes, false, gaps->val,
                                     sizeof gaps->val, err));
    gaps->no_auroc = true;
    for (size_t c = 0; c < classes; c++)
        gaps->no_auroc = gaps->no_auroc && !(counts[c].positive && counts[c].negative);
    return CHEX_OK;
}

enum chex_status chex_session_check_labels(struct chex_session *s,
                                           struct chex_label_counts *counts_out,
                                           struct chex_error *err) {
    struct chex_group *group = s->world.coll->group;
    const size_t classes = (size_t)s->input.train->classes, count = 2 * classes;
    CHEX_AUTO_FREE struct chex_label_counts *own = chex_alloc_zeroed(count, sizeof *own);
    CHEX_AUTO_FREE struct chex_label_counts *sum = chex_alloc_zeroed(count, sizeof *sum);
    CHEX_AUTO_FREE void *all = NULL;
    size_t bytes;
    const enum chex_status st = own && sum ? CHEX_OK : chex_error_memory(err, NULL);
    CHEX_TRY(chex_watchdog_agree(s->world.watchdog, group, st, err));
    count_own(&s->input, s->config.pipeline, s->rank, own);
    CHEX_TRY(chex_group_gather(group, own, count * sizeof *own, &all, &bytes, err));
    if (s->rank != 0)
        return CHEX_OK;
    add_up(all, s->size, count, sum);
    memcpy(counts_out, sum, classes * sizeof *sum);
    return judge(&s->input, sum, &s->gaps, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a run's folder other than its checkpoints: what belongs to a run there, the JSON
 * lines, the JSON documents. Only rank 0 writes.
 */
#ifndef CHEX_TRAIN_RUNFILES_H
#define CHEX_TRAIN_RUNFILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct chex_runfiles {
    char *dir;
    FILE *metrics; /* DIR/metrics.jsonl, open for appending */
};

/* Removes temporaries of a run that was killed: files in DIR and DIR/checkpoints that are named as
 * ours with .tmp.PID behind. */
void chex_runfiles_sweep(const char *dir);

/* Makes DIR and DIR/checkpoints. */
enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir,
                                    struct chex_error *err);
void chex_runfiles_release(struct chex_runfiles *f);

/* Whether DIR already holds a run of ours (a checkpoint, metrics or last.h5). */
bool chex_runfiles_has_run(const char *dir);

/* Whether DIR holds no run of ours, but a file that a run would write over; *name_out (fresh
 * string, the caller frees) names it. Anything else in DIR (a job's log) is left alone. */
bool chex_runfiles_is_foreign(const char *dir, char **name_out);

/* Whether DIR/metrics.jsonl tells of an epoch, and so of checkpoints that were written. */
bool chex_runfiles_had_epochs(const char *dir);

/* Opens DIR/metrics.jsonl and drops the lines behind `step`: they belong to steps that will be
 * done again. With validation_due that of a validation at `step` goes too. Before the first of the
 * calls below. */
enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            bool validation_due, struct chex_error *err);

/* Appends one JSON object as a line; takes the reference. */
enum chex_status chex_runfiles_metric(const struct chex_runfiles *f, json_t *object,
                                      struct chex_error *err);

/* The line of one step; allocates nothing. */
enum chex_status chex_runfiles_step(const struct chex_runfiles *f, uint64_t epoch, uint64_t step,
                                    double loss, double lr, double step_ms, double images_per_s,
                                    struct chex_error *err);

/* Writes a JSON document under DIR/NAME; takes the reference. */
enum chex_status chex_runfiles_json(const struct chex_runfiles *f, const char *name, json_t *object,
                                    struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a run's folder: which checkpoint to go on from, what they are called, how many are
 * kept, and the JSON lines.
 *
 * DIR/checkpoints/step-0000001234.h5 hold the state; last.h5 and best.h5 are further names (hard
 * links) of one of them, put in place by rename. Only rank 0 writes.
 */
#ifndef CHEX_TRAIN_RUNFILES_H
#define CHEX_TRAIN_RUNFILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "model/checkpoint.h"

struct chex_runfiles {
    char *dir;
    int keep;      /* numbered checkpoints kept; 0: all */
    FILE *metrics; /* DIR/metrics.jsonl, open for appending */
};

/* Makes DIR and DIR/checkpoints, and removes temporaries of a run that was killed. */
enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir, int keep,
                                    struct chex_error *err);
void chex_runfiles_release(struct chex_runfiles *f);

/* Whether DIR already holds a run of ours (a checkpoint, metrics or last.h5). */
bool chex_runfiles_has_run(const char *dir);

/* Whether DIR exists and holds something that is no run of ours; *name_out (fresh string, the
 * caller frees) names one such file. */
bool chex_runfiles_is_foreign(const char *dir, char **name_out);

/* Writes the numbered checkpoint of `step`, points last.h5 (and best.h5) at it, and removes
 * numbered ones beyond `keep`. */
enum chex_status chex_runfiles_save(const struct chex_runfiles *f, const struct chex_net *net,
                                    const struct chex_checkpoint *c, uint64_t step, bool best,
                                    struct chex_error *err);

/* The newest checkpoint that reads whole; damaged ones are warned about and passed over.
 * *c_out is NULL and the result CHEX_OK where there is none. */
enum chex_status chex_runfiles_newest(const char *dir, struct chex_net **net_out,
                                      struct chex_checkpoint **c_out, char **path_out,
                                      struct chex_error *err);

/* Opens DIR/metrics.jsonl and drops the lines behind `step`: they belong to steps that will be
 * done again. Before the first of the calls below. */
enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            struct chex_error *err);

/* Appends one JSON object as a line, and flushes; takes the reference. */
enum chex_status chex_runfiles_metric(const struct chex_runfiles *f, json_t *object,
                                      struct chex_error *err);

/* The line of one step; buffered, allocates nothing. */
enum chex_status chex_runfiles_step(const struct chex_runfiles *f, uint64_t epoch, uint64_t step,
                                    double loss, double lr, double step_ms, double images_per_s,
                                    struct chex_error *err);

/* Writes a JSON document under DIR/NAME; takes the reference. */
enum chex_status chex_runfiles_json(const struct chex_runfiles *f, const char *name, json_t *object,
                                    struct chex_error *err);

#endif

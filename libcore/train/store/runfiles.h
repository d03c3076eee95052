/* SPDX-License-Identifier: Apache-2.0
 *
 * The files in a run's folder other than checkpoints: metrics.jsonl and the JSON documents; and
 * which file names in that folder belong to a run. Only rank 0 writes.
 */
#ifndef CHEX_TRAIN_STORE_RUNFILES_H
#define CHEX_TRAIN_STORE_RUNFILES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

struct chex_runfiles {
    const char *dir; /* borrowed */
    FILE *metrics;   /* DIR/metrics.jsonl, open for appending */
    json_t *epochs;  /* array: its lines of kind epoch, in order */
};

/* Removes temporary files that a killed run left in DIR and DIR/checkpoints. Files of other
 * programs stay. The caller has the lock of the folder. */
void chex_runfiles_sweep(const char *dir);

/* Creates DIR and DIR/checkpoints. */
enum chex_status chex_runfiles_init(struct chex_runfiles *f, const char *dir,
                                    struct chex_error *err);
void chex_runfiles_release(struct chex_runfiles *f);

/* True if DIR holds a run: last.h5, metrics.jsonl or checkpoints/. */
bool chex_runfiles_has_run(const char *dir);

/* True if DIR holds no run but other files. *name_out: the name of one of them, which the caller
 * frees. Logs (*.out, *.err, *.log) and hidden files do not count. */
bool chex_runfiles_is_foreign(const char *dir, char **name_out);

/* Opens DIR/metrics.jsonl, and reads its lines of kind epoch. Must come before chex_runfiles_metric
 * and chex_runfiles_step. Drops:
 *   - lines of steps after `step`, because these steps are done again;
 *   - with validation_due, the line of a validation at `step`;
 *   - lines that are not JSON, with one warning that lists their numbers. */
enum chex_status chex_runfiles_open_metrics(struct chex_runfiles *f, uint64_t step,
                                            bool validation_due, struct chex_error *err);

/* The same for any file NAME of JSON lines, which need not exist. `epochs` (NULL: none) gets the
 * lines of kind epoch. The caller closes *out. */
enum chex_status chex_runfiles_open(const char *dir, const char *name, uint64_t step,
                                    bool validation_due, json_t *epochs, FILE **out,
                                    struct chex_error *err);

/* Reads DIR/NAME. *data_out: NULL if it does not exist; the caller frees it. size_out: NULL
 * allowed.
 */
enum chex_status chex_runfiles_read(const char *dir, const char *name, char **data_out,
                                    size_t *size_out, struct chex_error *err);
/* The same for a JSON document. CHEX_E_DATA: it is damaged. */
enum chex_status chex_runfiles_read_json(const char *dir, const char *name, json_t **out,
                                         struct chex_error *err);

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

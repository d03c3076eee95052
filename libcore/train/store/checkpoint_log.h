/* SPDX-License-Identifier: Apache-2.0
 *
 * DIR/checkpoints.jsonl: one line of JSON for each checkpoint that a run has written, with a digest
 * of the state. Pruning removes files and keeps their lines, so that a repeated run can be compared
 * with every state that the first run has had.
 *
 * A line is written after its file is whole. chex_runfiles_open opens the file and drops the lines
 * of later steps.
 */
#ifndef CHEX_TRAIN_STORE_CHECKPOINT_LOG_H
#define CHEX_TRAIN_STORE_CHECKPOINT_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/hash.h"
#include "train/store/checkpoint_store.h"

#define CHEX_CHECKPOINT_LOG "checkpoints.jsonl"

struct chex_checkpoint_line {
    uint64_t step, epoch; /* epoch: whole epochs that were done, with their validation */
    bool validation_due;  /* written before the validation of this step */
    bool best;            /* best.h5 became a name of it */
    char file[CHEX_CHECKPOINT_NAME_BYTES]; /* path in DIR */
    char digest[CHEX_HASH128_HEX_BYTES];   /* chex_checkpoint_digest */
    double time_unix_s;                    /* when the file was whole */
    double stall_s, write_s; /* for how long the step loop waited, and the writing took */
};

/* Appends a line. */
enum chex_status chex_checkpoint_log_add(FILE *log, const char *dir,
                                         const struct chex_checkpoint_line *line,
                                         struct chex_error *err);

/* Reads the lines in order of the step.
 * - A line replaces earlier ones of the same step and of later steps.
 * - Damaged lines are left out.
 * - Without the file the result is CHEX_OK with no lines.
 * The caller frees *lines_out. */
enum chex_status chex_checkpoint_log_read(const char *dir, struct chex_checkpoint_line **lines_out,
                                          size_t *count_out, struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What --output names: a folder that the results of a command share with other files, or one file.
 * Existing results are refused without --force, before the work and again under the lock.
 */
#ifndef CHEX_EVALUATE_OUTPUT_H
#define CHEX_EVALUATE_OUTPUT_H

#include "evaluate/settings.h"

/* The results of one command in a folder. All texts are borrowed. */
struct chex_eval_output {
    const char *dir;          /* --output */
    const char *key;          /* the file that appears last (report/publish.h) */
    const char *const *files; /* the results, NULL-terminated */
    const char *const *dirs;  /* results that are folders, NULL-terminated; or NULL */
    bool force;
    bool made; /* the folder was created by this process */
    int lock;  /* -1: none */
};

/* The output of `s`, not yet begun. */
struct chex_eval_output chex_eval_output_of(const struct chex_eval_settings *s, const char *key,
                                            const char *const *files, const char *const *dirs);

/* The output of an evaluation: the files of report/report.h. network: predictions.csv too. */
struct chex_eval_output chex_eval_output_of_report(const struct chex_eval_settings *s,
                                                   bool network);

/* CHEX_E_USAGE if the folder already holds results and --force was not given; the text lists them.
 */
enum chex_status chex_eval_output_check(const struct chex_eval_output *o, struct chex_error *err);

/* Creates and locks the folder, completes what a killed run has left (chex_publish_recover), and
 * repeats the check, since another command may have ended meanwhile.
 * CHEX_E_ENV: the folder is not writable, or another command has locked it. */
enum chex_status chex_eval_output_begin(struct chex_eval_output *o, struct chex_error *err);

/* Releases the lock. After an error it removes the folder if this process created it and it is
 * empty. May be called without chex_eval_output_begin. */
void chex_eval_output_end(const struct chex_eval_output *o, enum chex_status status);

/* Checks one result file before the work. read: files that the command reads, NULL-terminated, each
 * may be what --output names by mistake.
 * CHEX_E_USAGE: a folder, one of `read`, or it exists and --force was not given. */
enum chex_status chex_eval_file_check(const struct chex_eval_settings *s, const char *path,
                                      const char *const *read, struct chex_error *err);

/* Prepares the writing of one result file: creates its folder, locks .NAME.lock there, and removes
 * temporary files that killed runs have left. CHEX_E_ENV: another process writes this file.
 * *lock_out is for chex_eval_file_unlock, which ignores -1. */
enum chex_status chex_eval_file_lock(const char *path, int *lock_out, struct chex_error *err);
void chex_eval_file_unlock(const char *path, int lock);

#endif

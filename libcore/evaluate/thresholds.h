/* SPDX-License-Identifier: Apache-2.0
 *
 * --threshold and --prevalence: where the thresholds of the classes come from.
 */
#ifndef CHEX_EVALUATE_THRESHOLDS_H
#define CHEX_EVALUATE_THRESHOLDS_H

#include "evaluate/network.h"
#include "evaluate/settings.h"
#include "stats/figures.h"

/* What --threshold and --prevalence mean for the classes of a table. Starts as {0}. */
struct chex_eval_figures {
    struct chex_figures_config config;
    char rule_text[CHEX_THRESHOLD_TEXT_BYTES];
    double *number, *prevalence;  /* (classes), or NULL */
    struct chex_deployment *file; /* of --threshold FILE */
};

/* Checks both options as far as that needs no classes. */
enum chex_status chex_eval_figures_check(const struct chex_eval_settings *s,
                                         struct chex_error *err);

/* n: the network with its deployment part, which must outlive f; NULL: a table of predictions. The
 * caller calls chex_eval_figures_release, after an error too.
 * CHEX_E_DATA: a file of thresholds of other classes or of other parameters than the network's. */
enum chex_status chex_eval_figures_open(const struct chex_eval_settings *s,
                                        const struct chex_eval_network *n, int classes,
                                        char *const *class_names, struct chex_eval_figures *f,
                                        struct chex_error *err);
void chex_eval_figures_release(struct chex_eval_figures *f);

#endif

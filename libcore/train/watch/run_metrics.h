/* SPDX-License-Identifier: Apache-2.0
 *
 * --metrics: the state of a run for Prometheus.
 */
#ifndef CHEX_TRAIN_WATCH_RUN_METRICS_H
#define CHEX_TRAIN_WATCH_RUN_METRICS_H

#include "train/session.h"

/* Replaces the file. Rank 0. exit_status: -1 before the end of the run. If the file cannot be
 * written, that is logged once, and the run goes on. */
void chex_run_metrics_write(struct chex_session *s, int exit_status);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A file in Prometheus's text exposition format (version 0.0.4), for the textfile collector of
 * node_exporter. The collector refuses a file with timestamps, so times are metrics of their own.
 */
#ifndef CHEX_REPORT_PROMETHEUS_H
#define CHEX_REPORT_PROMETHEUS_H

#include <stdio.h>

#include "base/error.h"

struct chex_prometheus {
    FILE *to; /* memory; NULL: there was none */
    char *text;
    size_t bytes;
    const char *host, *run; /* labels of all samples, with the Slurm job; run NULL: none */
};

void chex_prometheus_begin(struct chex_prometheus *p, const char *host, const char *run);
/* Adds a sample. type: "gauge" or "counter"; NULL: the metric is the one before. help: one line.
 * check: one more label, or NULL. */
void chex_prometheus_add(struct chex_prometheus *p, const char *type, const char *name,
                         const char *help, const char *check, double value);
/* Writes the file whole or not at all, with mode 0644 whatever the umask, and releases `p`. */
enum chex_status chex_prometheus_write(struct chex_prometheus *p, const char *path,
                                       struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of the checks for Prometheus (chex-env --metrics). After ranks were lost it has
 * several rows of one check, which all fail: the first is the sample.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "check/check.h"
#include "report/prometheus.h"

/* Ends of the keys of figures, and their base units. */
static const struct unit {
    const char *ending, *base;
    double factor;
} units[] = {{"images_per_s", "images_per_second", 1},
             {"gflop_per_s", "flops_per_second", 1e9},
             {"gb_per_s", "bytes_per_second", 1e9},
             {"mb_per_s", "bytes_per_second", 1e6},
             {"gbit_per_s", "bytes_per_second", 1e9 / 8},
             {"ms", "seconds", 1e-3},
             {"us", "seconds", 1e-6},
             {"", "", 1}};

/* fsync_ms of tmpdir-rate: "chexnet_env_tmpdir_rate_fsync_seconds". */
static void add_figure(struct chex_prometheus *p, const struct chex_check *check, const char *key,
                       double value) {
    char name[128];
    const struct unit *u = units;
    size_t n = strlen(key);
    while (n < strlen(u->ending) || strcmp(key + n - strlen(u->ending), u->ending) != 0)
        u++;
    n -= strlen(u->ending);
    snprintf(name, sizeof name, "chexnet_env_%s_%.*s%s", check->name, (int)n, key, u->base);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    chex_prometheus_add(p, "gauge", name, check->question, NULL, u->factor * value);
}

enum chex_status chex_check_metrics_write(const char *path, const struct chex_check_report *report,
                                          const char *host, struct chex_error *err) {
    struct chex_prometheus p;
    chex_prometheus_begin(&p, host, NULL);
    chex_prometheus_add(&p, "gauge", "chexnet_env_run_timestamp_seconds",
                        "When chex-env ran, in seconds since 1970.", NULL, chex_clock_unix_s());
    chex_prometheus_add(&p, "gauge", "chexnet_env_exit_status",
                        "0 fit, 4 a fault of the user, 5 of the node.", NULL,
                        (double)chex_check_status(report));
    for (size_t i = 0; i < report->count; i++)
        if (!i || report->checks[i] != report->checks[i - 1])
            chex_prometheus_add(&p, i ? NULL : "gauge", "chexnet_env_check_verdict",
                                "Worst of all ranks: 0 pass, 1 skip, 2 warn, 3 fail.",
                                report->checks[i]->name, report->merged[i].verdict);
    for (size_t i = 0; i < report->count; i++)
        for (int k = 0; report->checks[i]->figures[k].key; k++)
            if (report->merged[i].figures[k] > 0)
                add_figure(&p, report->checks[i], report->checks[i]->figures[k].key,
                           report->merged[i].figures[k]);
    return chex_prometheus_write(&p, path, err);
}

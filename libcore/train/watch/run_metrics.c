/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of a run for Prometheus.
 */
#include "train/watch/run_metrics.h"

#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "report/prometheus.h"
#include "train/loop.h"

static double known(double value) { return value > 0 ? value : NAN; }

static enum chex_status write_file(struct chex_session *s, int status, double images_per_s,
                                   struct chex_error *err) {
    const struct chex_step_times *t = &s->reports.total;
    static const char *const gauge = "gauge", *const counter = "counter";
    const struct {
        const char *type, *name, *help;
        double value; /* NaN: unknown, and left out */
    } metrics[] = {
        {gauge, "chexnet_train_update_timestamp_seconds",
         "When this file was written, in seconds since 1970.", chex_clock_unix_s()},
        {gauge, "chexnet_train_exit_status", "Exit status of the run; -1 before its end.", status},
        {gauge, "chexnet_train_step", "Steps that are done; a resumed run goes back.",
         (double)s->at.step},
        {gauge, "chexnet_train_planned_steps", "Steps of the whole run.",
         (double)chex_session_all_steps(s)},
        {gauge, "chexnet_train_loss", "Training loss of the last step.", s->output.loss},
        {gauge, "chexnet_train_images_per_second",
         "Training images of all ranks, since the last update.", known(images_per_s)},
        {gauge, "chexnet_train_last_checkpoint_timestamp_seconds",
         "When the newest checkpoint of this start was whole, in seconds since 1970.",
         known(s->output.saved_unix_s)},
        {counter, "chexnet_train_step_seconds_total", "Time of the steps of this start.", t->total},
        {counter, "chexnet_train_data_wait_seconds_total",
         "Time in which rank 0 waited for data, in this start.", t->data},
        {gauge, "chexnet_train_peak_memory_bytes", "Largest resident memory of rank 0.",
         (double)chex_alloc_peak_rss_bytes()},
        {counter, "chexnet_train_node_energy_joules_total",
         "Energy of processors and memory of the whole node of rank 0, in this start.",
         known(chex_rapl_joules(s->energy.rapl))},
        {gauge, "chexnet_train_gpu_energy_joules", "Energy of all GPUs of this start, at its end.",
         known(s->energy.sum.gpu_j)}};
    struct chex_prometheus p;
    chex_prometheus_begin(&p, s->world.launch->host, s->config.output_dir);
    for (size_t i = 0; i < CHEX_COUNT(metrics); i++)
        if (!isnan(metrics[i].value))
            chex_prometheus_add(&p, metrics[i].type, metrics[i].name, metrics[i].help, NULL,
                                metrics[i].value);
    return chex_prometheus_write(&p, s->config.metrics, err);
}

void chex_run_metrics_write(struct chex_session *s, int exit_status) {
    struct chex_run_output *o = &s->output;
    const bool first = o->metrics_s <= 0;
    const double now_s = chex_clock_s();
    const double images = (double)(s->at.step - (first ? s->started_step : o->metrics_step)) *
                          s->config.batch * s->config.logical_ranks;
    struct chex_error why = {0};
    if (!s->config.metrics || isinf(o->metrics_s))
        return;
    const double rate = images / (now_s - (first ? s->started_s : o->metrics_s));
    o->metrics_step = s->at.step;
    o->metrics_s = now_s;
    if (write_file(s, exit_status, rate, &why) == CHEX_OK)
        return;
    chex_warn("--metrics: %s; the run goes on without it", why.text);
    o->metrics_s = INFINITY;
}

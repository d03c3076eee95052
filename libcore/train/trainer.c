/* SPDX-License-Identifier: Apache-2.0
 *
 * A run from its set-up to its last lines.
 */
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/nvml.h"
#include "train/loop.h"
#include "train/store/provenance.h"
#include "train/watch/job_use.h"
#include "train/watch/run_metrics.h"
#include "train/watch/run_timeline.h"

/* --job-comment. Rank 0. Only warns: the results are on disk. */
static void write_job_comment(const struct chex_session *s) {
    const double images =
        (double)(s->at.step - s->started_step) * s->config.batch * s->config.logical_ranks;
    const double seconds = s->reports.total.total;
    struct chex_error why = {0};
    enum chex_status st = CHEX_OK;
    if (!s->world.slurm)
        chex_warn("--job-comment: %s", s->world.slurm_why);
    else if (images > 0 && seconds > 0)
        st = chex_slurm_write_use(s->world.slurm, images / seconds, &s->energy.sum, &why);
    if (st != CHEX_OK)
        chex_warn("--job-comment: %s", why.text);
}

/* The counter of this rank's GPU; 0: unknown. */
static uint64_t gpu_energy_mj(const struct chex_session *s) {
    struct chex_nvml *nvml = NULL;
    struct chex_error why = {0};
    if (!s->config.device || chex_nvml_read(&nvml, &why) != CHEX_OK)
        return 0;
    const struct chex_nvml_gpu *g = chex_nvml_find(nvml, s->config.device->pci_bus_id);
    const uint64_t mj = g ? g->energy_mj : 0;
    free(nvml);
    return mj;
}

static void begin_energy(struct chex_session *s) {
    char why[128];
    s->energy.gpu_mj = gpu_energy_mj(s);
    if (s->world.launch->local_rank == 0 &&
        !(s->energy.rapl = chex_rapl_start("", why, sizeof why)))
        chex_debug("energy of processors and memory: %s", why);
}

/* What each rank reports for the line about the job. */
struct rank_use {
    int32_t node, gpu;
    uint64_t bytes;
    double cores;
    double gpu_j, node_j;    /* of its GPU, and of its node from one rank of it; 0: unknown */
    char id[CHEX_PCI_BYTES]; /* "": none */
};

static struct rank_use own_use(const struct chex_session *s) {
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    const double cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    const double elapsed_s = chex_clock_s() - s->opened_s;
    struct rank_use u = {.node = s->world.launch->node,
                         .gpu = s->config.device != NULL,
                         .bytes = chex_alloc_peak_rss_bytes(),
                         .cores = elapsed_s > 0 ? cpu_s / elapsed_s : 0,
                         .node_j = chex_rapl_joules(s->energy.rapl)};
    const uint64_t mj = gpu_energy_mj(s);
    if (u.gpu)
        memcpy(u.id, s->config.device->pci_bus_id, sizeof u.id);
    if (s->energy.gpu_mj && mj > s->energy.gpu_mj)
        u.gpu_j = (double)(mj - s->energy.gpu_mj) / 1000;
    return u;
}

/* A GPU that ranks share counts once. */
static struct chex_energy sum_energy(const struct chex_session *s, const struct rank_use *ranks) {
    struct chex_energy e = {.nodes = s->world.launch->nodes};
    int unknown = 0, nodes = 0;
    for (int r = 0; r < s->size; r++) {
        int first = 0;
        while (ranks[first].node != ranks[r].node || strcmp(ranks[first].id, ranks[r].id) != 0)
            first++;
        nodes += ranks[r].node_j > 0;
        e.node_j += ranks[r].node_j;
        if (first != r || !ranks[r].gpu)
            continue;
        e.gpus++;
        e.gpu_j += ranks[r].gpu_j;
        unknown += ranks[r].gpu_j <= 0;
    }
    e.gpu_j = unknown ? 0 : e.gpu_j;
    e.node_j = nodes == e.nodes ? e.node_j : 0;
    return e;
}

static struct chex_job_used sum_use(const struct chex_session *s, const struct rank_use *ranks) {
    struct chex_job_used u = {.whole = s->started_step == 0 && chex_session_ended_by(s)};
    for (int r = 0; r < s->size; r++) {
        uint64_t bytes = 0;
        for (int other = 0; other < s->size; other++)
            bytes += ranks[other].node == ranks[r].node ? ranks[other].bytes : 0;
        u.node_bytes = bytes > u.node_bytes ? bytes : u.node_bytes;
        u.cores = ranks[r].cores > u.cores ? ranks[r].cores : u.cores;
        u.gpus += ranks[r].gpu;
    }
    return u;
}

/* Rank 0 logs the energy, and in a job that has done its work what was asked, what was used and
 * what to ask for. Collective. */
static enum chex_status log_use(struct chex_session *s, bool done, struct chex_error *err) {
    const struct rank_use mine = own_use(s);
    struct chex_job_asked asked;
    double elapsed_s;
    char text[512];
    chex_watchdog_wait(s->world.watchdog);
    CHEX_TRY(chex_group_exchange(s->world.coll->group, "use", &mine, sizeof mine, err));
    s->energy.sum = sum_energy(s, s->world.coll->group->all);
    const struct chex_energy *e = &s->energy.sum;
    if (s->rank == 0 && e->gpu_j > 0)
        chex_info("  energy of %d GPU%s: %.3g kWh", e->gpus, chex_text_s((uint64_t)e->gpus),
                  e->gpu_j / 3.6e6);
    if (s->rank == 0 && e->node_j > 0)
        chex_info("  energy of the processors and memory of %d whole node%s: %.3g kWh", e->nodes,
                  chex_text_s((uint64_t)e->nodes), e->node_j / 3.6e6);
    if (s->rank != 0 || !done || !chex_job_asked_read(chex_clock_unix_s(), &asked, &elapsed_s))
        return CHEX_OK;
    struct chex_job_used used = sum_use(s, s->world.coll->group->all);
    used.elapsed_s = elapsed_s;
    chex_info("%s", chex_job_use_text(&asked, &used, text, sizeof text));
    return CHEX_OK;
}

static enum chex_status work(struct chex_session *s, struct chex_error *err) {
    struct chex_error why = {0};
    begin_energy(s);
    enum chex_status st = chex_session_loop(s, err);
    if (st == CHEX_OK)
        st = log_use(s, true, err);
    if (st == CHEX_E_PREEMPTED) {
        chex_watchdog_saved(s->world.watchdog);
        (void)log_use(s, false, &why);
    }
    const bool saved = s->rank == 0 && (st == CHEX_OK || st == CHEX_E_PREEMPTED);
    if (s->config.job_comment && saved)
        write_job_comment(s);
    if (saved && chex_provenance_end(s, &why) != CHEX_OK)
        chex_warn("%s", why.text);
    st = chex_session_end_timeline(s, st, err);
    if (s->rank == 0)
        chex_run_metrics_write(s, (int)st);
    return st;
}

enum chex_status chex_train_run(const struct chex_train_config *config,
                                const struct chex_train_world *world, bool *together_out,
                                struct chex_error *err) {
    struct chex_session s;
    chex_session_init(&s, config, world);
    enum chex_status st = chex_session_open(&s, err);
    if (st == CHEX_OK && s.complete)
        chex_info("%s: the run is complete at step %llu; nothing to do (raise --%s to go on)",
                  config->output_dir, (unsigned long long)s.at.step, chex_session_ended_by(&s));
    else if (st == CHEX_OK)
        st = work(&s, err);
    if (world->end)
        *world->end = s.at;
    if (world->energy)
        *world->energy = s.energy.sum;
    chex_session_end(&s, st, together_out);
    return st;
}

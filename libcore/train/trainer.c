/* SPDX-License-Identifier: Apache-2.0
 *
 * A run from its set-up to its last lines.
 */
#include "train/trainer.h"

#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/loop.h"
#include "train/store/provenance.h"
#include "train/watch/job_use.h"
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
        st = chex_slurm_write_rate(s->world.slurm, images / seconds, &why);
    if (st != CHEX_OK)
        chex_warn("--job-comment: %s", why.text);
}

/* What each rank reports for the line about the job. */
struct rank_use {
    int32_t node, gpu;
    uint64_t bytes;
    double cores;
};

static struct rank_use own_use(const struct chex_session *s) {
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    const double cpu_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    const double elapsed_s = chex_clock_s() - s->opened_s;
    return (struct rank_use){.node = s->world.launch->node,
                             .gpu = s->config.device != NULL,
                             .bytes = chex_alloc_peak_rss_bytes(),
                             .cores = elapsed_s > 0 ? cpu_s / elapsed_s : 0};
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

/* In a job rank 0 logs what was asked, what was used and what to ask for. Collective. */
static enum chex_status log_job_use(struct chex_session *s, struct chex_error *err) {
    const struct rank_use mine = own_use(s);
    struct chex_job_asked asked;
    double elapsed_s;
    char text[512];
    chex_watchdog_wait(s->world.watchdog);
    CHEX_TRY(chex_group_exchange(s->world.coll->group, "use", &mine, sizeof mine, err));
    if (s->rank != 0 || !chex_job_asked_read(chex_clock_unix_s(), &asked, &elapsed_s))
        return CHEX_OK;
    struct chex_job_used used = sum_use(s, s->world.coll->group->all);
    used.elapsed_s = elapsed_s;
    chex_info("%s", chex_job_use_text(&asked, &used, text, sizeof text));
    return CHEX_OK;
}

static enum chex_status work(struct chex_session *s, struct chex_error *err) {
    enum chex_status st = chex_session_loop(s, err);
    if (st == CHEX_OK)
        st = log_job_use(s, err);
    if (s->config.job_comment && s->rank == 0 && (st == CHEX_OK || st == CHEX_E_PREEMPTED))
        write_job_comment(s);
    if (st == CHEX_E_PREEMPTED)
        chex_watchdog_saved(s->world.watchdog);
    struct chex_error why;
    if (s->rank == 0 && (st == CHEX_OK || st == CHEX_E_PREEMPTED) &&
        chex_provenance_end(s, &why) != CHEX_OK)
        chex_warn("%s", why.text);
    return chex_session_end_timeline(s, st, err);
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
    chex_session_end(&s, st, together_out);
    return st;
}

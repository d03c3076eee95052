/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of the job as Slurm sees it: time left, restarts, the first node's features. It informs
 * and never fails. Only rank 0 asks, because each question is a request to slurmctld.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/units.h"
#include "check/checks.h"
#include "launch/slurm_info.h"

static void found_node(const struct chex_slurm_library *lib, const char *name,
                       struct chex_check_result *r) {
    struct chex_slurm_node node;
    struct chex_error ignored = {0};
    if (!name || lib->node(name, &node, &ignored) != CHEX_OK)
        return;
    chex_check_found_more(
        r, "; %s: features %s, GRES %s%s%s", name, node.features[0] ? node.features : "none",
        node.gres[0] ? node.gres : "none", node.reason[0] ? ", reason: " : "", node.reason);
}

static void found_job(const struct chex_slurm_library *lib, const struct chex_slurm_job *job,
                      struct chex_check_result *r) {
    const double left_s = (double)job->end_s - chex_clock_unix_s();
    char left[32] = "no time limit";
    if (job->end_s)
        chex_format_duration(left, sizeof left, left_s > 0 ? left_s : 0);
    chex_check_found(r, "%s%s, %u restart%s", left, job->end_s ? " left" : "", job->restarts,
                     job->restarts == 1 ? "" : "s");
    found_node(lib, getenv("SLURMD_NODENAME"), r);
}

static void probe(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_slurm_library *lib = NULL;
    struct chex_slurm_job job;
    struct chex_error why = {0};
    if (c->launch->rank != 0)
        return;
    enum chex_status st = chex_slurm_open(&lib, &why);
    if (st == CHEX_OK)
        st = chex_slurm_this_job(lib, &job, &why);
    if (st == CHEX_OK) {
        found_job(lib, &job, r);
        return;
    }
    r->verdict = CHEX_SKIP;
    chex_check_found(r, "%s", why.text);
}

/* The other ranks have asked nothing. */
static void across(const struct chex_check_record *records,
                   const struct chex_check_result *const *all, int n,
                   struct chex_check_result *merged) {
    (void)records, (void)n;
    *merged = *all[0];
}

CHEX_CHECK(slurm_job, .name = "slurm-job", .question = "what does Slurm say of this job?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe, .across = across);

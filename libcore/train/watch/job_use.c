/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the request of a job with what the run used.
 */
#include "train/watch/job_use.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "base/units.h"

static const double reserve = 1.25; /* of memory and time */
static const double mib = 1048576, gib = 1073741824;

static uint64_t variable(const char *name) {
    const char *text = getenv(name);
    uint64_t v = 0;
    return text && chex_parse_u64(text, &v) ? v : 0;
}

bool chex_job_asked_read(double now_s, struct chex_job_asked *a, double *elapsed_s_out) {
    *elapsed_s_out = 0;
    *a = (struct chex_job_asked){.tasks = variable("SLURM_NTASKS"),
                                 .cores = variable("SLURM_CPUS_PER_TASK"),
                                 .node_bytes = variable("SLURM_MEM_PER_NODE") << 20,
                                 .gpus = variable("SLURM_GPUS")};
    if (!a->node_bytes)
        a->node_bytes = (variable("SLURM_MEM_PER_CPU") * variable("SLURM_CPUS_ON_NODE")) << 20;
    if (!a->gpus)
        a->gpus = variable("SLURM_GPUS_ON_NODE") * variable("SLURM_JOB_NUM_NODES");
    const double start = (double)variable("SLURM_JOB_START_TIME");
    const double end = (double)variable("SLURM_JOB_END_TIME");
    if (start > 0 && now_s > start)
        *elapsed_s_out = now_s - start;
    if (start > 0 && end > start)
        a->limit_s = end - start;
    return variable("SLURM_JOB_ID") != 0;
}

/* Appends an item to a list. */
__attribute__((format(printf, 3, 4))) static void add(struct chex_text_line *l, const char *between,
                                                      const char *fmt, ...) {
    char item[64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(item, sizeof item, fmt, args);
    va_end(args);
    chex_text_append(l, "%s%s", l->used ? between : "", item);
}

static void put_asked(const struct chex_job_asked *a, struct chex_text_line *l) {
    char number[32];
    if (a->tasks)
        add(l, ", ", "%llu task%s", (unsigned long long)a->tasks, chex_text_s(a->tasks));
    if (a->cores)
        add(l, ", ", "%llu core%s a task", (unsigned long long)a->cores, chex_text_s(a->cores));
    if (a->node_bytes)
        add(l, ", ", "%s a node", chex_format_bytes(number, sizeof number, a->node_bytes));
    if (a->gpus)
        add(l, ", ", "%llu GPU%s", (unsigned long long)a->gpus, chex_text_s(a->gpus));
    if (a->limit_s > 0)
        add(l, ", ", "%s", chex_format_duration(number, sizeof number, a->limit_s));
}

static void put_used(const struct chex_job_asked *a, const struct chex_job_used *u,
                     struct chex_text_line *l) {
    char number[32];
    add(l, ", ", "%.1f cores a task", u->cores);
    add(l, ", ", "%s a node", chex_format_bytes(number, sizeof number, u->node_bytes));
    if (a->gpus || u->gpus)
        add(l, ", ", "%d GPU%s", u->gpus, chex_text_s((uint64_t)u->gpus));
    if (u->elapsed_s > 0)
        add(l, ", ", "%s", chex_format_duration(number, sizeof number, u->elapsed_s));
}

static void put_advice(const struct chex_job_asked *a, const struct chex_job_used *u,
                       struct chex_text_line *l) {
    const double cores = fmax(1, ceil(u->cores)), bytes = (double)u->node_bytes * reserve;
    const bool small = bytes < gib;
    if (a->cores && cores < (double)a->cores)
        add(l, " ", "--cpus-per-task=%.0f", cores);
    if (a->node_bytes && bytes > 0)
        add(l, " ", "--mem=%.0f%s", ceil(bytes / (small ? mib : gib)), small ? "M" : "G");
    if (u->gpus > 0 && a->gpus > (uint64_t)u->gpus)
        add(l, " ", "--gpus=%d", u->gpus);
    if (u->whole && u->elapsed_s > 0) {
        const long minutes = (long)ceil(u->elapsed_s * reserve / 60) + 1;
        add(l, " ", "--time=%ld:%02ld:00", minutes / 60, minutes % 60);
    }
    if (a->gpus && !u->gpus)
        add(l, " ", "no GPU");
}

const char *chex_job_use_text(const struct chex_job_asked *a, const struct chex_job_used *u,
                              char *text, size_t size) {
    char asked[160] = "", used[160] = "", advice[160] = "";
    struct chex_text_line lists[] = {
        {asked, sizeof asked, 0}, {used, sizeof used, 0}, {advice, sizeof advice, 0}};
    put_asked(a, &lists[0]);
    put_used(a, u, &lists[1]);
    put_advice(a, u, &lists[2]);
    snprintf(text, size, "job: asked for %s; used %s; next time ask for %s",
             asked[0] ? asked : "nothing that Slurm states", used, advice[0] ? advice : "the same");
    return text;
}

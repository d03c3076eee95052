/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the request of a job with what the run used.
 */
#include "train/watch/job_use.h"

#include <math.h>
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

/* A list in `text`: items with commas or blanks between. */
struct list {
    char *text;
    size_t size, used;
};

static void add(struct list *l, const char *between, const char *item) {
    if (l->used < l->size)
        l->used += (size_t)snprintf(l->text + l->used, l->size - l->used, "%s%s",
                                    l->used ? between : "", item);
}

static void put_asked(const struct chex_job_asked *a, struct list *l) {
    char item[64], number[32];
    if (a->tasks) {
        snprintf(item, sizeof item, "%llu task%s", (unsigned long long)a->tasks,
                 chex_text_s(a->tasks));
        add(l, ", ", item);
    }
    if (a->cores) {
        snprintf(item, sizeof item, "%llu core%s a task", (unsigned long long)a->cores,
                 chex_text_s(a->cores));
        add(l, ", ", item);
    }
    if (a->node_bytes) {
        snprintf(item, sizeof item, "%s a node",
                 chex_format_bytes(number, sizeof number, a->node_bytes));
        add(l, ", ", item);
    }
    if (a->gpus) {
        snprintf(item, sizeof item, "%llu GPU%s", (unsigned long long)a->gpus,
                 chex_text_s(a->gpus));
        add(l, ", ", item);
    }
    if (a->limit_s > 0)
        add(l, ", ", chex_format_duration(number, sizeof number, a->limit_s));
}

static void put_used(const struct chex_job_asked *a, const struct chex_job_used *u,
                     struct list *l) {
    char item[64], number[32];
    snprintf(item, sizeof item, "%.1f cores a task", u->cores);
    add(l, ", ", item);
    snprintf(item, sizeof item, "%s a node",
             chex_format_bytes(number, sizeof number, u->node_bytes));
    add(l, ", ", item);
    if (a->gpus || u->gpus) {
        snprintf(item, sizeof item, "%d GPU%s", u->gpus, chex_text_s((uint64_t)u->gpus));
        add(l, ", ", item);
    }
    if (u->elapsed_s > 0)
        add(l, ", ", chex_format_duration(number, sizeof number, u->elapsed_s));
}

static void put_advice(const struct chex_job_asked *a, const struct chex_job_used *u,
                       struct list *l) {
    char item[64];
    const double cores = fmax(1, ceil(u->cores));
    if (a->cores && cores < (double)a->cores) {
        snprintf(item, sizeof item, "--cpus-per-task=%.0f", cores);
        add(l, " ", item);
    }
    const double bytes = (double)u->node_bytes * reserve;
    if (a->node_bytes && bytes > 0) {
        const bool small = bytes < gib;
        snprintf(item, sizeof item, "--mem=%.0f%s", ceil(bytes / (small ? mib : gib)),
                 small ? "M" : "G");
        add(l, " ", item);
    }
    if (u->gpus > 0 && a->gpus > (uint64_t)u->gpus) {
        snprintf(item, sizeof item, "--gpus=%d", u->gpus);
        add(l, " ", item);
    }
    if (u->whole && u->elapsed_s > 0) {
        const long minutes = (long)ceil(u->elapsed_s * reserve / 60) + 1;
        snprintf(item, sizeof item, "--time=%ld:%02ld:00", minutes / 60, minutes % 60);
        add(l, " ", item);
    }
    if (a->gpus && !u->gpus)
        add(l, " ", "no GPU");
}

const char *chex_job_use_text(const struct chex_job_asked *a, const struct chex_job_used *u,
                              char *text, size_t size) {
    char asked[160] = "", used[160] = "", advice[160] = "";
    struct list lists[] = {
        {asked, sizeof asked, 0}, {used, sizeof used, 0}, {advice, sizeof advice, 0}};
    put_asked(a, &lists[0]);
    put_used(a, u, &lists[1]);
    put_advice(a, u, &lists[2]);
    snprintf(text, size, "job: asked for %s; used %s; next time ask for %s",
             asked[0] ? asked : "nothing that Slurm states", used, advice[0] ? advice : "the same");
    return text;
}

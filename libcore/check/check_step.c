/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks with a small training step (check/step.h): its rate on this rank's processors and on its
 * GPU, and whether every step of every rank gives the same bits.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "check/checks.h"
#include "check/measure.h"

static const char as_others[] = "as fast as others of its kind";

/* ---- step-rate ---- */

static const double step_s = 2;

/* Runs steps and sets figures, spread, disturbance and found text of *r. */
static void measure_rate(const struct chex_check_context *c, struct chex_step *step,
                         struct chex_step_result *s, struct chex_check_result *r) {
    struct chex_error err = {0};
    /* A first step of up to a third of the remaining time is repeated once to compare the bits.
     * That leaves another third for the later checks. */
    const double max_s = (c->until_s - chex_clock_s()) / 3;
    chex_measure_begin(c->measure, CHEX_DISTURB_CPU);
    const enum chex_status st = chex_step_run(step, step_s, max_s, s, &err);
    chex_measure_end(c->measure, r);
    if (st != CHEX_OK) {
        chex_check_not_measured(c, &err, r);
        return;
    }
    r->figures[0] = s->images_per_s;
    r->spread[0] = s->spread;
    if (s->images_per_s > 0)
        chex_check_found(r, "%.4g images/s of %d px, %s", s->images_per_s, CHEX_STEP_PX, s->how);
    else
        chex_check_skip(r, "one step took more than %.1f s, %s", max_s, s->how);
}

static void probe_rate(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2 * step_s, r) || !chex_measure_cpu(c, r))
        return;
    measure_rate(c, m->cpu, &m->cpu_steps, r);
    r->kind = chex_check_cpu_kind(c, m->cpu_steps.how);
}
CHEX_CHECK(step_rate, .name = "step-rate",
           .question = "how fast are training steps of this rank's processors?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_rate, .level = 2,
           .start = CHEX_START_TOGETHER,
           .figures = {{.key = "images_per_s", .unit = "images/s", .compared = true}});

static void probe_gpu_rate(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    chex_check_expect(r, as_others);
    if (!chex_check_has_time(c, 2 * step_s, r) || !chex_measure_gpu(c, r))
        return;
    measure_rate(c, m->gpu, &m->gpu_steps, r);
    r->kind = chex_check_gpu_kind(m);
}
CHEX_CHECK(gpu_step_rate, .name = "gpu-step-rate",
           .question = "how fast are training steps of its GPU?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_NODE, .probe = probe_gpu_rate, .level = 2,
           .start = CHEX_START_TOGETHER,
           .figures = {{.key = "images_per_s", .unit = "images/s", .compared = true}});

/* ---- step-bits ---- */

/* Reports the digest of the steps, or a step with another digest. on: the GPU's name, or "". */
static void report_bits(const struct chex_check_context *c, const struct chex_step_result *s,
                        const char *on, struct chex_check_result *r) {
    const char *than = on[0] ? " on " : "";
    chex_check_expect(r, "the same from each step and rank of one kind");
    if (s->repeats == 0) {
        chex_check_skip(r, "no step was run");
        return;
    }
    uint64_t want = s->digest;
    const bool known = on[0] || chex_step_known_digest(s->how, &want);
    chex_check_found(r, "%s%s%s%s: %016" PRIx64, s->how, known ? "" : ", none on record", than, on,
                     s->digest);
    if (s->digest != want) {
        chex_check_expect(r, "%016" PRIx64 ", as each processor of this kind computes it", want);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "a processor or memory of this node is faulty: leave it out with "
                          "--exclude=%s, drain it, test it",
                          c->launch->host);
    }
    if (s->odd) {
        chex_check_found(r, "%s%s%s: step %d of %d computed other bits from the same input", s->how,
                         than, on, s->odd, s->repeats);
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "a %s or memory of this node is faulty: leave it out with --exclude=%s, "
                          "drain it, test it",
                          on[0] ? "GPU" : "processor", c->launch->host);
    }
}

static void probe_bits(const struct chex_check_context *c, struct chex_check_result *r) {
    report_bits(c, &c->measure->cpu_steps, "", r);
}

static void probe_gpu_bits(const struct chex_check_context *c, struct chex_check_result *r) {
    if (chex_measure_gpu(c, r))
        report_bits(c, &c->measure->gpu_steps, c->measure->device.name, r);
}

/* Whether two answers have the same variant and precision, so that their bits must be equal. */
static bool same_how(const char *a, const char *b) {
    const char *end = strrchr(a, ':');
    return end && strncmp(a, b, (size_t)(end + 1 - a)) == 0;
}

/* The number of ranks with the same answer as rank i. */
static int count_equal(const struct chex_check_result *const *all, int n, int i) {
    int count = 0;
    for (int j = 0; j < n; j++)
        count += strcmp(all[j]->found, all[i]->found) == 0;
    return count;
}

/* Finds two answers of the same kind with different bits. The less frequent one is reported as
 * wrong. If both are equally frequent, the later rank is reported, and the remedy says that either
 * may be wrong. */
static void compare_bits(const struct chex_check_record *records,
                         const struct chex_check_result *const *all, int n, enum chex_verdict bad,
                         struct chex_check_result *merged) {
    for (int i = 1; i < n && merged->verdict == CHEX_PASS; i++) {
        if (all[i]->verdict != CHEX_PASS || strcmp(all[i]->found, all[i - 1]->found) == 0)
            continue;
        for (int j = 0; j < i && merged->verdict == CHEX_PASS; j++) {
            if (all[j]->verdict != CHEX_PASS || strcmp(all[i]->found, all[j]->found) == 0 ||
                !same_how(all[i]->found, all[j]->found))
                continue;
            const int here = count_equal(all, n, i), there = count_equal(all, n, j);
            const int odd = here <= there ? i : j, other = odd == i ? j : i;
            chex_check_found(merged, "rank %d (%s): %s, rank %d (%s): %s; with %d and %d",
                             records[odd].rank, records[odd].host, all[odd]->found,
                             records[other].rank, records[other].host, all[other]->found,
                             here < there ? here : there, here < there ? there : here);
            chex_check_worsen(merged, bad, CHEX_FAULT_NODE,
                              "%s is faulty: leave it out with --exclude=%s, drain it, test it",
                              here == there ? "one of the two" : "the first", records[odd].host);
        }
    }
}
static void across_bits(const struct chex_check_record *records,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged) {
    compare_bits(records, all, n, CHEX_FAIL, merged);
}

/* Only a warning: with less free memory cuDNN may select other kernels, which give other bits. */
static void across_gpu_bits(const struct chex_check_record *records,
                            const struct chex_check_result *const *all, int n,
                            struct chex_check_result *merged) {
    compare_bits(records, all, n, CHEX_WARN, merged);
}

CHEX_CHECK(step_bits, .name = "step-bits", .question = "does every step give the same bits?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_bits,
           .across = across_bits, .level = 2, .is_digest = true);

CHEX_CHECK(gpu_step_bits, .name = "gpu-step-bits",
           .question = "does every step on GPUs of one kind give the same bits?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_gpu_bits,
           .across = across_gpu_bits, .level = 2);

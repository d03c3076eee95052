/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared state of the measuring checks, and their helpers. check/measure.h has the contracts.
 */
#include "check/measure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/hash.h"
#include "base/memory_limit.h"
#include "base/pool.h"
#include "base/units.h"

struct chex_group *chex_check_group(const struct chex_check_context *c) {
    const double left_s = c->until_s - chex_clock_s();
    c->measure->group->wait_ms = left_s > 0 ? (uint64_t)(left_s * 500) + 1 : 1;
    return c->measure->group;
}

void chex_measure_release(struct chex_measure *m) {
    chex_step_destroy(m->cpu);
    chex_step_destroy(m->gpu);
    m->cpu = m->gpu = NULL;
    if (!m->in_coll)
        chex_coll_destroy(m->coll);
    m->coll = NULL;
}

void chex_measure_begin(struct chex_measure *m, enum chex_disturb_kind kind) {
    /* A quiet window needs idle ranks. Before the first measurement no rank has computed yet.
     * Before a later one, another rank may still be preparing it. */
    const bool first = m->before.wall_s <= 0, alone = m->launch->local_size <= 1;
    chex_disturb_begin(&m->watch, kind, kind == CHEX_DISTURB_DISK || first || alone);
    if (kind == CHEX_DISTURB_CPU && first)
        m->before = m->watch.before;
}

void chex_measure_end(struct chex_measure *m, struct chex_check_result *r) {
    if (!chex_disturb_end(&m->watch))
        return;
    memcpy(r->disturbed, m->watch.why, sizeof r->disturbed);
    if (m->watch.kind == CHEX_DISTURB_CPU && !m->disturbed[0])
        memcpy(m->disturbed, m->watch.why, sizeof m->disturbed);
}

struct chex_step *chex_measure_cpu(const struct chex_check_context *c,
                                   struct chex_check_result *r) {
    struct chex_measure *m = c->measure;
    struct chex_error err = {0};
    char need[32], have[32];
    /* chex_check_memory_share is a quarter of this rank's memory. A step may use half of it. */
    const uint64_t share = 2 * chex_check_memory_share(c);
    if (m->cpu)
        return m->cpu;
    if (share < CHEX_STEP_BYTES)
        chex_check_skip(r, "a step takes %s, and half of this rank's free memory is %s",
                        chex_format_bytes(need, sizeof need, CHEX_STEP_BYTES),
                        chex_format_bytes(have, sizeof have, share));
    else if (chex_step_create("cpu", chex_check_threads(c), NULL, &m->cpu, &err) != CHEX_OK)
        chex_check_skip(r, "%s", err.text);
    return m->cpu;
}

struct chex_step *chex_measure_gpu(const struct chex_check_context *c,
                                   struct chex_check_result *r) {
    if (!c->measure->gpu)
        chex_check_skip(r, "%s", c->measure->no_gpu[0] ? c->measure->no_gpu : "see gpu-copy");
    return c->measure->gpu;
}

bool chex_check_has_time(const struct chex_check_context *c, double need_s,
                         struct chex_check_result *r) {
    const double left_s = c->until_s - chex_clock_s();
    if (left_s >= need_s)
        return true;
    chex_check_skip(r, "it takes %.0f s, and --timeout leaves %.1f s", need_s,
                    left_s > 0 ? left_s : 0);
    return false;
}

uint64_t chex_check_memory_share(const struct chex_check_context *c) {
    const uint64_t ranks = c->launch->local_size > 0 ? (uint64_t)c->launch->local_size : 1;
    return chex_memory_free_bytes("") / ranks / 4;
}

int chex_check_threads(const struct chex_check_context *c) {
    return c->binding && c->binding->threads > 0 ? c->binding->threads : chex_cpu_count();
}

uint64_t chex_check_cpu_kind(const struct chex_check_context *c, const char *what) {
    char name[256];
    const int threads = chex_check_threads(c);
    chex_cpu_name("", name, sizeof name);
    uint64_t h = chex_hash64_mix(0, name, strlen(name));
    h = chex_hash64_mix(h, &threads, sizeof threads);
    return chex_hash64_mix(h, what, strlen(what));
}

uint64_t chex_check_gpu_kind(const struct chex_measure *m) {
    return chex_hash64(m->device.name, strlen(m->device.name));
}

void chex_check_skip(struct chex_check_result *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char text[1024];
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    chex_check_found(r, "%s", text);
    r->verdict = CHEX_SKIP;
}

void chex_check_not_measured(const struct chex_check_context *c, const struct chex_error *err,
                             struct chex_check_result *r) {
    if (err->status != CHEX_E_NODE) {
        chex_check_skip(r, "%s", err->text);
        return;
    }
    chex_check_found(r, "%s", err->text);
    chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                      "leave the node out with --exclude=%s, drain it, have it looked at",
                      c->launch->host);
}

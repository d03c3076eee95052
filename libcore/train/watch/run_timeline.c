/* SPDX-License-Identifier: Apache-2.0
 *
 * The timeline of a run: starts it, records the passes, and writes it at the end of the run or when
 * the stall watch ends the job.
 */
#include "train/watch/run_timeline.h"

#include "base/log.h"
#include "base/result.h"

enum chex_status chex_session_open_timeline(struct chex_session *s, struct chex_error *err) {
    const struct chex_timeline_config config = {
        .path = s->config.timeline, .launch = s->world.launch, .coll = s->world.coll};
    if (!config.path || s->config.plan_only)
        return CHEX_OK;
    CHEX_TRY(chex_timeline_create(&config, &s->timeline.file, err));
    s->timeline.trace = s->input.trace = chex_timeline_trace(s->timeline.file);
    return CHEX_OK;
}

/* A GPU works asynchronously, so the host must place its spans. The host gets the loss of a pass
 * when forward ends; backward begins at that time. r->backward_s is the duration of the previous
 * pass's backward, known only now. */
static void trace_device(struct chex_run_timeline *t, uint64_t logical_rank, uint64_t from_ns,
                         const struct chex_pass_result *r) {
    const uint64_t now_ns = chex_clock_ns();
    const uint64_t forward_ns = (uint64_t)(r->forward_s * 1e9);
    uint64_t free_ns = t->device_ns + (uint64_t)(r->backward_s * 1e9);
    struct chex_trace_event e = {t->device_ns, free_ns < now_ns ? free_ns : now_ns, logical_rank,
                                 CHEX_TRACE_BACKWARD, CHEX_TRACE_DEVICE};
    if (t->device_ns && r->backward_s > 0)
        chex_trace_add(t->trace, &e);
    else
        e.end_ns = t->device_ns;
    free_ns = e.end_ns;
    e = (struct chex_trace_event){now_ns - forward_ns, now_ns, logical_rank, CHEX_TRACE_FORWARD,
                                  CHEX_TRACE_DEVICE};
    e.begin_ns = e.begin_ns > free_ns ? e.begin_ns : free_ns;
    chex_trace_add(t->trace, &e);
    chex_trace_span(t->trace, CHEX_TRACE_MAIN, CHEX_TRACE_PASS, from_ns, logical_rank);
    t->device_ns = now_ns;
}

void chex_run_trace_pass(struct chex_run_timeline *t, bool on_device, int v, uint64_t from_ns,
                         const struct chex_pass_result *r) {
    if (!t->trace)
        return;
    if (on_device) {
        trace_device(t, (uint64_t)v, from_ns, r);
        return;
    }
    const uint64_t middle_ns = from_ns + (uint64_t)(r->forward_s * 1e9);
    struct chex_trace_event e = {from_ns, middle_ns, (uint64_t)v, CHEX_TRACE_FORWARD,
                                 CHEX_TRACE_MAIN};
    chex_trace_add(t->trace, &e);
    chex_trace_span(t->trace, CHEX_TRACE_MAIN, CHEX_TRACE_BACKWARD, middle_ns, (uint64_t)v);
}

/* For otherData; NULL: out of memory, and the file lacks these keys. */
static json_t *about(const struct chex_session *s) {
    const struct chex_engine_impl *impl = s->engine->impl;
    return chex_result(
        CHEX_FIELD("command", "chex-train"), CHEX_FIELD("version", CHEXNET_VERSION),
        CHEX_FIELD("output", s->config.output_dir), CHEX_FIELD("engine", impl->name),
        CHEX_FIELD("variant", impl->variant(s->engine->self)),
        CHEX_FIELD("precision", chex_precision_names[s->config.precision]),
        CHEX_FIELD("batch_images", s->config.batch), CHEX_MEMBER(&s->config, logical_ranks),
        CHEX_FIELD("rank_count", s->size), CHEX_FIELD("first_step", s->started_step + 1),
        CHEX_FIELD(
            "device",
            s->needs.on_device
                ? "forward and backward are the device's own times, placed by when the host had "
                  "the loss; of reduction and optimizer the host's orders alone are known"
                : "none: the engine computes on the processor"));
}

void chex_session_write_stalled(struct chex_session *s, const struct chex_mark *mark) {
    struct chex_error err = {0};
    if (s->rank == 0 &&
        chex_timeline_write_alone(s->timeline.file, about(s), mark, &err) != CHEX_OK)
        chex_warn("%s", err.text);
}

enum chex_status chex_session_end_timeline(struct chex_session *s, enum chex_status st,
                                           struct chex_error *err) {
    struct chex_error fault = {0};
    /* After a rank is lost, collectives do not work, even if all ranks know of the loss. */
    const bool together = s->size == 1 || st == CHEX_OK || (s->together && st != CHEX_E_LOST);
    if (!s->timeline.file)
        return st;
    if (together)
        chex_watchdog_wait(s->world.watchdog);
    json_t *o = s->rank == 0 ? about(s) : NULL;
    const enum chex_status written =
        together ? chex_timeline_write(s->timeline.file, o, &fault)
                 : chex_timeline_write_alone(s->timeline.file, o, NULL, &fault);
    if (written == CHEX_OK)
        return st;
    if (st == CHEX_OK)
        return chex_error_set(err, written, "%s; the run itself is whole, in %s", fault.text,
                              s->config.output_dir);
    if (s->rank == 0)
        chex_warn("%s", fault.text);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines of one process: the file is JSON, its events are those recorded, in an order that
 * viewers take; what is dropped, and what cannot be written. And the lines between clocks. Several
 * ranks: tests/slurm.
 */
#include "train/watch/timeline.h"

#include "dir.h"
#include "tap.h"

static struct chex_error err;
static struct chex_launch launch = {.method = "single", .size = 1, .host = "here \"there\""};
static struct chex_coll *coll;

static struct chex_timeline *make(const char *path, size_t events) {
    const struct chex_timeline_config config = {
        .path = path, .launch = &launch, .coll = coll, .events = events};
    struct chex_timeline *t = NULL;
    MUST(chex_timeline_create(&config, &t, &err));
    return t;
}

static void span(struct chex_trace *trace, unsigned thread, enum chex_trace_kind kind,
                 uint64_t from_us, uint64_t to_us) {
    const uint64_t zero = chex_clock_ns();
    const struct chex_trace_event e = {zero + from_us * 1000, zero + to_us * 1000, 3, kind, thread};
    chex_trace_add(trace, &e);
}

static json_t *load(const char *path) {
    json_error_t why;
    json_t *o = json_load_file(path, 0, &why);
    OK(o != NULL, "%s is JSON%s%s", path, o ? "" : ": ", o ? "" : why.text);
    return o;
}

/* "a.0.b": member b of element 0 of member a. */
static const json_t *at(const json_t *o, const char *path) {
    char key[32];
    int used;
    for (; sscanf(path, "%31[^.]%n", key, &used) == 1; path += path[used] ? used + 1 : used)
        o = json_is_array(o) ? json_array_get(o, (size_t)atoi(key)) : json_object_get(o, key);
    return o;
}

static const char *text(const json_t *o, const char *path) {
    const char *s = json_string_value(at(o, path));
    return s ? s : "";
}

/* The n-th event of this phase. */
static const json_t *event(const json_t *file, const char *phase, int n) {
    size_t i;
    const json_t *e;
    json_array_foreach(json_object_get(file, "traceEvents"), i, e) {
        if (strcmp(text(e, "ph"), phase) == 0 && n-- == 0)
            return e;
    }
    return NULL;
}

static void test_file(void) {
    const char *path = dir_path("a.json");
    struct chex_timeline *t = make(path, 64);
    struct chex_trace *trace = chex_timeline_trace(t);
    /* What is within ends, and so is recorded, before what it is in. */
    span(trace, CHEX_TRACE_INPUT + 1, CHEX_TRACE_BATCH, 500, 600);
    span(trace, CHEX_TRACE_MAIN, CHEX_TRACE_DATA, 1000, 1200);
    span(trace, CHEX_TRACE_MAIN, CHEX_TRACE_STEP, 900, 2000);
    chex_trace_count(trace, CHEX_TRACE_LOSS, 0.5);
    chex_trace_count(trace, CHEX_TRACE_RATE, NAN);
    OK_CALL(chex_timeline_write(t, json_pack("{s:s}", "command", "test"), &err));
    json_t *o = load(path);
    OK(strcmp(text(event(o, "M", 0), "args.name"), "rank 0 (here \"there\")") == 0,
       "the process is named with its host, whatever that is called");
    OK(strcmp(text(event(o, "X", 0), "name"), "step") == 0 &&
           strcmp(text(event(o, "X", 1), "name"), "wait for data") == 0 &&
           strcmp(text(event(o, "X", 2), "name"), "make batch") == 0 && !event(o, "X", 3),
       "threads in turn, and in them what contains others first");
    const double dur = json_number_value(json_object_get(event(o, "X", 0), "dur"));
    OK(fabs(dur - 1100) < 1e-3, "microseconds: %g", dur);
    OK(json_integer_value(at(event(o, "X", 0), "args.step")) == 3, "with the step");
    OK(json_number_value(at(event(o, "C", 0), "args.loss")) == 0.5, "a count");
    OK(event(o, "C", 1) && !event(o, "C", 2), "one that is no number leaves the file one of JSON");
    OK(strcmp(text(o, "otherData.command"), "test") == 0 &&
           json_is_true(at(o, "otherData.all_ranks")),
       "what the caller adds");
    OK(json_integer_value(at(o, "otherData.ranks.0.events")) == 5 &&
           json_integer_value(at(o, "otherData.ranks.0.dropped")) == 0,
       "what is in it");
    json_decref(o);
    for (int i = 0; i < 100; i++)
        span(trace, CHEX_TRACE_MAIN, CHEX_TRACE_STEP, (uint64_t)i * 10, (uint64_t)i * 10 + 5);
    const struct chex_mark mark = {.step = 8, .silent_ms = 1, .phase = CHEX_PHASE_COMPUTE};
    OK_CALL(chex_timeline_write_alone(t, NULL, &mark, &err));
    o = load(path);
    OK(event(o, "X", 63) && strcmp(text(event(o, "X", 64), "name"), "stalled") == 0,
       "a rank alone writes its own events, with its position");
    OK(json_integer_value(at(o, "otherData.ranks.0.dropped")) == 41,
       "the last events are kept, the others counted");
    json_decref(o);
    chex_timeline_destroy(t);
}

static void test_faults(void) {
    struct chex_timeline *t = make(dir_path("none/a.json"), 64);
    OK_STATUS(chex_timeline_write(t, json_object(), &err), CHEX_E_ENV, err,
              "timeline: cannot create ");
    chex_timeline_destroy(t);
    MUST(chex_fs_mkdirs(dir_path("folder"), &err));
    t = make(dir_path("folder"), 64);
    OK_STATUS(chex_timeline_write(t, NULL, &err), CHEX_E_ENV, err, "it is a folder");
    chex_timeline_destroy(t);
    chex_timeline_destroy(NULL);
    OK(chex_timeline_trace(NULL) == NULL && chex_timeline_align(NULL, &err) == CHEX_OK,
       "none is wanted");
}

static void test_clocks(void) {
    struct chex_clock_line l = {.count = 0};
    OK(chex_clock_line_map(&l, 1000) == 1000, "rank 0: its own time");
    const struct chex_clock_point behind = {.at_ns = 1000, .offset_ns = -500};
    chex_clock_line_add(&l, &behind);
    OK(chex_clock_line_map(&l, 1000) == 1500 && chex_clock_line_map(&l, 10) == 510 &&
           chex_clock_line_map(&l, 5000) == 5500,
       "one comparison holds for all times");
    const struct chex_clock_point later = {.at_ns = 3000, .offset_ns = -300};
    chex_clock_line_add(&l, &later);
    OK(chex_clock_line_map(&l, 2000) == 2400 && chex_clock_line_map(&l, 3000) == 3300 &&
           chex_clock_line_map(&l, 9000) == 9300,
       "drift is followed between two, and stays as it was after them");
    for (int i = 0; i < CHEX_CLOCK_POINTS; i++) {
        const struct chex_clock_point p = {.at_ns = 10000 + (uint64_t)i, .offset_ns = i};
        chex_clock_line_add(&l, &p);
    }
    OK(l.count == CHEX_CLOCK_POINTS && l.points[0].at_ns == 10000, "the last ones are kept");
}

int main(void) {
    dir_make();
    MUST(chex_coll_create(&launch, &coll, &err));
    test_file();
    test_faults();
    test_clocks();
    chex_coll_destroy(coll);
    dir_remove();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers the trace buffers of all ranks on rank 0 and writes one Trace Event file. timeline.h
 * describes the method for the clocks. Rank 0 holds the events of one rank at a time, so its memory
 * does not grow with the number of ranks.
 */
#include "train/watch/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/textfile.h"

enum {
    ROUNDS = 32, /* questions to a rank's clock */
    CLOCK_TAG = 31000,
    EVENTS_TAG = 31001,
    MAX_EVENTS = 1 << 16, /* of a rank */
    MIN_EVENTS = 1 << 10,
    ALL_EVENTS = 1 << 20, /* of all ranks: a file of about 140 MB */
};

struct chex_timeline {
    struct chex_timeline_config config;
    struct chex_trace *trace;
    size_t size;                   /* of the ring, in events */
    uint64_t zero_ns;              /* rank 0's clock at the start: time 0 of the file */
    double zero_unix_s;            /* the same moment in Unix time */
    struct chex_clock_line *lines; /* rank 0: (ranks) */
};

/* A rank sends this header before its events. */
struct parcel {
    uint64_t count, dropped;
    char host[CHEX_HOST_BYTES];
};

/* ---- clocks ---- */

void chex_clock_line_add(struct chex_clock_line *l, const struct chex_clock_point *p) {
    if (l->count == CHEX_CLOCK_POINTS)
        memmove(l->points, l->points + 1, (size_t)--l->count * sizeof *p);
    l->points[l->count++] = *p;
}

uint64_t chex_clock_line_map(const struct chex_clock_line *l, uint64_t ns) {
    int k = 0;
    if (l->count == 0)
        return ns;
    while (k < l->count && l->points[k].at_ns <= ns)
        k++;
    if (k == 0 || k == l->count)
        return ns - (uint64_t)l->points[k ? k - 1 : 0].offset_ns;
    const struct chex_clock_point *a = &l->points[k - 1], *b = &l->points[k];
    const double share = (double)(ns - a->at_ns) / (double)(b->at_ns - a->at_ns);
    return ns - (uint64_t)(a->offset_ns +
                           (int64_t)llround(share * (double)(b->offset_ns - a->offset_ns)));
}

/* Rank 0 asks one rank for its time, ROUNDS times, and keeps the answer with the shortest round
 * trip. It assumes that the answer was made in the middle of the round trip. */
static enum chex_status ask(struct chex_coll *c, int rank, struct chex_clock_point *best,
                            struct chex_error *err) {
    best->error_ns = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t theirs = 0;
        const uint64_t sent = chex_clock_ns();
        CHEX_TRY(c->impl->send(c->self, &theirs, sizeof theirs, rank, CLOCK_TAG, err));
        CHEX_TRY(c->impl->receive(c->self, &theirs, sizeof theirs, rank, CLOCK_TAG, err));
        const uint64_t took = chex_clock_ns() - sent;
        const int64_t error = (int64_t)(took / 2 + took % 2);
        if (error >= best->error_ns)
            continue;
        *best = (struct chex_clock_point){
            .at_ns = theirs, .offset_ns = (int64_t)(theirs - (sent + took / 2)), .error_ns = error};
    }
    return CHEX_OK;
}

static enum chex_status answer(struct chex_coll *c, struct chex_error *err) {
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t now_ns;
        CHEX_TRY(c->impl->receive(c->self, &now_ns, sizeof now_ns, 0, CLOCK_TAG, err));
        now_ns = chex_clock_ns();
        CHEX_TRY(c->impl->send(c->self, &now_ns, sizeof now_ns, 0, CLOCK_TAG, err));
    }
    return CHEX_OK;
}

enum chex_status chex_timeline_align(struct chex_timeline *t, struct chex_error *err) {
    if (!t)
        return CHEX_OK;
    struct chex_coll *c = t->config.coll;
    const uint64_t from = chex_clock_ns();
    enum chex_status st = CHEX_OK;
    if (c->rank != 0)
        st = answer(c, err);
    for (int r = 1; c->rank == 0 && r < c->size && st == CHEX_OK; r++) {
        struct chex_clock_point best = {0};
        st = ask(c, r, &best, err);
        if (st == CHEX_OK)
            chex_clock_line_add(&t->lines[r], &best);
    }
    if (c->size > 1)
        chex_trace_span(t->trace, CHEX_TRACE_MAIN, CHEX_TRACE_CLOCKS, from, 0);
    return st;
}

/* ---- the handle ---- */

static size_t events_of(int ranks) {
    size_t n = MAX_EVENTS;
    while (n > MIN_EVENTS && n * (size_t)ranks > ALL_EVENTS)
        n /= 2;
    return n;
}

enum chex_status chex_timeline_create(const struct chex_timeline_config *config,
                                      struct chex_timeline **out, struct chex_error *err) {
    struct chex_timeline *t = chex_alloc_zeroed(1, sizeof *t);
    enum chex_status st = t ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK) {
        t->config = *config;
        t->size = config->events ? config->events : events_of(config->coll->size);
        t->zero_ns = chex_clock_ns();
        t->zero_unix_s = chex_clock_unix_s();
        st = chex_trace_create(t->size, &t->trace, err);
    }
    if (st == CHEX_OK && config->coll->rank == 0 &&
        !(t->lines = chex_alloc_zeroed((size_t)config->coll->size, sizeof *t->lines)))
        st = chex_error_memory(err, NULL);
    /* Agree before the clocks are compared: no rank then waits for one that has failed. */
    st = chex_group_agree(config->coll->group, st, err);
    if (st == CHEX_OK)
        st = chex_timeline_align(t, err);
    if (st != CHEX_OK)
        chex_timeline_destroy(t);
    else
        *out = t;
    return st;
}

void chex_timeline_destroy(struct chex_timeline *t) {
    if (!t)
        return;
    chex_trace_destroy(t->trace);
    free(t->lines);
    free(t);
}

struct chex_trace *chex_timeline_trace(struct chex_timeline *t) {
    return t ? t->trace : NULL;
}

/* ---- writing ---- */

struct writer {
    struct chex_timeline *t;
    struct chex_textfile out;
    FILE *file;    /* of `out` */
    bool any;      /* an event was written, so the next one needs a comma */
    json_t *ranks; /* of otherData */
    uint64_t events, dropped;
};

static void begin_event(struct writer *w) {
    fputs(w->any ? ",\n" : "\n", w->file);
    w->any = true;
}

/* Names a process (rank) or a thread in the viewer. */
static void write_name(struct writer *w, const char *what, int rank, unsigned thread,
                       const char *name) {
    json_auto_t *text = json_string(name);
    CHEX_AUTO_FREE char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    begin_event(w);
    fprintf(w->file, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,\"args\":{\"name\":%s}}",
            what, rank, thread, quoted ? quoted : "\"\"");
}

static void write_rank_names(struct writer *w, int rank, const char *host,
                             const struct chex_trace_event *events, size_t count) {
    static const char *const names[] = {"steps", "gradients", "device", "checkpoints"};
    char name[CHEX_HOST_BYTES + 32];
    snprintf(name, sizeof name, "rank %d (%s)", rank, host);
    write_name(w, "process_name", rank, 0, name);
    begin_event(w);
    fprintf(w->file,
            "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"tid\":0,"
            "\"args\":{\"sort_index\":%d}}",
            rank, rank);
    write_name(w, "thread_name", rank, CHEX_TRACE_MAIN, names[CHEX_TRACE_MAIN]);
    for (size_t i = 0; i < count; i++) { /* sorted by thread */
        const unsigned thread = events[i].thread;
        if (thread == (i ? events[i - 1].thread : CHEX_TRACE_MAIN))
            continue;
        snprintf(name, sizeof name, "input worker %u", thread - CHEX_TRACE_INPUT);
        write_name(w, "thread_name", rank, thread,
                   thread < CHEX_TRACE_INPUT ? names[thread] : name);
    }
}

/* Microseconds since the start, by rank 0's clock. Events before the start get 0. */
static double place_us(const struct writer *w, int rank, uint64_t ns) {
    const uint64_t by_zero = chex_clock_line_map(&w->t->lines[rank], ns);
    return by_zero > w->t->zero_ns ? (double)(by_zero - w->t->zero_ns) / 1e3 : 0;
}

static void write_event(struct writer *w, int rank, const struct chex_trace_event *e) {
    const struct chex_trace_text *text = &chex_trace_texts[e->kind];
    const double from = place_us(w, rank, e->begin_ns);
    begin_event(w);
    if (chex_trace_is_count(e->kind)) {
        double value;
        memcpy(&value, &e->value, sizeof value);
        fprintf(w->file,
                "{\"ph\":\"C\",\"name\":\"%s\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,"
                "\"args\":{\"%s\":%.9g}}",
                text->name, rank, e->thread, from, text->value, isfinite(value) ? value : 0);
        return;
    }
    const double to = place_us(w, rank, e->end_ns);
    fprintf(w->file,
            "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%u,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"%s\":%" PRIu64 "}}",
            text->name, text->category, rank, e->thread, from, to > from ? to - from : 0,
            text->value, e->value);
}

/* By thread, then by begin; an outer span comes before the spans that it contains. */
static int in_order(const void *a, const void *b) {
    const struct chex_trace_event *x = a, *y = b;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns != y->end_ns ? (x->end_ns > y->end_ns ? -1 : 1) : 0;
}

static void write_rank(struct writer *w, int rank, const struct parcel *p,
                       struct chex_trace_event *events) {
    const struct chex_clock_line *l = &w->t->lines[rank];
    const struct chex_clock_point *last = l->count ? &l->points[l->count - 1] : NULL;
    int64_t error = 0;
    for (int i = 0; i < l->count; i++)
        error = l->points[i].error_ns > error ? l->points[i].error_ns : error;
    qsort(events, (size_t)p->count, sizeof *events, in_order);
    write_rank_names(w, rank, p->host, events, (size_t)p->count);
    for (uint64_t i = 0; i < p->count; i++)
        if (events[i].kind < CHEX_TRACE_KINDS)
            write_event(w, rank, &events[i]);
    w->events += p->count;
    w->dropped += p->dropped;
    json_array_append_new(w->ranks,
                          chex_result(CHEX_FIELD("rank", rank), CHEX_MEMBER(p, host),
                                      CHEX_FIELD("events", p->count), CHEX_MEMBER(p, dropped),
                                      CHEX_FIELD("clock_offset_ns", last ? last->offset_ns : 0),
                                      CHEX_FIELD("clock_error_ns", error),
                                      CHEX_FIELD("clock_points", l->count)));
}

static const char opening[] = "{\"traceEvents\":[";

/* Protects other files from a mistyped name: an existing file must be empty or a timeline. */
static enum chex_status refuse_foreign(const char *path, struct chex_error *err) {
    char head[sizeof opening - 1];
    int fd = -1;
    if (chex_fs_open(path, &fd, NULL, NULL) != CHEX_OK)
        return CHEX_OK;
    const ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    if (n <= 0 || (n == sizeof head && memcmp(head, opening, sizeof head) == 0))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "--timeline %s: a file of that name is there and is no timeline: name "
                          "another one",
                          path);
}

enum chex_status chex_timeline_check(const char *path, struct chex_error *err) {
    CHEX_TRY(chex_fs_check_create(path, err));
    return refuse_foreign(path, err);
}

static enum chex_status open_writer(struct chex_timeline *t, struct writer *w,
                                    struct chex_error *err) {
    *w = (struct writer){.t = t, .ranks = json_array()};
    enum chex_status st = chex_textfile_open(t->config.path, &w->out, err);
    if (st != CHEX_OK)
        return chex_error_prefix(err, st, "timeline");
    w->file = w->out.f;
    fputs(opening, w->file);
    return CHEX_OK;
}

static json_t *clock_json(void) {
    return json_pack("{s:s,s:i,s:s}", "method",
                     "Cristian: rank 0 asks each rank for its time and takes the quickest answer; "
                     "straight lines between comparisons",
                     "questions", ROUNDS, "error",
                     "half of the quickest round trip, the largest of "
                     "a rank's comparisons");
}

/* Ends the file and renames it, or removes it if `st` (the status so far) is an error; then logs.
 * Takes the reference of `about` and frees what the writer owns. ranks: whose events are in. */
static enum chex_status close_writer(struct writer *w, json_t *about, int ranks,
                                     enum chex_status st, struct chex_error *err) {
    const struct chex_timeline *t = w->t;
    const char *path = t->config.path;
    const int all = t->config.coll->size;
    json_auto_t *other = about ? about : json_object();
    json_object_update_new(
        other,
        chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("start_unix_s", t->zero_unix_s),
                    CHEX_FIELD("events_kept_a_rank", t->size), CHEX_FIELD("clock", clock_json()),
                    CHEX_FIELD("all_ranks", (bool)(ranks == all)), CHEX_FIELD("ranks", w->ranks)));
    if (!w->file)
        return st;
    fputs("\n],\n\"displayTimeUnit\":\"ms\",\n\"otherData\":", w->file);
    const bool cut = json_dumpf(other, w->file, JSON_INDENT(1) | JSON_PRESERVE_ORDER) != 0;
    fputs("}\n", w->file);
    if (cut && !ferror(w->file) && st == CHEX_OK)
        st = chex_error_memory(err, "timeline %s", path);
    if (st == CHEX_OK)
        st = refuse_foreign(path, err);
    CHEX_TRY(chex_textfile_close(&w->out, st, err));
    chex_info("timeline %s: %llu events of %d rank%s%s", path, (unsigned long long)w->events, ranks,
              ranks > 1 ? "s" : "", ranks < all ? ", rank 0 alone: the others were not asked" : "");
    if (w->dropped)
        chex_info("  the last %zu events of a rank are kept: %llu earlier ones are not in it",
                  t->size, (unsigned long long)w->dropped);
    return CHEX_OK;
}

static struct parcel own_parcel(const struct chex_timeline *t, struct chex_trace_event *events) {
    struct parcel p = {0};
    uint64_t dropped;
    p.count = chex_trace_read(t->trace, events, &dropped);
    p.dropped = dropped;
    snprintf(p.host, sizeof p.host, "%s", t->config.launch->host);
    return p;
}

/* Receives the events of every rank even if `st` is an error, so that no rank waits in send. */
static enum chex_status write_all(struct chex_timeline *t, struct writer *w, enum chex_status st,
                                  struct chex_trace_event *events, struct chex_error *err) {
    struct chex_coll *c = t->config.coll;
    struct parcel p = own_parcel(t, events);
    for (int r = 0; r < c->size; r++) {
        if (r > 0)
            CHEX_TRY(c->impl->receive(c->self, &p, sizeof p, r, EVENTS_TAG, err));
        if (p.count > t->size)
            return chex_error_set(err, CHEX_E_FAIL, "rank %d sends %llu events of at most %zu", r,
                                  (unsigned long long)p.count, t->size);
        if (r > 0 && p.count)
            CHEX_TRY(c->impl->receive(c->self, events, (size_t)p.count * sizeof *events, r,
                                      EVENTS_TAG, err));
        if (st == CHEX_OK)
            write_rank(w, r, &p, events);
    }
    return st;
}

static enum chex_status send_events(struct chex_timeline *t, struct chex_trace_event *events,
                                    struct chex_error *err) {
    struct chex_coll *c = t->config.coll;
    const struct parcel p = own_parcel(t, events);
    CHEX_TRY(c->impl->send(c->self, &p, sizeof p, 0, EVENTS_TAG, err));
    if (!p.count)
        return CHEX_OK;
    return c->impl->send(c->self, events, (size_t)p.count * sizeof *events, 0, EVENTS_TAG, err);
}

enum chex_status chex_timeline_write(struct chex_timeline *t, json_t *about,
                                     struct chex_error *err) {
    struct chex_coll *c = t->config.coll;
    json_auto_t *other = about;
    struct writer w;
    CHEX_AUTO_FREE struct chex_trace_event *events = chex_alloc_zeroed(t->size, sizeof *events);
    enum chex_status st = events ? CHEX_OK : chex_error_memory(err, "the timeline");
    CHEX_TRY(chex_group_agree(c->group, st, err));
    CHEX_TRY(chex_timeline_align(t, err));
    if (c->rank == 0) {
        st = open_writer(t, &w, err);
        st = write_all(t, &w, st, events, err);
        st = close_writer(&w, json_incref(other), c->size, st, err);
    } else {
        st = send_events(t, events, err);
    }
    return chex_group_agree(c->group, st, err);
}

/* A span for the phase in which rank 0 hangs. */
static void write_place(struct writer *w, const struct chex_mark *place) {
    char text[128];
    const double to = place_us(w, 0, chex_clock_ns());
    const double long_us = (double)place->silent_ms * 1e3, from = to > long_us ? to - long_us : 0;
    begin_event(w);
    fprintf(w->file,
            "{\"ph\":\"X\",\"name\":\"stalled\",\"cat\":\"step\",\"pid\":0,\"tid\":0,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"place\":\"%s\"}}",
            from, to - from, chex_stall_place(place, text, sizeof text));
}

enum chex_status chex_timeline_write_alone(struct chex_timeline *t, json_t *about,
                                           const struct chex_mark *place, struct chex_error *err) {
    json_auto_t *other = about;
    struct writer w;
    if (!t || t->config.coll->rank != 0)
        return CHEX_OK;
    CHEX_AUTO_FREE struct chex_trace_event *events = chex_alloc_zeroed(t->size, sizeof *events);
    enum chex_status st = open_writer(t, &w, err);
    if (!events && st == CHEX_OK)
        st = chex_error_memory(err, "the timeline");
    if (st == CHEX_OK) {
        const struct parcel p = own_parcel(t, events);
        write_rank(&w, 0, &p, events);
        if (place)
            write_place(&w, place);
    }
    return close_writer(&w, json_incref(other), 1, st, err);
}

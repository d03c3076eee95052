/* SPDX-License-Identifier: Apache-2.0
 *
 * --timeline: writes the last events of every rank (base/trace.h) as one file in the Trace Event
 * Format, for Perfetto and chrome://tracing.
 *
 * In the viewer a rank is a process, named with its host. Its threads are the steps, the reduction,
 * the device and the input workers.
 *
 * Size. Each rank keeps its last 65,536 events; fewer if all ranks together would exceed 1,048,576.
 * So memory and file do not grow with the length of the run. Older events are counted as dropped.
 *
 * Clocks. Each rank has its own clock. Rank 0 asks each rank for its time 32 times and uses the
 * answer with the shortest round trip (Cristian 1989); half of that round trip bounds the error.
 * It repeats this at the end of each epoch and of the run, and interpolates linearly between the
 * comparisons, so drift is corrected.
 *
 * Only rank 0 writes, to a temporary file that it renames when it is complete.
 */
#ifndef CHEX_TRAIN_WATCH_TIMELINE_H
#define CHEX_TRAIN_WATCH_TIMELINE_H

#include <jansson.h>

#include "base/trace.h"
#include "launch/coll.h"
#include "train/watch/stall.h"

struct chex_timeline;

struct chex_timeline_config {
    const char *path;                 /* borrowed */
    const struct chex_launch *launch; /* borrowed */
    struct chex_coll *coll;           /* borrowed */
    size_t events;                    /* kept per rank: a power of two, or 0 for the default */
};

/* Checks before the run that the file can be written; creates nothing. CHEX_E_USAGE: `path` exists
 * and is not a timeline, so it would be lost. */
enum chex_status chex_timeline_check(const char *path, struct chex_error *err);

/* Starts recording and compares the clocks. Collective; a failure may be on this rank only. */
enum chex_status chex_timeline_create(const struct chex_timeline_config *config,
                                      struct chex_timeline **out, struct chex_error *err);
void chex_timeline_destroy(struct chex_timeline *t); /* NULL allowed */

/* The trace buffer of this rank; NULL for NULL. */
struct chex_trace *chex_timeline_trace(struct chex_timeline *t);

/* Compares the clocks again. NULL does nothing. Call between two steps, because it uses the
 * collectives. Collective. */
enum chex_status chex_timeline_align(struct chex_timeline *t, struct chex_error *err);

/* Rank 0 receives the events of all ranks, one rank after the other, and writes the file. `about`
 * (on rank 0; the reference is taken) becomes its otherData. All ranks return the same status.
 * Collective. */
enum chex_status chex_timeline_write(struct chex_timeline *t, json_t *about,
                                     struct chex_error *err);

/* Writes only rank 0's events, when the other ranks can no longer be reached. Other ranks do
 * nothing. `place` (or NULL) adds a span "stalled" for the phase in which rank 0 hangs. Any thread
 * may call it while others record. `about` as above. */
enum chex_status chex_timeline_write_alone(struct chex_timeline *t, json_t *about,
                                           const struct chex_mark *place, struct chex_error *err);

/* ---- clock arithmetic; public for its unit test ---- */

enum { CHEX_CLOCK_POINTS = 32 };

/* When the rank's clock was at_ns, it was offset_ns ahead of rank 0's clock. */
struct chex_clock_point {
    uint64_t at_ns;
    int64_t offset_ns, error_ns;
};

struct chex_clock_line {
    struct chex_clock_point points[CHEX_CLOCK_POINTS]; /* at_ns rises */
    int count;
};

/* Keeps the last CHEX_CLOCK_POINTS points. */
void chex_clock_line_add(struct chex_clock_line *l, const struct chex_clock_point *p);
/* Converts a time of the rank's clock to rank 0's clock: linear between points, constant offset
 * before the first and after the last one. */
uint64_t chex_clock_line_map(const struct chex_clock_line *l, uint64_t ns);

#endif

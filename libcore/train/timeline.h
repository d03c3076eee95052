/* SPDX-License-Identifier: Apache-2.0
 *
 * --timeline: the last events of every rank (base/trace.h) as one file in the Trace Event Format,
 * which Perfetto and chrome://tracing show.
 *
 * A process in the picture is a rank, named with its host; its threads are the steps, the
 * reduction, the device, the input workers. Each rank keeps the last events, so that a run of days
 * takes no more memory and makes no larger file than one of minutes: 65,536 a rank, fewer where the
 * ranks together would have more than 1,048,576. What came before is counted, and the count is
 * told.
 *
 * Clocks. Ranks have clocks of their own. Rank 0 asks each for its time over the collectives some
 * 32 times and believes the quickest answer (Cristian 1989): what it took, halved, bounds the
 * error. That is done at the start, at the end of each epoch and at the end of the run, so that the
 * drift of a clock is followed, in straight lines between.
 *
 * Only rank 0 writes, under a temporary name that becomes the file's when all of it is there.
 */
#ifndef CHEX_TRAIN_TIMELINE_H
#define CHEX_TRAIN_TIMELINE_H

#include <jansson.h>

#include "base/trace.h"
#include "launch/coll.h"
#include "train/stall.h"

struct chex_timeline;

struct chex_timeline_config {
    const char *path;                 /* borrowed */
    const struct chex_launch *launch; /* borrowed */
    struct chex_coll *coll;           /* borrowed */
    size_t events;                    /* of a rank; 0: as above. A power of two */
};

/* Whether the file can be written, before the run: looks and makes nothing. CHEX_E_USAGE where a
 * file is there that is no timeline, and would be lost. */
enum chex_status chex_timeline_check(const char *path, struct chex_error *err);

/* Compares the clocks. Collective; a failure is this rank's alone. */
enum chex_status chex_timeline_create(const struct chex_timeline_config *config,
                                      struct chex_timeline **out, struct chex_error *err);
void chex_timeline_destroy(struct chex_timeline *t); /* NULL allowed */

/* Where this rank records; NULL for NULL. */
struct chex_trace *chex_timeline_trace(struct chex_timeline *t);

/* Compares the clocks again; NULL does nothing. Between two steps, for it needs the collectives.
 * Collective. */
enum chex_status chex_timeline_align(struct chex_timeline *t, struct chex_error *err);

/* Gathers all ranks' events, rank by rank, and writes the file. `about` (rank 0; the reference is
 * taken) goes into its otherData. All ranks return the same. Collective. */
enum chex_status chex_timeline_write(struct chex_timeline *t, json_t *about,
                                     struct chex_error *err);

/* Rank 0's own part, where the others cannot be asked any more; other ranks do nothing. `place`
 * says what it was at, as a span without an end, or is NULL. Any thread, with recording under way.
 */
enum chex_status chex_timeline_write_alone(struct chex_timeline *t, json_t *about,
                                           const struct chex_mark *place, struct chex_error *err);

/* ---- the arithmetic of clocks, for its test ---- */

enum { CHEX_CLOCK_POINTS = 32 };

/* At time `at_ns` of its own clock a rank was offset_ns ahead of rank 0. */
struct chex_clock_point {
    uint64_t at_ns;
    int64_t offset_ns, error_ns;
};

struct chex_clock_line {
    struct chex_clock_point points[CHEX_CLOCK_POINTS]; /* of rising at_ns */
    int count;
};

/* The last points are kept. */
void chex_clock_line_add(struct chex_clock_line *l, const struct chex_clock_point *p);
/* A time of the rank's clock by rank 0's. */
uint64_t chex_clock_line_map(const struct chex_clock_line *l, uint64_t ns);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The hardest cases of an evaluation: for each class the negative images with the highest scores
 * and the positive images with the lowest, as small pictures with class activation maps.
 *
 * Rank 0 chooses the cases from the predictions. The ranks that own the rows read the stored pixels
 * and run the network once more, one image at a time. Rank 0 gets a small picture and the local
 * logits of each. The result does not depend on the number of ranks. Maps are those of the centre
 * crop, without test-time augmentation.
 */
#ifndef CHEX_INFER_CASES_H
#define CHEX_INFER_CASES_H

#include <stdbool.h>

#include "engine/engine.h"
#include "launch/coll.h"
#include "shard/shard.h"
#include "stats/predictions.h"

enum {
    CHEX_CASES_MOST = 20,      /* of one class and one label */
    CHEX_CASE_PICTURE_PX = 192 /* greatest side of a picture */
};

struct chex_case {
    size_t row; /* of the predictions */
    int class_index;
    bool positive; /* the label */
    /* PNG files in memory; NULL before the pictures are made. image: grey. map: its colours, with
     * opacity, of the same size. */
    uint8_t *image, *map;
    size_t image_bytes, map_bytes;
};

struct chex_cases {
    const struct chex_predictions *table; /* of images; borrowed */
    size_t count;
    struct chex_case *one; /* (count) by class; negatives first; the hardest first */
    int positions;         /* of a map, along each side */
    bool tta; /* the scores are means over augmented images or networks, the maps are not */
};

/* Chooses the cases, without pictures. Of equal scores the row that comes first is harder. A masked
 * label is no case. each: 1 to CHEX_CASES_MOST. */
enum chex_status chex_cases_choose(const struct chex_predictions *table, int each,
                                   struct chex_cases **cases_out, struct chex_error *err);
void chex_cases_destroy(struct chex_cases *c); /* NULL allowed */

/* Makes the pictures. Collective; all ranks return the same status.
 * - set: opened with at least the rows that chex_eval_rows gives this rank.
 * - cases: on rank 0. The other ranks give NULL. */
enum chex_status chex_cases_draw(struct chex_engine *engine, const struct chex_set *set,
                                 struct chex_coll *coll, struct chex_cases *cases,
                                 struct chex_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_batches SHARDS SIZE BATCH STEPS SEED OUTPUT
 * Writes the batches that chex-train takes from these shards with its default order and
 * augmentation, so that a peer can train on the same pixels in the same order.
 *
 * Layout, in the machine's order of bytes: int32 steps, batch, size, classes; then for each step
 * f32 pixels (batch, size, size), grey / 255, and i8 labels (batch, classes), below 0 masked.
 */
#include <stdio.h>
#include <stdlib.h>

#include "input/pipeline.h"

static enum chex_status write_batches(struct chex_pipeline *p, const int32_t head[4], FILE *to,
                                      struct chex_error *err) {
    const size_t pixels = (size_t)head[1] * (size_t)head[2] * (size_t)head[2];
    const size_t labels = (size_t)head[1] * (size_t)head[3];
    bool good = fwrite(head, sizeof *head, 4, to) == 4;
    for (int step = 0; good && step < head[0]; step++) {
        struct chex_ready ready;
        CHEX_TRY(chex_pipeline_next(p, &ready, err));
        good = fwrite(ready.batch.pixels, sizeof(float), pixels, to) == pixels &&
               fwrite(ready.batch.labels, 1, labels, to) == labels;
        chex_pipeline_release(p, &ready);
    }
    return good ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "the output: cannot write");
}

static enum chex_status dump(const struct chex_set *set, char **arg, FILE *to,
                             struct chex_error *err) {
    enum { SLOTS = 2 };
    const int size = atoi(arg[2]), batch = atoi(arg[3]), steps = atoi(arg[4]);
    struct chex_pipeline_config config = {.set = set,
                                          .image_size = size,
                                          .batch = batch,
                                          .workers = 1,
                                          .slots = SLOTS,
                                          .training = true,
                                          .order = {.rows = set->rows,
                                                    .logical_ranks = 1,
                                                    .batch = (size_t)batch,
                                                    .shuffle_block = 1,
                                                    .seed = (uint64_t)strtoull(arg[5], NULL, 10)},
                                          .augment = chex_augment_defaults,
                                          .rank_to = 1};
    struct chex_pipeline *p = NULL;
    CHEX_TRY(chex_order_check(&config.order, err));
    CHEX_TRY(chex_pipeline_create(&config, &p, err));
    enum chex_status st = write_batches(p, (int32_t[]){steps, batch, size, set->classes}, to, err);
    chex_pipeline_destroy(p);
    return st;
}

int main(int argc, char **argv) {
    if (argc != 7 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1 || atoi(argv[4]) < 1) {
        fprintf(stderr, "usage: dump_batches SHARDS SIZE BATCH STEPS SEED OUTPUT\n");
        return CHEX_E_USAGE;
    }
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    enum chex_status st = chex_set_open(argv[1], CHEX_TRAIN, 0, SIZE_MAX, &set, &err);
    FILE *to = st == CHEX_OK ? fopen(argv[6], "wb") : NULL;
    if (st == CHEX_OK && !to)
        st = chex_error_set(&err, CHEX_E_RESOURCE, "%s: cannot write", argv[6]);
    if (st == CHEX_OK)
        st = dump(set, argv, to, &err);
    if (to && fclose(to) != 0 && st == CHEX_OK)
        st = chex_error_set(&err, CHEX_E_RESOURCE, "%s: cannot write", argv[6]);
    chex_set_close(set);
    if (st != CHEX_OK)
        fprintf(stderr, "dump_batches: %s\n", err.text);
    return (int)st;
}

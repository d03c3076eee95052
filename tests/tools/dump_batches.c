/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_batches SHARDS SIZE BATCH STEPS SEED OUTPUT
 * Writes the batches that chex-train takes from these shards with its default order and
 * augmentation, so that a peer can train on the same pixels in the same order.
 *
 * Layout, in the machine's order of bytes: int32 steps, batch, size, classes; then for each step
 * f32 pixels (batch, size, size), grey / 255, and i8 labels (batch, classes), below 0 masked.
 */
#include "input/pipeline.h"
#include "tool.h"

static void write_batches(struct chex_pipeline *p, const int32_t head[4], FILE *to) {
    const size_t pixels = (size_t)head[1] * (size_t)head[2] * (size_t)head[2];
    put(head, 4 * sizeof *head, to);
    for (int step = 0; step < head[0]; step++) {
        struct chex_error err = {0};
        struct chex_ready ready;
        must(chex_pipeline_next(p, &ready, &err), &err);
        put(ready.batch.pixels, pixels * sizeof(float), to);
        put(ready.batch.labels, (size_t)head[1] * (size_t)head[3], to);
        chex_pipeline_release(p, &ready);
    }
}

int main(int argc, char **argv) {
    enum { SLOTS = 2 };
    if (argc != 7 || atoi(argv[2]) < 1 || atoi(argv[3]) < 1 || atoi(argv[4]) < 1) {
        fprintf(stderr, "usage: dump_batches SHARDS SIZE BATCH STEPS SEED OUTPUT\n");
        return CHEX_E_USAGE;
    }
    const int size = atoi(argv[2]), batch = atoi(argv[3]), steps = atoi(argv[4]);
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    struct chex_pipeline *p = NULL;
    must(chex_set_open(argv[1], CHEX_TRAIN, 0, SIZE_MAX, &set, &err), &err);
    FILE *to = open_output(argv[6]);
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
                                                    .seed = (uint64_t)strtoull(argv[5], NULL, 10)},
                                          .augment = chex_augment_defaults,
                                          .rank_to = 1};
    must(chex_order_check(&config.order, &err), &err);
    must(chex_pipeline_create(&config, &p, &err), &err);
    write_batches(p, (int32_t[]){steps, batch, size, set->classes}, to);
    chex_pipeline_destroy(p);
    close_output(to);
    chex_set_close(set);
    return 0;
}

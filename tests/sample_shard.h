/* SPDX-License-Identifier: Apache-2.0
 *
 * A small sound shard, for the tests that damage one.
 */
#ifndef CHEX_TESTS_SAMPLE_SHARD_H
#define CHEX_TESTS_SAMPLE_SHARD_H

#include <string.h>

#include "shard/shard_write.h"

enum { SAMPLE_CLASSES = 3, SAMPLE_MOST_ROWS = 6, SAMPLE_MOST_SIZE = 16 };

static inline void sample_shard_row(const void *arg, size_t i, struct chex_shard_row *out) {
    static const char *const ids[SAMPLE_MOST_ROWS] = {"a.png", "b.png", "c.png",
                                                      "d.png", "e.png", "f.png"};
    static const int8_t labels[SAMPLE_CLASSES] = {1, 0, -1};
    (void)arg;
    *out = (struct chex_shard_row){
        .image_id = ids[i], .patient_id = "p", .labels = labels, .age_years = 40, .sex = 'F'};
}

/* Writes `rows` images of `size` x `size` pixels, each of one grey. */
static inline enum chex_status sample_shard_write(const char *path, int rows, int size,
                                                  struct chex_error *err) {
    static const char *const names[SAMPLE_CLASSES] = {"Mass", "Edema", "Hernia"};
    struct chex_shard_spec spec = {.rows = (size_t)rows,
                                   .size = size,
                                   .classes = SAMPLE_CLASSES,
                                   .class_names = names,
                                   .resize = "pillow-bilinear",
                                   .split = "train",
                                   .tool_version = "t",
                                   .row = sample_shard_row};
    struct chex_shard_writer *w = NULL;
    uint8_t pixels[SAMPLE_MOST_SIZE * SAMPLE_MOST_SIZE];
    CHEX_TRY(chex_shard_create(path, &spec, &w, err));
    for (size_t i = 0; i < (size_t)rows; i++) {
        memset(pixels, (int)(17 * i), sizeof pixels);
        CHEX_TRY(chex_shard_put(w, i, pixels, err));
    }
    return chex_shard_finish(w, "0123456789abcdef0123456789abcdef", err);
}

#endif

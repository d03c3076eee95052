/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic chest radiographs with planted findings: data to learn from where no real set may be
 * taken, for tests, demonstrations and measurements.
 *
 * Each image has lung fields, ribs, mediastinum, heart, diaphragm and noise, drawn a little
 * differently for each patient and each exposure, and one pattern of its own for each of the 14
 * findings at the place a radiologist would look for it. The picture is a pure function of (seed,
 * index, size): no thread count, no count of images and no machine changes it.
 * A network that reaches a mean AUROC near 1 on these has learnt to see, not to diagnose.
 */
#ifndef CHEX_DATA_PHANTOM_H
#define CHEX_DATA_PHANTOM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/classes.h"
#include "data/shard.h"

enum { CHEX_PHANTOM_MIN_SIZE_PX = 32, CHEX_PHANTOM_MAX_SIZE_PX = 4096 };

struct chex_phantom_case {
    int8_t labels[CHEX_CLASS_COUNT];
    uint32_t patient;    /* from 1; the images of a patient follow each other */
    uint32_t follow_up;  /* from 0 within the patient */
    enum chex_view view; /* PA or AP */
    int age_years;
    char sex;
};

/* The facts of image `index`. A patient has 1 to 4 images. */
void chex_phantom_case(uint64_t seed, uint64_t index, struct chex_phantom_case *out);

/* The pixels of image `index`, (size, size). CHEX_E_USAGE for a size out of range. */
enum chex_status chex_phantom_draw(uint64_t seed, uint64_t index, int size, uint8_t *pixels,
                                   struct chex_error *err);

struct chex_phantom_options {
    const char *dir; /* made if it is missing; must not hold images/ or labels.csv */
    uint64_t count;  /* 1 .. 10 million */
    int size;
    uint64_t seed;
    int threads;
    /* Called from any thread with the images done so far; may be NULL. */
    void (*progress)(void *arg, uint64_t done);
    void *progress_arg;
};

/* Writes dir/images/NNNNNNNN_NNN.png and, last, dir/labels.csv in the NIH's columns. CHEX_E_USAGE
 * for options out of range or a set that is there already. After a failure no image stays. */
enum chex_status chex_phantom_write(const struct chex_phantom_options *options,
                                    struct chex_error *err);

#endif

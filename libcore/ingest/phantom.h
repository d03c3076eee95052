/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic chest radiographs with drawn findings, for tests, demonstrations and measurements where
 * no real data may be used.
 *
 * - Each image has lung fields, ribs, mediastinum, heart, diaphragm and noise, with small random
 *   differences between patients and between exposures.
 * - Each of the 14 findings has its own pattern, at the place where a radiologist would look for
 *   it.
 * - An image is a pure function of (seed, index, size). It does not depend on the number of threads
 *   or images, or on the machine.
 * - A mean AUROC near 1 on these images shows that a network can see patterns, not that it can
 *   diagnose.
 */
#ifndef CHEX_INGEST_PHANTOM_H
#define CHEX_INGEST_PHANTOM_H

#include <stdint.h>

#include "base/error.h"
#include "label/classes.h"
#include "shard/shard.h"

enum { CHEX_PHANTOM_MIN_SIZE_PX = 32, CHEX_PHANTOM_MAX_SIZE_PX = 4096 };

struct chex_phantom_case {
    int8_t labels[CHEX_CLASS_COUNT];
    uint32_t patient;    /* from 1; the images of a patient have consecutive indices */
    uint32_t follow_up;  /* from 0 within the patient */
    enum chex_view view; /* PA or AP */
    int age_years;
    char sex;
};

/* Labels and metadata of image `index`. A patient has 1 to 4 images. */
void chex_phantom_case(uint64_t seed, uint64_t index, struct chex_phantom_case *out);

/* Draws image `index`. pixels: (size, size). CHEX_E_USAGE: size out of range. */
enum chex_status chex_phantom_draw(uint64_t seed, uint64_t index, int size, uint8_t *pixels,
                                   struct chex_error *err);

struct chex_phantom_options {
    const char *dir; /* made if missing; must not contain images/ or labels.csv */
    uint64_t count;  /* 1 .. 10 million */
    int64_t size;
    uint64_t seed;
    int64_t workers;
};

/* Writes dir/images/NNNNNNNN_NNN.png and, last, dir/labels.csv with the columns of the NIH's label
 * file. CHEX_E_USAGE: an option is out of range, or the set already exists. On failure the images
 * are removed. */
enum chex_status chex_phantom_write(const struct chex_phantom_options *options,
                                    struct chex_error *err);

#endif

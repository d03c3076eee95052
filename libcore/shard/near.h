/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds images that are in two splits, or in two sets: equal pixels and nearly equal ones.
 *
 * Problem: two releases of a data set, or two collections, may hold one radiograph under two names,
 * in other contrast or compressed again. Checksums and names do not show this, and a network is
 * then validated on images that it was trained on.
 *
 * Idea: the perceptual hash of pHash (C. Zauner, Implementation and Benchmarking of Perceptual
 * Image Hash Functions, 2010, section 3.2.1). The image is averaged to 32 x 32; of its discrete
 * cosine transform the 64 coefficients of frequencies 1 to 8 in both directions are kept; a bit is
 * 1 if its coefficient is above their median. Similar images differ in few bits.
 *
 * Search: of two hashes with at most d different bits, one of four parts of 16 bits differs in at
 * most d / 4 bits (multi-index hashing: Norouzi, Punjani and Fleet, CVPR 2012). So each image is
 * compared only with those in a few buckets of each part. No pair is missed.
 *
 * Measured on the 1,000 radiographs of datasets/nih-sample (64 px, 491,169 pairs of two patients):
 * no such pair differs in 4 bits or fewer, one in 6, 26 in up to 8; the median is 28. Copies in
 * JPEG of quality 50, half or twice the size, 20 % brighter, 20 % less contrast, or gamma 0.8 are
 * within 4 bits for 97 % to 100 %, within 6 bits for all. A rotation by 1 degree is for 70 %, a
 * shift by 1 of 64 pixels for 35 %. Hence CHEX_NEAR_USUAL_BITS.
 */
#ifndef CHEX_SHARD_NEAR_H
#define CHEX_SHARD_NEAR_H

#include "shard/shard.h"

enum {
    CHEX_NEAR_USUAL_BITS = 4,
    CHEX_NEAR_MAX_BITS = 11,
    CHEX_NEAR_MAX_PAIRS = 100000 /* more are not listed */
};

/* The hash of an image of (size, size) pixels, at least 1. */
uint64_t chex_near_hash(const uint8_t *pixels, int size);

/* An image to compare. Images of one group are not compared with each other. */
struct chex_near_image {
    uint64_t hash, checksum; /* checksum: of the pixels */
    uint32_t group;
    uint32_t row; /* for the caller */
};

struct chex_near_pair {
    size_t a, b;  /* numbers of the images, a < b */
    int distance; /* different bits */
    bool same;    /* equal pixels: equal checksum and size */
};

struct chex_near_pairs {
    struct chex_near_pair *pairs; /* (count) by a, then b */
    size_t count, capacity;
    bool more; /* CHEX_NEAR_MAX_PAIRS was reached */
};

/* Finds the pairs of images in different groups with at most `bits` different bits, 0 to
 * CHEX_NEAR_MAX_BITS. `same` is set where checksums are equal. The caller frees pairs_out->pairs.
 * The only failure is CHEX_E_RESOURCE. */
enum chex_status chex_near_search(const struct chex_near_image *images, size_t count, int bits,
                                  struct chex_near_pairs *pairs_out, struct chex_error *err);

/* One split of one set. */
struct chex_near_group {
    const char *dir; /* borrowed */
    struct chex_set *set;
    size_t first; /* its first image */
};

/* Images of several sets. */
struct chex_near_audit {
    struct chex_near_group *groups; /* (group_count) */
    size_t group_count;
    struct chex_near_image *images; /* (count) in the order of groups and rows */
    size_t count;
    struct chex_near_pairs found;
    double read_s, search_s;
};

/* Reads the images of all splits of the sets, with their checksums compared, and finds the pairs in
 * different splits or sets. Free *out with chex_near_release(), on failure too.
 * - CHEX_E_DATA: a folder is no set, or a set is damaged.
 * - CHEX_E_USAGE: a set is given twice. */
enum chex_status chex_near_audit(const char *const *dirs, size_t dir_count, int bits, int threads,
                                 bool show_progress, struct chex_near_audit *out,
                                 struct chex_error *err);
void chex_near_release(struct chex_near_audit *audit);

#endif

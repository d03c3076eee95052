/* SPDX-License-Identifier: Apache-2.0
 *
 * A fingerprint of the images in each split of a set, as a short text.
 *
 * Problem: two sets of the same images may split them differently (another --seed, other lists). A
 * network trained on "train" of one set must not be evaluated on images that it was trained on, and
 * the name of the split does not show this. Checkpoints therefore store the fingerprint.
 *
 * Idea: the sum of the hashes of all image ids, modulo 2^64. It does not depend on the order of
 * rows, the number of shards, the labels, the image size or the folder.
 */
#ifndef CHEX_SHARD_MEMBERS_H
#define CHEX_SHARD_MEMBERS_H

#include "shard/shard.h"

enum { CHEX_MEMBERS_BYTES = 128 };

/* Returns the sum, modulo 2^64, of the XXH3-64 of the shard's image ids. */
uint64_t chex_members_sum(const struct chex_shard *s);

/* The sums of a set by its manifest: "train 0123456789abcdef, test ...". "" if it has none. */
struct chex_manifest;
void chex_members_text(const struct chex_manifest *m, char text_out[CHEX_MEMBERS_BYTES]);

/* A checkpoint of a run on several sets joins their texts with "; ". Copies that of set `at`, from
 * 0 on; "" if there is none. text may be NULL. */
void chex_members_of_set(const char *text, int at, char text_out[CHEX_MEMBERS_BYTES]);

/* Reads the sums of the set in `dir` from its manifest: "train 0123456789abcdef, test ...".
 * Writes "" if the manifest has no sums or cannot be read. The caller that opens the rows reports
 * an unreadable manifest. */
void chex_members_read(const char *dir, char text_out[CHEX_MEMBERS_BYTES]);

enum chex_members_verdict { CHEX_MEMBERS_SAME, CHEX_MEMBERS_OTHER, CHEX_MEMBERS_UNKNOWN };

/* Compares the images of one split in two texts of chex_members_read().
 * - OTHER: the sums differ, or only one text has the split.
 * - UNKNOWN: neither text has the split, or a text is NULL or empty. */
enum chex_members_verdict chex_members_compare(const char *a, const char *b, enum chex_split split);

#endif

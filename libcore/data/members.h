/* SPDX-License-Identifier: Apache-2.0
 *
 * Which images each split of a set holds, as a short text that travels with what was trained on
 * it. Two sets of the same images may split them otherwise (another --seed, other lists), and then
 * the name of a split does not tell what it holds. Neither the order of rows nor the number of
 * shards matters, nor do labels, the side of the images and where they lie.
 */
#ifndef CHEX_DATA_MEMBERS_H
#define CHEX_DATA_MEMBERS_H

#include "data/shard.h"

enum { CHEX_MEMBERS_BYTES = 128 };

/* Of a shard: the sum, modulo 2^64, of the XXH3-64 of its image ids. */
uint64_t chex_members_sum(const struct chex_shard *s);

/* "train 0123456789abcdef, test ..." of the set in `dir`, by its manifest: the sums of the splits
 * that it has. "": it says none, or cannot be read, of which who needs the rows will tell. */
void chex_members_read(const char *dir, char text_out[CHEX_MEMBERS_BYTES]);

enum chex_members_verdict { CHEX_MEMBERS_SAME, CHEX_MEMBERS_OTHER, CHEX_MEMBERS_UNKNOWN };

/* Whether the split holds the same images in both. OTHER where only one of them has it; UNKNOWN
 * where neither has, and where a text is NULL or empty. */
enum chex_members_verdict chex_members_compare(const char *a, const char *b, enum chex_split split);

#endif

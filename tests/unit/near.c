/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for near duplicates finds the pairs that comparing all with all finds; the hash is
 * that of its definition.
 */
#include "shard/near.h"
#include "base/rng.h"
#include "tap.h"

static struct chex_error err;

enum { COUNT = 1500, SIDE = 32 };

static uint64_t random64(uint64_t i) {
    struct chex_rng4 v = chex_rng(7, CHEX_RNG_SHARD, i, 0);
    return (uint64_t)v.v[0] << 32 | v.v[1];
}

/* Random hashes, and copies of earlier ones with up to 12 other bits. */
static void fill(struct chex_near_image *images) {
    for (size_t i = 0; i < COUNT; i++) {
        images[i].hash = random64(i);
        images[i].checksum = i;
        if (i % 3 == 2) {
            const size_t from = random64(i + COUNT) % i, bits = i / 3 % 13;
            images[i].hash = images[from].hash;
            images[i].checksum = bits ? i : images[from].checksum;
            for (size_t b = 0; b < bits; b++)
                images[i].hash ^= UINT64_C(1) << (random64(i * 16 + b) & 63);
        }
        images[i].group = (uint32_t)(i % 4 == 0);
    }
}

static bool same_as_all(const struct chex_near_image *images, int bits) {
    struct chex_near_pairs found;
    size_t at = 0;
    bool same = chex_near_search(images, COUNT, bits, &found, &err) == CHEX_OK;
    for (size_t a = 0; same && a < COUNT; a++)
        for (size_t b = a + 1; same && b < COUNT; b++) {
            const int distance = __builtin_popcountll(images[a].hash ^ images[b].hash);
            if (distance > bits || images[a].group == images[b].group)
                continue;
            const struct chex_near_pair *p = &found.pairs[at++];
            same = at <= found.count && p->a == a && p->b == b && p->distance == distance &&
                   p->same == (images[a].checksum == images[b].checksum);
        }
    same = same && at == found.count && at > 0 && !found.more;
    free(found.pairs);
    return same;
}

/* The definition: coefficients 1 to 8 of the transform of 32 x 32 averages, against the median. */
static uint64_t defined_hash(const uint8_t *pixels, int times) {
    double value[64], rank;
    uint64_t hash = 0;
    for (int k = 0; k < 64; k++) {
        value[k] = 0;
        for (int y = 0; y < SIDE * times; y++)
            for (int x = 0; x < SIDE * times; x++)
                value[k] += pixels[y * SIDE * times + x] *
                            cos(acos(-1) * (2 * (y / times) + 1) * (k / 8 + 1) / 64) *
                            cos(acos(-1) * (2 * (x / times) + 1) * (k % 8 + 1) / 64);
    }
    for (int k = 0; k < 64; k++) {
        rank = 0;
        for (int i = 0; i < 64; i++)
            rank += value[i] < value[k];
        hash = hash << 1 | (rank >= 32);
    }
    return hash;
}

int main(void) {
    static struct chex_near_image images[COUNT];
    static uint8_t pixels[96 * 96], small[16 * 16], large[48 * 48];
    fill(images);
    for (int bits = 0; bits <= CHEX_NEAR_MAX_BITS; bits++)
        OK(same_as_all(images, bits),
           "up to %d bits: the pairs are those of comparing all with all", bits);

    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)random64(i);
    OK(chex_near_hash(pixels, 32) == defined_hash(pixels, 1),
       "32 px: the hash is the definition's");
    OK(chex_near_hash(pixels, 96) == defined_hash(pixels, 3),
       "96 px: the hash is the definition's");
    for (int y = 0; y < 48; y++)
        for (int x = 0; x < 48; x++) {
            small[y / 3 * 16 + x / 3] = pixels[y / 3 * 16 + x / 3];
            large[y * 48 + x] = pixels[y / 3 * 16 + x / 3];
        }
    OK(__builtin_popcountll(chex_near_hash(small, 16) ^ chex_near_hash(large, 48)) <= 2,
       "the size of an image does not matter, also where pixels are shared by two cells");

    static struct chex_near_image equal[1000];
    struct chex_near_pairs found;
    for (uint32_t i = 0; i < 1000; i++)
        equal[i].group = i % 2;
    OK(chex_near_search(equal, 1000, 4, &found, &err) == CHEX_OK && found.more &&
           found.count == CHEX_NEAR_MAX_PAIRS,
       "a set of equal images ends at the limit of pairs, which is reported");
    free(found.pairs);
    OK(chex_near_search(equal, 0, 4, &found, &err) == CHEX_OK && found.count == 0,
       "no images, no pairs");
    return tap_done();
}

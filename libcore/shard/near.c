/* SPDX-License-Identifier: Apache-2.0
 *
 * Perceptual hashes of stored images, and the search for near duplicates (near.h).
 */
#include "shard/near.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/pool.h"
#include "base/progress.h"
#include "shard/manifest.h"

enum { SIDE = 32, FREQUENCIES = 8, BITS = 64, PARTS = 4, PART_BITS = 16, BUCKETS = 1 << PART_BITS };

/* ---- hash ---- */

/* Averages `count` pixels to SIDE cells. A pixel that two cells share counts in each by its part.
 */
static void average(const uint8_t *in, int count, double out[SIDE]) {
    const double cell = (double)count / SIDE;
    for (int i = 0; i < SIDE; i++) {
        const double from = i * cell, to = from + cell;
        double sum = 0;
        for (int j = (int)from; j < count && j < to; j++)
            sum += in[j] * (fmin(to, j + 1) - fmax(from, j));
        out[i] = sum / cell;
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Averages to SIDE x SIDE: each row of the image, then the rows of a cell. */
static void shrink(const uint8_t *pixels, int size, double out[SIDE * SIDE]) {
    const double cell = (double)size / SIDE;
    double row[SIDE];
    memset(out, 0, SIDE * SIDE * sizeof *out);
    for (int y = 0; y < size; y++) {
        average(pixels + (size_t)y * (size_t)size, size, row);
        for (int i = (int)(y / cell); i < SIDE && i * cell < y + 1; i++) {
            const double share = fmin((i + 1) * cell, y + 1) - fmax(i * cell, y);
            for (int x = 0; x < SIDE && share > 0; x++)
                out[i * SIDE + x] += row[x] * share / cell;
        }
    }
}

uint64_t chex_near_hash(const uint8_t *pixels, int size) {
    static const double pi = 3.14159265358979323846;
    double small[SIDE * SIDE], wave[FREQUENCIES][SIDE], half[FREQUENCIES][SIDE];
    double value[BITS], sorted[BITS];
    uint64_t hash = 0;
    shrink(pixels, size, small);
    for (int f = 0; f < FREQUENCIES; f++)
        for (int i = 0; i < SIDE; i++)
            wave[f][i] = cos(pi * (2 * i + 1) * (f + 1) / (2 * SIDE));
    for (int f = 0; f < FREQUENCIES; f++)
        for (int x = 0; x < SIDE; x++) {
            half[f][x] = 0;
            for (int y = 0; y < SIDE; y++)
                half[f][x] += wave[f][y] * small[y * SIDE + x];
        }
    for (int k = 0; k < BITS; k++) {
        value[k] = 0;
        for (int x = 0; x < SIDE; x++)
            value[k] += half[k / FREQUENCIES][x] * wave[k % FREQUENCIES][x];
    }
    memcpy(sorted, value, sizeof sorted);
    qsort(sorted, BITS, sizeof *sorted, by_value);
    const double median = (sorted[BITS / 2 - 1] + sorted[BITS / 2]) / 2;
    for (int k = 0; k < BITS; k++)
        hash = hash << 1 | (value[k] > median);
    return hash;
}

/* ---- search ---- */

static unsigned part_of(uint64_t hash, int part) {
    return (unsigned)(hash >> (part * PART_BITS)) & (BUCKETS - 1);
}

/* The images by the value of one part of their hashes. */
struct buckets {
    size_t *start; /* (BUCKETS + 1) */
    size_t *image; /* (count) ascending in each bucket */
};

struct search {
    const struct chex_near_image *images;
    size_t count;
    int bits, radius; /* radius: of one part */
    struct buckets part[PARTS];
    unsigned *masks; /* (mask_count) parts with at most `radius` bits */
    size_t mask_count;
    struct chex_near_pairs *found;
};

static enum chex_status fill(struct search *s, int part, struct chex_error *err) {
    struct buckets *b = &s->part[part];
    b->start = chex_alloc_zeroed(BUCKETS + 2, sizeof *b->start);
    b->image = chex_alloc_zeroed(s->count + 1, sizeof *b->image);
    if (!b->start || !b->image)
        return chex_error_memory(err, "the hashes of %zu images", s->count);
    for (size_t i = 0; i < s->count; i++)
        b->start[part_of(s->images[i].hash, part) + 2]++;
    for (size_t v = 2; v < BUCKETS + 2; v++)
        b->start[v] += b->start[v - 1];
    for (size_t i = 0; i < s->count; i++)
        b->image[b->start[part_of(s->images[i].hash, part) + 1]++] = i;
    return CHEX_OK;
}

static enum chex_status add_pair(struct chex_near_pairs *p, struct chex_near_pair pair,
                                 struct chex_error *err) {
    if (p->count == CHEX_NEAR_MAX_PAIRS) {
        p->more = true;
        return CHEX_OK;
    }
    if (!chex_alloc_grow(&p->pairs, p->count, &p->capacity, sizeof *p->pairs))
        return chex_error_memory(err, "the list of near duplicates");
    p->pairs[p->count++] = pair;
    return CHEX_OK;
}

/* True if a part before `part` finds the pair too. */
static bool found_before(const struct search *s, uint64_t difference, int part) {
    for (int k = 0; k < part; k++)
        if (__builtin_popcount(part_of(difference, k)) <= s->radius)
            return true;
    return false;
}

/* Compares image a with the later images of one bucket. */
static enum chex_status compare_bucket(struct search *s, size_t a, int part, unsigned value,
                                       struct chex_error *err) {
    const struct buckets *b = &s->part[part];
    const struct chex_near_image *one = &s->images[a];
    for (size_t k = b->start[value + 1]; k-- > b->start[value] && b->image[k] > a;) {
        const struct chex_near_image *other = &s->images[b->image[k]];
        const uint64_t difference = one->hash ^ other->hash;
        const int distance = __builtin_popcountll(difference);
        if (distance > s->bits || other->group == one->group || found_before(s, difference, part))
            continue;
        CHEX_TRY(add_pair(
            s->found,
            (struct chex_near_pair){a, b->image[k], distance, one->checksum == other->checksum},
            err));
    }
    return CHEX_OK;
}

static int by_images(const void *a, const void *b) {
    const struct chex_near_pair *x = a, *y = b;
    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return (x->b > y->b) - (x->b < y->b);
}

static enum chex_status search(struct search *s, struct chex_error *err) {
    if (!(s->masks = chex_alloc_zeroed(BUCKETS, sizeof *s->masks)))
        return chex_error_memory(err, "the hashes of %zu images", s->count);
    for (unsigned v = 0; v < BUCKETS; v++)
        if (__builtin_popcount(v) <= s->radius)
            s->masks[s->mask_count++] = v;
    for (int part = 0; part < PARTS; part++)
        CHEX_TRY(fill(s, part, err));
    /* fill() left the end of bucket v in start[v + 1], and its start in start[v]. */
    for (size_t a = 0; a < s->count && !s->found->more; a++)
        for (int part = 0; part < PARTS; part++)
            for (size_t m = 0; m < s->mask_count; m++)
                CHEX_TRY(compare_bucket(s, a, part, part_of(s->images[a].hash, part) ^ s->masks[m],
                                        err));
    if (s->found->count)
        qsort(s->found->pairs, s->found->count, sizeof *s->found->pairs, by_images);
    return CHEX_OK;
}

enum chex_status chex_near_search(const struct chex_near_image *images, size_t count, int bits,
                                  struct chex_near_pairs *pairs_out, struct chex_error *err) {
    *pairs_out = (struct chex_near_pairs){0};
    struct search s = {
        .images = images, .count = count, .bits = bits, .radius = bits / PARTS, .found = pairs_out};
    const enum chex_status st = search(&s, err);
    for (int part = 0; part < PARTS; part++)
        CHEX_FREE(s.part[part].start, s.part[part].image);
    free(s.masks);
    return st;
}

/* ---- sets ---- */

/* A piece of neighbouring rows that one thread hashes. */
enum { PIECE_ROWS = 64 };

struct hashing {
    struct chex_near_audit *audit;
    struct chex_progress *progress;
    atomic_size_t done;
    size_t most; /* the largest side of the sets */
};

static enum chex_status hash_row(struct chex_near_audit *a, size_t image, uint8_t *pixels,
                                 struct chex_error *err) {
    struct chex_near_image *to = &a->images[image];
    const struct chex_set *set = a->groups[to->group].set;
    size_t row;
    const struct chex_shard *shard = chex_set_locate(set, to->row, &row);
    CHEX_TRY(chex_shard_read(shard, row, 1, true, pixels, err));
    to->checksum = chex_shard_checksum(shard, row);
    to->hash = chex_near_hash(pixels, set->size);
    return CHEX_OK;
}

static enum chex_status hash_piece(void *arg, size_t piece, int worker, struct chex_error *err) {
    struct hashing *h = arg;
    const size_t from = piece * PIECE_ROWS, left = h->audit->count - from;
    const size_t to = left < PIECE_ROWS ? h->audit->count : from + PIECE_ROWS;
    CHEX_AUTO_FREE uint8_t *pixels = malloc(h->most * h->most);
    enum chex_status st = pixels ? CHEX_OK : chex_error_memory(err, "the pixels of an image");
    (void)worker;
    for (size_t i = from; st == CHEX_OK && i < to; i++)
        st = hash_row(h->audit, i, pixels, err);
    chex_progress_set(h->progress, atomic_fetch_add(&h->done, to - from) + to - from, NULL);
    return st;
}

static enum chex_status hash_images(struct chex_near_audit *a, int threads, bool show_progress,
                                    struct chex_error *err) {
    struct hashing h = {.audit = a};
    for (size_t g = 0; g < a->group_count; g++)
        h.most = (size_t)a->groups[g].set->size > h.most ? (size_t)a->groups[g].set->size : h.most;
    h.progress = chex_progress_create("comparing images", "img", a->count, show_progress);
    const enum chex_status st =
        chex_pool_try(threads, (a->count + PIECE_ROWS - 1) / PIECE_ROWS, hash_piece, &h, err);
    chex_progress_destroy(h.progress, st == CHEX_OK);
    return st;
}

static enum chex_status open_set(struct chex_near_audit *a, const char *dir,
                                 struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        struct chex_near_group *g = &a->groups[a->group_count];
        if (!m->splits[s].shard_count)
            continue;
        *g = (struct chex_near_group){.dir = dir, .first = a->count};
        CHEX_TRY(chex_set_open(dir, (enum chex_split)s, 0, SIZE_MAX, &g->set, err));
        a->count += g->set->rows;
        a->group_count++;
    }
    return CHEX_OK;
}

static enum chex_status open_sets(struct chex_near_audit *a, const char *const *dirs, size_t count,
                                  struct chex_error *err) {
    a->groups = chex_alloc_zeroed(count * CHEX_SPLIT_COUNT, sizeof *a->groups);
    if (!a->groups)
        return chex_error_memory(err, "the list of images");
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++)
            if (chex_fs_same(dirs[i], dirs[k]))
                return chex_error_set(err, CHEX_E_USAGE, "%s and %s are the same set", dirs[k],
                                      dirs[i]);
        CHEX_TRY(open_set(a, dirs[i], err));
    }
    a->images = chex_alloc_zeroed(a->count + 1, sizeof *a->images);
    if (!a->images)
        return chex_error_memory(err, "the list of images");
    for (size_t g = 0; g < a->group_count; g++)
        for (size_t row = 0; row < a->groups[g].set->rows; row++) {
            a->images[a->groups[g].first + row].group = (uint32_t)g;
            a->images[a->groups[g].first + row].row = (uint32_t)row;
        }
    return CHEX_OK;
}

/* Equal checksums of images of different sizes mean nothing. */
static void check_same(struct chex_near_audit *a) {
    for (size_t i = 0; i < a->found.count; i++) {
        struct chex_near_pair *p = &a->found.pairs[i];
        p->same = p->same && a->groups[a->images[p->a].group].set->size ==
                                 a->groups[a->images[p->b].group].set->size;
    }
}

enum chex_status chex_near_audit(const char *const *dirs, size_t dir_count, int bits, int threads,
                                 bool show_progress, struct chex_near_audit *out,
                                 struct chex_error *err) {
    const double start = chex_clock_s();
    *out = (struct chex_near_audit){0};
    CHEX_TRY(open_sets(out, dirs, dir_count, err));
    CHEX_TRY(hash_images(out, threads, show_progress, err));
    out->read_s = chex_clock_s() - start;
    CHEX_TRY(chex_near_search(out->images, out->count, bits, &out->found, err));
    out->search_s = chex_clock_s() - start - out->read_s;
    check_same(out);
    return CHEX_OK;
}

void chex_near_release(struct chex_near_audit *a) {
    for (size_t g = 0; g < a->group_count; g++)
        chex_set_close(a->groups[g].set);
    CHEX_FREE(a->groups, a->images, a->found.pairs);
    *a = (struct chex_near_audit){0};
}

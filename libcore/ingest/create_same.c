/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that all ranks read the same input. The same path may hold different files on another
 * node, for example a stale copy on a local disk or an unfinished mirror. The ranks compare digests
 * of their labels, splits, archives and files before the first image is converted. Images are not
 * read for this: a file is represented by its path, size and modification time.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"
#include "ingest/create_private.h"

struct input_digest {
    uint64_t digest, count, bytes;
};

/* What the ranks exchange as raw bytes. */
struct input_of_rank {
    struct input_digest input;
    char host[CHEX_HOST_BYTES];
};

static struct input_digest digest_rows(const struct chex_create *c) {
    const struct chex_label_table *t = c->table;
    struct input_digest s = {.count = t->count};
    for (size_t i = 0; i < t->class_count; i++)
        s.digest = chex_hash64_mix_text(s.digest, t->classes[i]);
    for (size_t i = 0; i < t->count; i++) {
        const struct chex_label_row *r = &t->rows[i];
        const int64_t facts[] = {r->view, r->age_years, r->sex, c->split[i]};
        s.digest = chex_hash64_mix_text(s.digest, r->image_id);
        s.digest = chex_hash64_mix_text(s.digest, r->path);
        s.digest = chex_hash64_mix_text(s.digest, r->patient_id);
        s.digest = chex_hash64_mix_text(s.digest, r->study_id ? r->study_id : "");
        s.digest = chex_hash64_mix(s.digest, r->labels, t->class_count);
        s.digest = chex_hash64_mix(s.digest, facts, sizeof facts);
        if (c->origin)
            s.digest = chex_hash64_mix(s.digest, &c->origin->content[i], sizeof(uint64_t));
    }
    return s;
}

/* `path` identifies the file; it must be the same on all ranks. */
static void add_file(struct input_digest *s, const struct chex_folder_file *f, const char *path) {
    const int64_t facts[] = {(int64_t)f->bytes, f->modified_ns};
    s->digest = chex_hash64_mix_text(s->digest, path);
    s->digest = chex_hash64_mix(s->digest, facts, sizeof facts);
    s->bytes += f->bytes;
    s->count++;
}

static struct input_digest digest_archives(const struct chex_create *c) {
    struct input_digest s = {0};
    for (size_t i = 0; i < c->packed_count; i++)
        add_file(&s, c->packed[i], c->packed[i]->path);
    for (size_t i = 0; i < c->wanted_count; i++)
        s.digest = chex_hash64_mix_text(s.digest, c->wanted[i]);
    return s;
}

/* Image files of all rows. A spooled image has its own size and the time of its archive. */
static struct input_digest digest_images(const struct chex_create *c) {
    struct input_digest s = {0};
    for (size_t r = 0; c->files && r < c->table->count; r++) {
        const uint64_t row = r;
        if (!c->files[r])
            continue;
        s.digest = chex_hash64_mix(s.digest, &row, sizeof row);
        add_file(&s, c->files[r], c->files[r]->path + c->files[r]->below);
    }
    return s;
}

static enum chex_status differ(const char *what, int rank, const struct input_of_rank *all,
                               struct chex_error *err) {
    char bytes[32], expected[32];
    const struct input_digest *theirs = &all[rank].input, *first = &all[0].input;
    return chex_error_data(err,
                           "rank %d on %s: %.160s differ from those of rank 0 on %s (%" PRIu64
                           ", %s, digest %016" PRIx64 "; expected %" PRIu64 ", %s, %016" PRIx64
                           "): give a path that holds the same files on all nodes (copies must "
                           "keep their times, as by cp -p)",
                           rank, all[rank].host, what, all[0].host, theirs->count,
                           chex_format_bytes(bytes, sizeof bytes, theirs->bytes), theirs->digest,
                           first->count, chex_format_bytes(expected, sizeof expected, first->bytes),
                           first->digest);
}

/* Collective. Every rank compares all digests, so all ranks get the same result. */
static enum chex_status compare(struct chex_create *c, const char *key, const char *what,
                                struct input_digest input, struct chex_error *err) {
    struct input_of_rank mine = {.input = input};
    memcpy(mine.host, c->group->host, sizeof mine.host);
    CHEX_TRY(chex_group_exchange(c->group, key, &mine, sizeof mine, err));
    const struct input_of_rank *all = c->group->all;
    for (int r = 1; r < c->group->size; r++)
        if (memcmp(&all[r].input, &all[0].input, sizeof all[0].input) != 0)
            return differ(what, r, all, err);
    return CHEX_OK;
}

enum chex_status chex_create_compare_rows(struct chex_create *c, struct chex_error *err) {
    char what[CHEX_ERROR_TEXT_BYTES];
    if (c->group->size == 1)
        return CHEX_OK;
    snprintf(what, sizeof what, "the rows of %s", c->o->labels);
    CHEX_TRY(compare(c, "shard-same-rows", what, digest_rows(c), err));
    snprintf(what, sizeof what, "the archives below %s", c->o->images ? c->o->images : "");
    return c->origin ? CHEX_OK : compare(c, "shard-same-archives", what, digest_archives(c), err);
}

enum chex_status chex_create_compare_images(struct chex_create *c, struct chex_error *err) {
    char what[CHEX_ERROR_TEXT_BYTES];
    if (c->group->size == 1)
        return CHEX_OK;
    snprintf(what, sizeof what, "the images below %s (names, sizes, times)", c->o->images);
    return compare(c, "shard-same-images", what, digest_images(c), err);
}

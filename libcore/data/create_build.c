/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/progress.h"
#include "data/create_private.h"
#include "data/resize.h"
#include "data/shard_write.h"

/* How many files ahead a worker announces to the kernel: cold reads, above all over a network, then
 * overlap with decoding. */
enum { AHEAD_PER_WORKER = 8, AHEAD_MAX = 256 };

/* An image without a pixel above this holds nothing that a network could learn. Values of 12 or 14
 * bits in a 16-bit PNG, of which the upper 8 are taken, end at 15 or 63. */
enum { DARK_MOST = 63 };

struct dark {
    size_t count, row; /* row: the first one in the label table */
};

/* chex_shard_spec's row callback looks here. */
struct rows {
    const struct chex_create *c;
    const struct chex_plan_shard *shard;
};

struct job { /* one shard */
    const struct chex_plan_shard *shard;
    struct rows rows;
    char *path;
    pthread_mutex_t lock; /* over writer (its creation), sum and dark */
    struct chex_shard_writer *writer;
    uint64_t sum[2]; /* of the source files' hashes */
    struct dark dark;
    atomic_size_t left;
    atomic_bool has_bad; /* it is not finished, and images are only looked at */
};

struct build {
    struct chex_create *c;
    struct chex_create_worker *workers;
    struct job *jobs;
    size_t *first; /* first[j]: number of job j's first item; first[job_count]: all items */
    size_t job_count, ahead;
    struct chex_progress *progress;
    atomic_size_t done;
    atomic_bool stop;
    atomic_bool fails;    /* and nothing of it is kept: the rest is only looked at */
    pthread_mutex_t lock; /* over the rest */
    struct chex_bad_row *bad;
    size_t bad_count, bad_capacity;
    struct dark dark; /* of finished shards */
    enum chex_status status;
    struct chex_error err;
};

static uint64_t mix_text(uint64_t h, const char *text) {
    return chex_hash64_mix(h, text, strlen(text) + 1);
}

static const char *resize_name(const struct chex_create *c) {
    return c->origin ? c->origin->manifest->resize : CHEX_RESIZE_NAME;
}

static uint64_t shard_key(const struct chex_create *c, const struct chex_plan_shard *s) {
    const struct chex_label_table *t = c->table;
    uint64_t numbers[] = {CHEX_SHARD_VERSION, (uint64_t)c->o->size, s->split, s->index, s->count};
    uint64_t h = chex_hash64_mix(0, numbers, sizeof numbers);
    h = mix_text(h, c->o->tool_version);
    h = mix_text(h, resize_name(c));
    for (size_t i = 0; i < t->class_count; i++)
        h = mix_text(h, t->classes[i]);
    for (size_t i = 0; i < s->row_count; i++) {
        const struct chex_label_row *r = &t->rows[s->rows[i]];
        int64_t facts[] = {0, 0, r->view, r->age_years, r->sex};
        if (c->origin) {
            facts[0] = (int64_t)c->origin->content[s->rows[i]];
        } else {
            facts[0] = (int64_t)c->files[s->rows[i]]->bytes;
            facts[1] = c->files[s->rows[i]]->modified_ns;
        }
        h = mix_text(h, r->image_id);
        h = mix_text(h, r->patient_id);
        h = chex_hash64_mix(h, r->labels, t->class_count);
        h = chex_hash64_mix(h, facts, sizeof facts);
    }
    return h;
}

char *chex_create_shard_path(const struct chex_create *c, const struct chex_plan_shard *shard) {
    char *name = chex_plan_shard_name(shard);
    char *path = name ? chex_fs_format("%s/%s.%016llx.h5", c->partial, name,
                                       (unsigned long long)shard_key(c, shard))
                      : NULL;
    free(name);
    return path;
}

static void describe_row(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct rows *rows = arg;
    const struct chex_label_row *r = &rows->c->table->rows[rows->shard->rows[i]];
    *out = (struct chex_shard_row){.image_id = r->image_id,
                                   .patient_id = r->patient_id,
                                   .labels = r->labels,
                                   .view = r->view,
                                   .age_years = r->age_years,
                                   .sex = r->sex};
}

static void fail(struct build *b, enum chex_status status, const struct chex_error *err) {
    pthread_mutex_lock(&b->lock);
    if (b->status == CHEX_OK) {
        b->status = status;
        b->err = *err;
    }
    pthread_mutex_unlock(&b->lock);
    atomic_store(&b->stop, true);
}

static void reject(struct build *b, size_t row, const char *reason) {
    bool no_memory = false;
    pthread_mutex_lock(&b->lock);
    if (b->bad_count == b->bad_capacity) {
        size_t capacity = b->bad_capacity ? 2 * b->bad_capacity : 16;
        struct chex_bad_row *grown = realloc(b->bad, capacity * sizeof *grown);
        no_memory = !grown;
        if (grown) {
            b->bad = grown;
            b->bad_capacity = capacity;
        }
    }
    if (!no_memory) {
        struct chex_bad_row *bad = &b->bad[b->bad_count++];
        memset(bad, 0, sizeof *bad);
        bad->row = row;
        snprintf(bad->reason, sizeof bad->reason, "%.*s", (int)sizeof bad->reason - 1, reason);
        if (!b->c->o->resume && b->c->bad_count + b->bad_count > b->c->o->max_bad)
            atomic_store(&b->fails, true);
        if (chex_create_hopeless(b->c, b->bad_count, atomic_load(&b->done))) {
            b->c->gave_up = true;
            atomic_store(&b->stop, true);
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (no_memory) {
        struct chex_error err = {0};
        chex_error_errno(&err, CHEX_E_FAIL, ENOMEM, "the list of rejected images");
        fail(b, err.status, &err);
    }
}

/* The shard's writer is made by whoever comes first. */
static enum chex_status open_writer(struct build *b, struct job *j, struct chex_error *err) {
    const struct chex_create *c = b->c;
    enum chex_status st = CHEX_OK;
    pthread_mutex_lock(&j->lock);
    if (!j->writer) {
        struct chex_shard_spec spec = {.rows = j->shard->row_count,
                                       .size = c->o->size,
                                       .classes = (int)c->table->class_count,
                                       .class_names = c->table->classes,
                                       .resize = resize_name(c),
                                       .split = chex_split_names[j->shard->split],
                                       .tool_version = c->o->tool_version,
                                       .row = describe_row,
                                       .arg = &j->rows};
        st = chex_shard_create(j->path, &spec, &j->writer, err);
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

static void add_source(struct job *j, const uint64_t hash[2]) {
    pthread_mutex_lock(&j->lock);
    j->sum[0] += hash[0];
    j->sum[1] += hash[1];
    pthread_mutex_unlock(&j->lock);
}

static void add_dark(struct dark *sum, struct dark more) {
    if (more.count && (!sum->count || more.row < sum->row))
        sum->row = more.row;
    sum->count += more.count;
}

/* Mostly the first pixels tell. */
static void note_dark(struct job *j, size_t row, const uint8_t *pixels, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (pixels[i] > DARK_MOST)
            return;
    pthread_mutex_lock(&j->lock);
    add_dark(&j->dark, (struct dark){1, row});
    pthread_mutex_unlock(&j->lock);
}

/* Brings one image into the worker's row. CHEX_E_DATA: the image is bad. */
static enum chex_status convert(struct build *b, struct job *j, size_t i,
                                struct chex_create_worker *w, struct chex_error *err) {
    const struct chex_create_origin *origin = b->c->origin;
    if (origin)
        return origin->fetch(origin->arg, j->shard->rows[i], w->row, err);
    const struct chex_folder_file *file = b->c->files[j->shard->rows[i]];
    if (file->spool) {
        add_source(j, chex_spool_get(file->spool, file->spool_row)->source);
        return chex_spool_read(file->spool, file->spool_row, w->row, err);
    }
    const uint8_t *data = NULL;
    uint64_t hash[2];
    size_t bytes = 0;
    CHEX_TRY(chex_folder_read(file, w->reader, &data, &bytes, err));
    bool check_only = atomic_load(&j->has_bad); /* the shard will be planned anew */
    CHEX_TRY(chex_create_convert(w, data, bytes, file->path, check_only, err));
    if (check_only)
        return CHEX_OK;
    chex_hash128(data, bytes, hash);
    add_source(j, hash);
    return CHEX_OK;
}

static enum chex_status finish_job(struct build *b, struct job *j, struct chex_error *err) {
    const struct chex_create_origin *origin = b->c->origin;
    struct chex_shard_writer *writer = j->writer;
    char digest[33];
    j->writer = NULL;
    if (atomic_load(&j->has_bad)) {
        chex_shard_abandon(writer);
        return CHEX_OK;
    }
    enum chex_status st = origin ? origin->source(origin->arg, j->shard, j->sum, err) : CHEX_OK;
    if (st != CHEX_OK) {
        chex_shard_abandon(writer);
        return st;
    }
    snprintf(digest, sizeof digest, "%016llx%016llx", (unsigned long long)j->sum[0],
             (unsigned long long)j->sum[1]);
    pthread_mutex_lock(&b->lock);
    add_dark(&b->dark, j->dark);
    pthread_mutex_unlock(&b->lock);
    return chex_shard_finish(writer, digest, err);
}

static struct job *job_of(struct build *b, size_t item, size_t *index_out) {
    size_t low = 0, high = b->job_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (b->first[mid] <= item)
            low = mid;
        else
            high = mid;
    }
    *index_out = item - b->first[low];
    return &b->jobs[low];
}

static void announce(struct build *b, size_t item) {
    if (b->c->origin || item >= b->first[b->job_count])
        return;
    size_t i;
    const struct job *j = job_of(b, item, &i);
    chex_folder_announce(b->c->files[j->shard->rows[i]]);
}

static void take_item(void *arg, size_t item, int worker) {
    struct build *b = arg;
    struct chex_create_worker *w = &b->workers[worker];
    struct chex_error err = {0};
    size_t i;
    struct job *j = job_of(b, item, &i);
    if (atomic_load_explicit(&b->stop, memory_order_relaxed))
        return;
    for (size_t k = item == 0 ? 1 : b->ahead; k <= b->ahead; k++)
        announce(b, item + k);
    if (atomic_load_explicit(&b->fails, memory_order_relaxed))
        atomic_store(&j->has_bad, true);
    enum chex_status st = atomic_load(&j->has_bad) ? CHEX_OK : open_writer(b, j, &err);
    if (st == CHEX_OK) {
        st = convert(b, j, i, w, &err);
        if (st == CHEX_OK && !atomic_load(&j->has_bad)) {
            note_dark(j, j->shard->rows[i], w->row, (size_t)w->size * (size_t)w->size);
            st = chex_shard_put(j->writer, i, w->row, &err);
        }
        if (st == CHEX_E_DATA && !b->c->origin) {
            atomic_store(&j->has_bad, true);
            reject(b, j->shard->rows[i], err.text);
            st = CHEX_OK;
        }
    }
    if (st == CHEX_OK && atomic_fetch_sub(&j->left, 1) == 1)
        st = finish_job(b, j, &err);
    if (st != CHEX_OK)
        fail(b, st, &err);
    chex_progress_set(b->progress, atomic_fetch_add(&b->done, 1) + 1, NULL);
}

/* The shards of this rank that are still to do. */
static enum chex_status make_jobs(struct build *b, struct chex_error *err) {
    struct chex_create *c = b->c;
    size_t all = c->plan->shard_count, size = (size_t)c->ranks->size;
    b->jobs = chex_mem_zalloc(all, sizeof *b->jobs);
    b->first = chex_mem_zalloc(all + 1, sizeof *b->first);
    if (!b->jobs || !b->first)
        return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of shards");
    for (size_t s = (size_t)c->ranks->rank; s < all; s += size) {
        const struct chex_plan_shard *shard = &c->plan->shards[s];
        char *path = chex_create_shard_path(c, shard);
        if (!path)
            return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of shards");
        if (chex_fs_exists(path)) {
            free(path);
            c->kept++;
            c->kept_rows += shard->row_count;
            continue;
        }
        struct job *j = &b->jobs[b->job_count++];
        j->shard = shard;
        j->rows = (struct rows){c, shard};
        j->path = path;
        pthread_mutex_init(&j->lock, NULL);
        atomic_init(&j->left, shard->row_count);
        b->first[b->job_count] = b->first[b->job_count - 1] + shard->row_count;
    }
    return CHEX_OK;
}

static void build_free(struct build *b) {
    chex_create_workers_free(b->workers, b->c->o->workers);
    for (size_t j = 0; j < b->job_count; j++) {
        chex_shard_abandon(b->jobs[j].writer);
        pthread_mutex_destroy(&b->jobs[j].lock);
        free(b->jobs[j].path);
    }
    free(b->jobs);
    free(b->first);
    free(b->bad);
    pthread_mutex_destroy(&b->lock);
}

static int by_row(const void *a, const void *b) {
    const struct chex_bad_row *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

static enum chex_status run(struct build *b, struct chex_error *err) {
    struct chex_pool *pool = NULL;
    size_t items = b->first[b->job_count];
    if (!items)
        return CHEX_OK;
    CHEX_TRY(chex_pool_create(b->c->o->workers, &pool, err));
    b->ahead = (size_t)b->c->o->workers * AHEAD_PER_WORKER;
    b->ahead = b->ahead > AHEAD_MAX ? AHEAD_MAX : b->ahead;
    b->progress = chex_progress_create(b->c->origin ? "resharding" : "sharding", "img", items,
                                       b->c->ranks->rank == 0);
    chex_pool_run(pool, items, take_item, b);
    chex_progress_destroy(b->progress, b->status == CHEX_OK && !b->bad_count);
    chex_pool_destroy(pool);
    if (b->status != CHEX_OK && err)
        *err = b->err;
    return b->status;
}

static void warn_of_dark(const struct chex_create *c, const struct dark *d) {
    if (d->count && !c->origin)
        chex_warn(
            "%zu images are stored nearly black, without a pixel above %d of 255, such as %s: "
            "values of 12 or 14 bits in 16-bit PNG files must be scaled to 16 bits first",
            d->count, DARK_MOST, c->table->rows[d->row].image_id);
}

enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err) {
    struct build b = {.c = c};
    pthread_mutex_init(&b.lock, NULL);
    atomic_init(&b.fails, c->check_only);
    enum chex_status st = make_jobs(&b, err);
    if (st == CHEX_OK)
        st = chex_create_workers(c->o->workers, c->o->size, &b.workers, err);
    if (st == CHEX_OK)
        st = run(&b, err);
    if (st == CHEX_OK) {
        if (b.bad_count)
            qsort(b.bad, b.bad_count, sizeof *b.bad, by_row);
        *bad_out = b.bad;
        *count_out = b.bad_count;
        b.bad = NULL;
        warn_of_dark(c, &b.dark);
    }
    build_free(&b);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the missing shards of one rank on all its threads.
 *
 * Each shard is a job, each image of a job an item. A pool hands the items of all jobs to the
 * threads in order, so the threads work on the same shard or on neighbours. Each thread decodes and
 * resizes one image and writes it to its row of the shard (chex_shard_put). The first thread of a
 * job creates the writer; the thread that finishes the last item finishes the shard.
 *
 * Invariants:
 * - A row's place is fixed by the layout, and the source digest is a sum. So the bytes of a shard
 *   do not depend on the number of threads or their timing.
 * - A shard's file name contains a digest of its inputs (create_shards.c). A finished file of that
 *   name is reused, in this run and in others.
 * - In create, a bad image (CHEX_E_DATA) stops only its shard: the writer is abandoned, the other
 *   images of the shard are still checked, and the caller builds it again without the bad rows.
 *   Every other failure stops the run.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/search.h"
#include "ingest/create_private.h"
#include "shard/shard_write.h"

/* Number of files that the kernel is asked to prefetch. Cold reads, especially over a network, then
 * overlap with decoding. */
enum { PREFETCH_PER_WORKER = 8, PREFETCH_MAX = 256 };

struct job { /* one shard */
    const struct chex_create *c;
    struct chex_store_shard *to;
    const struct chex_layout_shard *shard;
    pthread_mutex_t lock; /* over writer (its creation) and sum */
    struct chex_shard_writer *writer;
    uint64_t sum[2];     /* of the image files' hashes */
    atomic_size_t left;  /* items that are not done */
    atomic_bool has_bad; /* the shard will not be finished; images are only checked */
};

struct build {
    struct chex_create *c;
    struct chex_convert_worker *workers;
    struct job *jobs;
    size_t *first; /* first[j]: number of job j's first item; first[job_count]: all items */
    size_t job_count, prefetch; /* prefetch: files */
    struct chex_progress *progress;
    atomic_size_t done;
    atomic_bool stop;     /* hopelessly many bad images */
    atomic_bool fails;    /* too many bad images: check the other images, write no shard */
    pthread_mutex_t lock; /* guards the members below */
    struct chex_bad_row *bad;
    size_t bad_count, bad_capacity;
};

static void describe_row(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct job *j = arg;
    const struct chex_label_row *r = &j->c->table->rows[j->shard->rows[i]];
    *out = (struct chex_shard_row){.image_id = r->image_id,
                                   .patient_id = r->patient_id,
                                   .study_id = r->study_id,
                                   .labels = r->labels,
                                   .view = r->view,
                                   .age_years = r->age_years,
                                   .sex = r->sex};
}

/* Adds a bad image. Requires the lock. */
static enum chex_status add_bad(struct build *b, size_t row, const char *reason,
                                struct chex_error *err) {
    if (!chex_alloc_grow(&b->bad, b->bad_count, &b->bad_capacity, sizeof *b->bad))
        return chex_error_memory(err, "the list of rejected images");
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
    return CHEX_OK;
}

static enum chex_status reject(struct build *b, struct job *j, size_t row, struct chex_error *err) {
    char reason[CHEX_ERROR_TEXT_BYTES];
    memcpy(reason, err->text, sizeof reason);
    atomic_store(&j->has_bad, true);
    pthread_mutex_lock(&b->lock);
    const enum chex_status st = add_bad(b, row, reason, err);
    pthread_mutex_unlock(&b->lock);
    return st;
}

/* Creates the shard's writer unless another thread did. Thread-safe. */
static enum chex_status open_writer(struct build *b, struct job *j, struct chex_error *err) {
    const struct chex_create *c = b->c;
    enum chex_status st = CHEX_OK;
    pthread_mutex_lock(&j->lock);
    if (!j->writer) {
        struct chex_shard_spec spec = {.rows = j->shard->row_count,
                                       .size = (int)c->o->size,
                                       .classes = (int)c->table->class_count,
                                       .class_names = c->table->classes,
                                       .resize = chex_create_facts(c).resize,
                                       .split = chex_split_names[j->shard->split],
                                       .tool_version = c->o->tool_version,
                                       .row = describe_row,
                                       .arg = j};
        st = chex_shard_create(j->to->path, &spec, &j->writer, err);
    }
    pthread_mutex_unlock(&j->lock);
    return st;
}

static void add_hash(struct job *j, const uint64_t hash[2]) {
    pthread_mutex_lock(&j->lock);
    j->sum[0] += hash[0];
    j->sum[1] += hash[1];
    pthread_mutex_unlock(&j->lock);
}

/* Decodes and resizes one image into the worker's row buffer. CHEX_E_DATA: the image is bad. */
static enum chex_status convert(struct build *b, struct job *j, size_t i,
                                struct chex_convert_worker *w, struct chex_error *err) {
    const struct chex_create_origin *origin = b->c->origin;
    if (origin)
        return origin->fetch(origin->arg, j->shard->rows[i], w->row, err);
    const struct chex_folder_file *file = b->c->files[j->shard->rows[i]];
    if (file->spool) {
        add_hash(j, chex_spool_get(file->spool, file->spool_row)->hash);
        return chex_spool_read(file->spool, file->spool_row, w->row, err);
    }
    const uint8_t *data = NULL;
    uint64_t hash[2];
    size_t bytes = 0;
    CHEX_TRY(chex_folder_read(file, w->reader, &data, &bytes, err));
    bool check_only = atomic_load(&j->has_bad); /* the shard is built again in the next round */
    CHEX_TRY(chex_convert_image(w, data, bytes, file->path, check_only, err));
    if (check_only)
        return CHEX_OK;
    chex_hash128(data, bytes, hash);
    add_hash(j, hash);
    return CHEX_OK;
}

/* After convert(): the size of the image file of row i, as the old shard, the spool or the decoder
 * states it. */
static void set_original(const struct build *b, struct job *j, size_t i,
                         const struct chex_convert_worker *w) {
    const struct chex_create_origin *origin = b->c->origin;
    const size_t row = j->shard->rows[i];
    int width = w->image.file_width, height = w->image.file_height;
    if (origin) {
        size_t at;
        const struct chex_shard *s = origin->shard(origin->arg, row, &at);
        width = chex_shard_original_width(s, at);
        height = chex_shard_original_height(s, at);
    } else if (b->c->files[row]->spool) {
        const struct chex_folder_file *file = b->c->files[row];
        width = chex_spool_get(file->spool, file->spool_row)->width;
        height = chex_spool_get(file->spool, file->spool_row)->height;
    }
    chex_shard_set_original(j->writer, i, width, height);
}

static enum chex_status finish_job(struct build *b, struct job *j, struct chex_error *err) {
    const struct chex_create_origin *origin = b->c->origin;
    CHEX_AUTO(chex_shard_abandon_at) struct chex_shard_writer *writer = CHEX_TAKE(j->writer);
    char digest[33];
    if (atomic_load(&j->has_bad))
        return CHEX_OK;
    if (origin)
        CHEX_TRY(origin->sum_digests(origin->arg, j->shard, j->sum, err));
    snprintf(digest, sizeof digest, "%016llx%016llx", (unsigned long long)j->sum[0],
             (unsigned long long)j->sum[1]);
    CHEX_TRY(chex_shard_finish(CHEX_TAKE(writer), digest, err));
    j->to->finished = true;
    return CHEX_OK;
}

/* The job of an item, and the item's index in it. */
static struct job *job_of(struct build *b, size_t item, size_t *index_out) {
    const size_t at = chex_search_run(b->first, b->job_count, item);
    *index_out = item - b->first[at];
    return &b->jobs[at];
}

static void prefetch(struct build *b, size_t item) {
    if (b->c->origin || item >= b->first[b->job_count])
        return;
    size_t i;
    const struct job *j = job_of(b, item, &i);
    chex_folder_prefetch(b->c->files[j->shard->rows[i]]);
}

/* Checks image i, and writes it unless the shard has a bad image. */
static enum chex_status take_image(struct build *b, struct job *j, size_t i,
                                   struct chex_convert_worker *w, struct chex_error *err) {
    if (!atomic_load(&j->has_bad))
        CHEX_TRY(open_writer(b, j, err));
    CHEX_TRY(convert(b, j, i, w, err));
    if (atomic_load(&j->has_bad))
        return CHEX_OK;
    set_original(b, j, i, w);
    return chex_shard_put(j->writer, i, w->row, err);
}

static enum chex_status take_item(void *arg, size_t item, int worker, struct chex_error *err) {
    struct build *b = arg;
    size_t i;
    struct job *j = job_of(b, item, &i);
    if (atomic_load_explicit(&b->stop, memory_order_relaxed))
        return CHEX_OK;
    /* Item 0 prefetches the whole distance, every other item one more file. */
    for (size_t k = item == 0 ? 1 : b->prefetch; k <= b->prefetch; k++)
        prefetch(b, item + k);
    if (atomic_load_explicit(&b->fails, memory_order_relaxed))
        atomic_store(&j->has_bad, true);
    enum chex_status st = take_image(b, j, i, &b->workers[worker], err);
    if (st == CHEX_E_DATA && !b->c->origin)
        st = reject(b, j, j->shard->rows[i], err);
    if (st == CHEX_OK && atomic_fetch_sub(&j->left, 1) == 1)
        st = finish_job(b, j, err);
    chex_progress_set(b->progress, atomic_fetch_add(&b->done, 1) + 1, NULL);
    return st;
}

/* One job for each shard of this rank that is not finished. */
static enum chex_status make_jobs(struct build *b, struct chex_error *err) {
    const struct chex_create *c = b->c;
    const size_t all = c->store->shard_count, size = (size_t)c->group->size;
    b->jobs = chex_alloc_zeroed(all, sizeof *b->jobs);
    b->first = chex_alloc_zeroed(all + 1, sizeof *b->first);
    if (!b->jobs || !b->first)
        return chex_error_memory(err, "the list of shards");
    for (size_t s = (size_t)c->group->rank; s < all; s += size) {
        struct chex_store_shard *to = &c->store->shards[s];
        if (to->finished)
            continue;
        struct job *j = &b->jobs[b->job_count++];
        j->c = c;
        j->to = to;
        j->shard = to->layout;
        pthread_mutex_init(&j->lock, NULL);
        atomic_init(&j->left, j->shard->row_count);
        b->first[b->job_count] = b->first[b->job_count - 1] + j->shard->row_count;
    }
    return CHEX_OK;
}

static void build_free(struct build *b) {
    chex_convert_workers_free(b->workers, (int)b->c->o->workers);
    for (size_t j = 0; j < b->job_count; j++) {
        chex_shard_abandon(b->jobs[j].writer);
        pthread_mutex_destroy(&b->jobs[j].lock);
    }
    CHEX_FREE(b->jobs, b->first, b->bad);
    pthread_mutex_destroy(&b->lock);
}

static int by_row(const void *a, const void *b) {
    const struct chex_bad_row *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

static enum chex_status run(struct build *b, struct chex_error *err) {
    const int workers = (int)b->c->o->workers;
    const size_t items = b->first[b->job_count], distance = (size_t)workers * PREFETCH_PER_WORKER;
    if (!items)
        return CHEX_OK;
    b->prefetch = distance > PREFETCH_MAX ? PREFETCH_MAX : distance;
    const char *what = !b->c->origin              ? "sharding"
                       : b->c->origin->new_labels ? "relabelling"
                                                  : "resharding";
    b->progress = chex_progress_create(what, "img", items, b->c->group->rank == 0);
    const enum chex_status st = chex_pool_try(workers, items, take_item, b, err);
    chex_progress_destroy(b->progress, st == CHEX_OK && !b->bad_count);
    return st;
}

enum chex_status chex_create_build(struct chex_create *c, struct chex_bad_row **bad_out,
                                   size_t *count_out, struct chex_error *err) {
    CHEX_AUTO(build_free) struct build b = {.c = c};
    pthread_mutex_init(&b.lock, NULL);
    atomic_init(&b.fails, c->check_only);
    CHEX_TRY(make_jobs(&b, err));
    CHEX_TRY(chex_convert_workers((int)c->o->workers, (int)c->o->size, &b.workers, err));
    CHEX_TRY(run(&b, err));
    if (b.bad_count)
        qsort(b.bad, b.bad_count, sizeof *b.bad, by_row);
    *bad_out = CHEX_TAKE(b.bad);
    *count_out = b.bad_count;
    return CHEX_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Images in archives.
 *
 * A plain .tar is indexed: its images are read at their offsets, like files. A compressed archive
 * can only be read from start to end, but the layout needs its images in another order. So one pass
 * reads the archive, resizes the wanted images and stores them in a spool (spool.h) in the partial
 * folder. The shards are built from the spools.
 *
 * Archive i belongs to rank i mod size. Within a rank, threads share a few open archives, one in
 * each lane. The thread that holds a lane's lock reads the next wanted image; then it gives the
 * lock to the next thread and decodes and resizes its image. When a lane has no more archives, its
 * threads go to the other lanes.
 *
 * Invariants:
 * - The threads hold at most MAX_HELD_BYTES of image files in total, or one image if it is larger.
 * - A spool gets its final name only when its archive is read to the end and all its images are
 *   done. task.open_parts counts both; the thread that decrements it to 0 finishes the spool.
 * - The spool's name contains a digest of its inputs, so --resume reuses whole spools.
 * - A fault of an archive is stored in its spool and is not an error here: all wanted images may
 *   lie before it. chex_create_find_images() decides.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/text.h"
#include "ingest/archive.h"
#include "ingest/create_private.h"
#include "ingest/spool.h"

/* gzip decompresses 2.5 images in the time that decoding one image takes. */
enum { WORKERS_PER_LANE = 3 };
static const uint64_t MAX_HELD_BYTES = 256 << 20;

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_memory(err, "the list of images in archives");
}

/* ---- plain archives ---- */

static enum chex_status index_tar(struct chex_create *c, struct chex_archive *archive,
                                  const struct chex_folder_file *file, struct chex_error *err) {
    const struct chex_container *container = NULL;
    CHEX_TRY(chex_folder_add_container(c->folder, file->path, &container, err));
    for (bool more = true; more;) {
        struct chex_archive_member m = {0};
        CHEX_TRY(chex_archive_next(archive, &m, &more, err));
        const struct chex_folder_file image = {.bytes = m.bytes,
                                               .modified_ns = file->modified_ns,
                                               .container = container,
                                               .offset = m.offset,
                                               .unread = m.unread};
        if (more)
            CHEX_TRY(chex_folder_add(c->folder, &image, file->path, m.name, err));
    }
    return CHEX_OK;
}

/* Records the first faulty archive and warns. CHEX_E_DATA becomes CHEX_OK, because all wanted
 * images may lie before the fault; other statuses are returned as they are. */
static enum chex_status record_fault(struct chex_create *c, enum chex_status st, const char *text,
                                     struct chex_error *err) {
    if (st != CHEX_E_DATA)
        return st;
    if (!c->archive_fault && !(c->archive_fault = strdup(text)))
        return no_memory(err);
    if (c->group->rank == 0)
        chex_warn("%s", text);
    return CHEX_OK;
}

/* Lists the sorted file names of all rows without a file. */
static enum chex_status list_wanted(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    if (!(c->wanted = chex_alloc_zeroed(t->count, sizeof *c->wanted)))
        return no_memory(err);
    for (size_t r = 0; r < t->count; r++)
        if ((int)c->split[r] != CHEX_SPLIT_UNUSED && !chex_create_find(c, r, NULL))
            c->wanted[c->wanted_count++] = chex_fs_name(t->rows[r].path);
    qsort(c->wanted, c->wanted_count, sizeof *c->wanted, chex_text_compare);
    return CHEX_OK;
}

enum chex_status chex_create_open_archives(struct chex_create *c, struct chex_error *err) {
    size_t count, packed = 0;
    const struct chex_folder_file *files = chex_folder_archives(c->folder, &count);
    if (!count)
        return CHEX_OK;
    CHEX_TRY(list_wanted(c, err));
    if (!c->wanted_count) {
        chex_info("%zu archives under %s are not needed: every image is a file of its own", count,
                  c->o->images);
        return CHEX_OK;
    }
    free(c->wanted);
    c->wanted = NULL;
    c->wanted_count = 0;
    if (!(c->packed = chex_alloc_zeroed(count, sizeof *c->packed)))
        return no_memory(err);
    for (size_t i = 0; i < count; i++) {
        CHEX_AUTO(chex_archive_close_at) struct chex_archive *archive = NULL;
        enum chex_status st = chex_archive_open(files[i].path, &archive, err);
        if (st == CHEX_OK && chex_archive_compressed(archive))
            c->packed[packed++] = &files[i];
        else if (st == CHEX_OK)
            st = index_tar(c, archive, &files[i], err);
        CHEX_TRY(record_fault(c, st, err->text, err));
    }
    chex_folder_sort(c->folder);
    CHEX_TRY(list_wanted(c, err));
    c->packed_count = c->wanted_count ? packed : 0;
    chex_info("images in archives: %zu plain, %zu compressed%s", count - packed, packed,
              packed && !c->wanted_count ? ", which are not needed" : "");
    return CHEX_OK;
}

/* ---- spools ---- */

static uint64_t row_bytes(const struct chex_create *c) {
    return (uint64_t)c->o->size * (uint64_t)c->o->size;
}

/* PARTIAL/spool-NAME.DIGEST in new memory. The digest covers every input of the spool. */
static char *spool_path(const struct chex_create *c, const struct chex_folder_file *archive) {
    const int64_t facts[] = {(int64_t)archive->bytes, archive->modified_ns, c->o->size,
                             CHEX_CREATE_REVISION};
    uint64_t h = chex_hash64_mix(0, facts, sizeof facts);
    h = chex_hash64_mix_text(h, archive->path);
    h = chex_hash64_mix_text(h, c->o->tool_version);
    h = chex_hash64_mix_text(h, CHEX_RESIZE_NAME);
    for (size_t i = 0; i < c->wanted_count; i++)
        h = chex_hash64_mix_text(h, c->wanted[i]);
    return chex_fs_format("%s/spool-%.100s.%016llx", c->store->partial, chex_fs_name(archive->path),
                          (unsigned long long)h);
}

/* Bytes of the spools and the shards. If all spools exist, only the shards count; otherwise also
 * one row for each wanted image. */
static enum chex_status count_bytes(const struct chex_create *c, uint64_t *bytes_out,
                                    struct chex_error *err) {
    bool all = true;
    for (size_t i = 0; i < c->packed_count; i++) {
        CHEX_AUTO_FREE char *path = spool_path(c, c->packed[i]);
        if (!path)
            return no_memory(err);
        all = all && chex_fs_exists(path);
    }
    size_t used = 0;
    for (size_t r = 0; r < c->table->count; r++)
        used += (int)c->split[r] != CHEX_SPLIT_UNUSED;
    *bytes_out = (used + (all ? 0 : c->wanted_count)) * row_bytes(c);
    return CHEX_OK;
}

/* An archive that is being spooled. */
struct task {
    const struct chex_folder_file *file;
    char *path;
    struct chex_spool_writer *writer;
    size_t open_parts; /* images in work, plus 1 until the archive ends; under spooling.lock */
    char fault[CHEX_ERROR_TEXT_BYTES];
};

/* An archive that the threads read in turn. */
struct lane {
    pthread_mutex_t lock;
    struct task *task; /* NULL: none */
    struct chex_archive *archive;
    bool fault; /* the archive is damaged */
};

/* An image file of an archive. */
struct image {
    struct task *task;
    size_t row, bytes;
    uint8_t *data;                                 /* `bytes` bytes, which count as held */
    char path[PATH_MAX + CHEX_ARCHIVE_NAME_BYTES]; /* ARCHIVE/MEMBER */
};

struct spooling {
    struct chex_create *c;
    struct task *tasks;
    size_t task_count;
    struct lane *lanes;
    size_t lane_count;
    int threads;
    struct chex_convert_worker *workers; /* (threads) */
    struct chex_progress *progress;
    size_t expected; /* images; 0: unknown */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t freed;
    uint64_t held; /* bytes of all image files in memory */
    size_t next_task, done, bad;
    enum chex_status status;
    struct chex_error err;
};

static void fail(struct spooling *s, enum chex_status status, const struct chex_error *err) {
    pthread_mutex_lock(&s->lock);
    if (s->status == CHEX_OK) {
        s->status = status;
        s->err = *err;
    }
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until `bytes` more bytes may be held. False after a failure. */
static bool hold(struct spooling *s, uint64_t bytes) {
    pthread_mutex_lock(&s->lock);
    while (s->status == CHEX_OK && s->held && s->held + bytes > MAX_HELD_BYTES)
        pthread_cond_wait(&s->freed, &s->lock);
    const bool good = s->status == CHEX_OK;
    s->held += good ? bytes : 0;
    pthread_mutex_unlock(&s->lock);
    return good;
}

static void drop(struct spooling *s, struct image *image) {
    free(image->data);
    image->data = NULL;
    pthread_mutex_lock(&s->lock);
    s->held -= image->bytes;
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

/* One part of the archive is done. The thread that ends the last part finishes the spool. */
static void end_part(struct spooling *s, struct task *t) {
    struct chex_error err = {0};
    pthread_mutex_lock(&s->lock);
    bool last = --t->open_parts == 0 && s->status == CHEX_OK;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    enum chex_status st =
        chex_spool_finish(CHEX_TAKE(t->writer), t->fault[0] ? t->fault : NULL, &err);
    if (st != CHEX_OK)
        fail(s, st, &err);
}

/* ---- reading ---- */

/* True if the member's file name is wanted, with or without its extension (see chex_folder_find).
 */
static bool is_wanted(const struct chex_create *c, const char *member) {
    char stem[CHEX_ARCHIVE_NAME_BYTES + 1];
    const char *name = chex_fs_name(member), *at = stem;
    if (bsearch(&name, c->wanted, c->wanted_count, sizeof *c->wanted, chex_text_compare))
        return true;
    size_t n = strcspn(name, ".");
    memcpy(stem, name, n);
    stem[n] = '\0';
    return bsearch(&at, c->wanted, c->wanted_count, sizeof *c->wanted, chex_text_compare) != NULL;
}

/* Records a bad image in the spool. CHEX_E_DATA if there are hopelessly many, so that the run ends
 * early. */
static enum chex_status reject(struct spooling *s, struct task *t, size_t row, const char *reason,
                               struct chex_error *err) {
    CHEX_TRY(chex_spool_reject(t->writer, row, reason, err));
    pthread_mutex_lock(&s->lock);
    size_t bad = ++s->bad, most = s->c->o->max_bad;
    bool hopeless = chex_create_hopeless(s->c, bad, s->done);
    pthread_mutex_unlock(&s->lock);
    if (!hopeless)
        return CHEX_OK;
    return chex_error_data(err, "at least %zu images cannot be used (--max-bad is %zu), such as %s",
                           bad, most, reason);
}

/* Reads one member. A member that is empty or too large is a bad image at once, and image->data
 * stays NULL. */
static enum chex_status read_member(struct spooling *s, struct lane *l,
                                    const struct chex_archive_member *m, struct image *image,
                                    struct chex_error *err) {
    struct task *t = l->task;
    struct chex_error why = {0};
    image->task = t;
    image->bytes = (size_t)m->bytes;
    snprintf(image->path, sizeof image->path, "%s/%s", t->file->path, m->name);
    if (chex_image_check_bytes(image->path, m->bytes, &why) != CHEX_OK) {
        CHEX_TRY(chex_spool_add(t->writer, m->name, m->bytes, &image->row, err));
        return reject(s, t, image->row, why.text, err);
    }
    if (!hold(s, m->bytes))
        return CHEX_E_FAIL; /* the failure is recorded in s */
    enum chex_status st = CHEX_OK;
    if (!(image->data = malloc(image->bytes)))
        st = chex_error_memory(err, "an image of %zu bytes", image->bytes);
    if (st == CHEX_OK)
        st = chex_archive_read(l->archive, image->data, err);
    l->fault = st == CHEX_E_DATA;
    if (st == CHEX_OK)
        st = chex_spool_add(t->writer, m->name, m->bytes, &image->row, err);
    if (st != CHEX_OK)
        drop(s, image);
    return st;
}

/* A member without bytes, such as a link: it is no image, but the reason why one is missing. */
static enum chex_status add_unread(struct chex_spool_writer *writer,
                                   const struct chex_archive_member *m, struct chex_error *err) {
    size_t row;
    CHEX_TRY(chex_spool_add(writer, m->name, CHEX_SPOOL_UNREAD, &row, err));
    return chex_spool_reject(writer, row, m->unread, err);
}

/* Reads the next member of the lane's archive. *more_out: false at its end. */
static enum chex_status advance(struct spooling *s, struct lane *l, struct image *image,
                                bool *more_out, struct chex_error *err) {
    struct chex_archive_member m;
    enum chex_status st = CHEX_OK;
    if (!l->archive) {
        CHEX_TRY(chex_spool_create(l->task->path, (size_t)row_bytes(s->c), &l->task->writer, err));
        st = chex_archive_open(l->task->file->path, &l->archive, err);
    }
    if (st == CHEX_OK)
        st = chex_archive_next(l->archive, &m, more_out, err);
    l->fault = st == CHEX_E_DATA;
    if (st != CHEX_OK || !*more_out || !is_wanted(s->c, m.name))
        return st;
    return m.unread ? add_unread(l->task->writer, &m, err) : read_member(s, l, &m, image, err);
}

/* Gives the lane the next archive. False: there is none, or the run failed. */
static bool take_task(struct spooling *s, struct lane *l) {
    pthread_mutex_lock(&s->lock);
    if (s->status == CHEX_OK && !l->task && s->next_task < s->task_count) {
        l->task = &s->tasks[s->next_task++];
        l->task->open_parts = 1;
    }
    const bool good = s->status == CHEX_OK && l->task;
    pthread_mutex_unlock(&s->lock);
    return good;
}

/* After the last member, or a failure. A fault of the archive goes to its spool. */
static void leave_archive(struct spooling *s, struct lane *l, enum chex_status st,
                          const struct chex_error *err) {
    struct task *t = l->task;
    chex_archive_close(l->archive);
    l->archive = NULL;
    l->task = NULL;
    if (l->fault)
        snprintf(t->fault, sizeof t->fault, "%s", err->text);
    else if (st != CHEX_OK)
        fail(s, st, err);
    l->fault = false;
    end_part(s, t);
}

/* Takes the next wanted image of the lane. False: its archives are done, or the run failed. */
static bool take_image(struct spooling *s, struct lane *l, struct image *image) {
    struct chex_error err = {0};
    image->data = NULL;
    pthread_mutex_lock(&l->lock);
    while (!image->data && take_task(s, l)) {
        bool more = false;
        enum chex_status st = advance(s, l, image, &more, &err);
        if (image->data) {
            pthread_mutex_lock(&s->lock);
            image->task->open_parts++;
            pthread_mutex_unlock(&s->lock);
        } else if (st != CHEX_OK || !more) {
            leave_archive(s, l, st, &err);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return image->data;
}

/* ---- decoding ---- */

static void spool_image(struct spooling *s, struct image *image, struct chex_convert_worker *w) {
    struct task *t = image->task;
    struct chex_error err = {0};
    uint64_t hash[2];
    enum chex_status st =
        chex_convert_image(w, image->data, image->bytes, image->path, false, &err);
    if (st == CHEX_E_DATA) {
        char reason[CHEX_ERROR_TEXT_BYTES];
        memcpy(reason, err.text, sizeof reason);
        st = reject(s, t, image->row, reason, &err);
    } else if (st == CHEX_OK) {
        chex_hash128(image->data, image->bytes, hash);
        st = chex_spool_put(t->writer, image->row, w->row, hash, w->image.file_width,
                            w->image.file_height, &err);
    }
    if (st != CHEX_OK)
        fail(s, st, &err);
    drop(s, image);
    end_part(s, t);
    pthread_mutex_lock(&s->lock);
    size_t done = ++s->done;
    pthread_mutex_unlock(&s->lock);
    /* `done` can exceed `expected` if a name occurs more than once. */
    chex_progress_set(s->progress, s->expected && done > s->expected ? s->expected : done, NULL);
}

/* Thread body: each pool item is one thread. */
static void run_thread(void *arg, size_t item, int thread) {
    struct spooling *s = arg;
    struct image image;
    (void)thread;
    for (size_t k = 0; k < s->lane_count; k++)
        while (take_image(s, &s->lanes[(item + k) % s->lane_count], &image))
            spool_image(s, &image, &s->workers[item]);
}

/* ---- the pass ---- */

/* *whole_out: an interrupted run left this spool and all its checksums are right. Removes a damaged
 * spool with a warning. */
static enum chex_status check_spool(const struct chex_create *c, const char *path, bool *whole_out,
                                    struct chex_error *err) {
    CHEX_AUTO(chex_spool_close_at) struct chex_spool *spool = NULL;
    struct chex_error why = {0};
    *whole_out = false;
    if (!chex_fs_exists(path))
        return CHEX_OK;
    CHEX_AUTO_FREE uint8_t *pixels = malloc((size_t)row_bytes(c));
    if (!pixels)
        return no_memory(err);
    enum chex_status st = chex_spool_open(path, (size_t)row_bytes(c), &spool, &why);
    for (size_t i = 0; st == CHEX_OK && i < chex_spool_count(spool); i++)
        if (!chex_spool_get(spool, i)->reason)
            st = chex_spool_read(spool, i, pixels, &why);
    *whole_out = st == CHEX_OK;
    if (st == CHEX_OK)
        return CHEX_OK;
    chex_warn("--resume: %s: the archive is read again", why.text);
    if (unlink(path) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot remove %s", path);
    return CHEX_OK;
}

/* One task for each archive of this rank that has no whole spool. */
static enum chex_status make_tasks(struct spooling *s, struct chex_error *err) {
    struct chex_create *c = s->c;
    if (!(s->tasks = chex_alloc_zeroed(c->packed_count, sizeof *s->tasks)))
        return no_memory(err);
    for (size_t i = (size_t)c->group->rank; i < c->packed_count; i += (size_t)c->group->size) {
        CHEX_AUTO_FREE char *path = spool_path(c, c->packed[i]);
        if (!path)
            return no_memory(err);
        bool whole = false;
        CHEX_TRY(check_spool(c, path, &whole, err));
        if (whole)
            chex_info("%s: its images were resized by the interrupted run", c->packed[i]->path);
        else
            s->tasks[s->task_count++] =
                (struct task){.file = c->packed[i], .path = CHEX_TAKE(path)};
    }
    return CHEX_OK;
}

static enum chex_status make_threads(struct spooling *s, struct chex_error *err) {
    const size_t workers = (size_t)s->c->o->workers;
    size_t lanes = (workers + WORKERS_PER_LANE - 1) / WORKERS_PER_LANE;
    lanes = lanes < s->task_count ? lanes : s->task_count;
    if (!(s->lanes = chex_alloc_zeroed(lanes, sizeof *s->lanes)))
        return no_memory(err);
    for (; s->lane_count < lanes; s->lane_count++)
        pthread_mutex_init(&s->lanes[s->lane_count].lock, NULL);
    s->threads = (int)(workers + lanes); /* one thread of each lane reads */
    return chex_convert_workers(s->threads, (int)s->c->o->size, &s->workers, err);
}

static void release(struct spooling *s) {
    chex_convert_workers_free(s->workers, s->threads);
    for (size_t i = 0; i < s->lane_count; i++) {
        chex_archive_close(s->lanes[i].archive);
        pthread_mutex_destroy(&s->lanes[i].lock);
    }
    for (size_t i = 0; i < s->task_count; i++) {
        chex_spool_abandon(s->tasks[i].writer);
        free(s->tasks[i].path);
    }
    free(s->lanes);
    free(s->tasks);
    pthread_cond_destroy(&s->freed);
    pthread_mutex_destroy(&s->lock);
}

static enum chex_status run(struct spooling *s, struct chex_error *err) {
    struct chex_pool *pool = NULL;
    CHEX_TRY(chex_pool_create(s->threads, &pool, err));
    /* With several ranks, no rank knows how many of the wanted images are in its archives. */
    s->expected = s->c->group->size == 1 ? s->c->wanted_count : 0;
    s->progress =
        chex_progress_create("reading archives", "img", s->expected, s->c->group->rank == 0);
    chex_pool_run(pool, (size_t)s->threads, run_thread, s);
    chex_progress_destroy(s->progress, s->status == CHEX_OK);
    chex_pool_destroy(pool);
    return s->status == CHEX_OK ? CHEX_OK : chex_error_set(err, s->status, "%s", s->err.text);
}

static enum chex_status make_spools(struct chex_create *c, struct chex_error *err) {
    CHEX_AUTO(release) struct spooling s = {.c = c};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.freed, NULL);
    CHEX_TRY(make_tasks(&s, err));
    if (!s.task_count)
        return CHEX_OK;
    CHEX_TRY(make_threads(&s, err));
    return run(&s, err);
}

static enum chex_status take_spool(struct chex_create *c, const struct chex_folder_file *archive,
                                   struct chex_error *err) {
    struct chex_spool *spool = NULL; /* the folder closes it */
    CHEX_AUTO_FREE char *path = spool_path(c, archive);
    if (!path)
        return no_memory(err);
    CHEX_TRY(chex_spool_open(path, (size_t)row_bytes(c), &spool, err));
    CHEX_TRY(chex_folder_add_spool(c->folder, spool, err));
    for (size_t i = 0; i < chex_spool_count(spool); i++) {
        const struct chex_spool_row *row = chex_spool_get(spool, i);
        struct chex_folder_file image = {.bytes = row->bytes,
                                         .modified_ns = archive->modified_ns,
                                         .spool = spool,
                                         .spool_row = i};
        if (row->bytes == CHEX_SPOOL_UNREAD)
            image = (struct chex_folder_file){.unread = row->reason};
        CHEX_TRY(chex_folder_add(c->folder, &image, archive->path, row->name, err));
    }
    return chex_spool_fault(spool) ? record_fault(c, CHEX_E_DATA, chex_spool_fault(spool), err)
                                   : CHEX_OK;
}

static enum chex_status take_spools(struct chex_create *c, struct chex_error *err) {
    for (size_t i = 0; i < c->packed_count; i++)
        CHEX_TRY(take_spool(c, c->packed[i], err));
    chex_folder_sort(c->folder);
    return CHEX_OK;
}

/* Each archive is read once, before the rows are assigned to shards. */
enum chex_status chex_create_spool(struct chex_create *c, struct chex_error *err) {
    uint64_t bytes = 0;
    if (!c->packed_count)
        return CHEX_OK;
    CHEX_TRY(chex_group_agree(c->group, count_bytes(c, &bytes, err), err));
    CHEX_TRY(chex_store_lock(c->store, bytes, err));
    CHEX_TRY(chex_group_agree(c->group, make_spools(c, err), err));
    return chex_group_agree(c->group, take_spools(c, err), err);
}

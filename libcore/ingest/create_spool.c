/* SPDX-License-Identifier: Apache-2.0
 *
 * Images in archives.
 *
 * A plain .tar is indexed: its images are read at their offsets, like files. A compressed archive
 * can only be read from start to end, but the layout needs its images in another order. So one pass
 * reads the archive, resizes the wanted images and stores them in a spool (spool.h) in the partial
 * folder. The shards are built from the spools.
 *
 * Archive i belongs to rank i mod size. Within a rank, `readers` threads decompress, one archive
 * each, and the workers decode and resize. They share a queue of slots; each slot holds one image
 * file:
 *   idle --take_slot--> reader --enqueue--> first..last --take_image--> worker --give_back--> idle
 *
 * Invariants:
 * - The slots hold at most MAX_HELD_BYTES of memory in total, or one image if it is larger. A
 *   reader waits in take_slot() until the memory fits.
 * - A spool gets its final name only when its archive is read to the end and all its images are
 *   done. task.open_parts counts both; the thread that decrements it to 0 finishes the spool.
 * - The spool's name contains a digest of its inputs, so --resume reuses whole spools.
 * - A fault of an archive is stored in its spool and is not an error here: all wanted images may
 *   lie before it. find_images() in create.c decides.
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
#include "ingest/archive.h"
#include "ingest/create_private.h"
#include "ingest/spool.h"

/* One reader keeps about 3 workers busy: gzip decompresses 2.5 images in the time that decoding one
 * image takes. */
enum { WORKERS_PER_READER = 3, SLOTS_PER_WORKER = 2 };
static const uint64_t MAX_HELD_BYTES = 256 << 20;

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the list of images in archives");
}

/* ---- plain archives ---- */

static enum chex_status index_tar(struct chex_create *c, struct chex_archive *archive,
                                  const struct chex_folder_file *file, struct chex_error *err) {
    const struct chex_holder *holder = NULL;
    CHEX_TRY(chex_folder_add_holder(c->folder, file->path, &holder, err));
    for (bool more = true; more;) {
        struct chex_archive_member m;
        CHEX_TRY(chex_archive_next(archive, &m, &more, err));
        struct chex_folder_file image = {.bytes = more ? m.bytes : 0,
                                         .modified_ns = file->modified_ns,
                                         .holder = holder,
                                         .offset = more ? m.offset : 0};
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

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *name_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Lists the sorted file names of all rows without a file. */
static enum chex_status list_wanted(struct chex_create *c, struct chex_error *err) {
    const struct chex_label_table *t = c->table;
    if (!(c->wanted = chex_alloc_zeroed(t->count, sizeof *c->wanted)))
        return no_memory(err);
    for (size_t r = 0; r < t->count; r++)
        if ((int)c->split[r] != CHEX_SPLIT_UNUSED && !chex_create_find(c, r, NULL))
            c->wanted[c->wanted_count++] = name_of(t->rows[r].path);
    qsort(c->wanted, c->wanted_count, sizeof *c->wanted, by_text);
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
        struct chex_archive *archive = NULL;
        enum chex_status st = chex_archive_open(files[i].path, &archive, err);
        if (st == CHEX_OK && chex_archive_compressed(archive))
            c->packed[packed++] = &files[i];
        else if (st == CHEX_OK)
            st = index_tar(c, archive, &files[i], err);
        chex_archive_close(archive);
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

/* partial/spool-NAME.DIGEST in new memory. The digest covers every input of the spool. */
static char *spool_path(const struct chex_create *c, const struct chex_folder_file *archive) {
    int64_t facts[] = {(int64_t)archive->bytes, archive->modified_ns, c->o->size};
    uint64_t h = chex_hash64_mix(0, facts, sizeof facts);
    h = chex_hash64_mix(h, archive->path, strlen(archive->path) + 1);
    h = chex_hash64_mix(h, c->o->tool_version, strlen(c->o->tool_version) + 1);
    h = chex_hash64_mix(h, CHEX_RESIZE_NAME, sizeof CHEX_RESIZE_NAME);
    for (size_t i = 0; i < c->wanted_count; i++)
        h = chex_hash64_mix(h, c->wanted[i], strlen(c->wanted[i]) + 1);
    return chex_fs_format("%s/spool-%.100s.%016llx", c->partial, name_of(archive->path),
                          (unsigned long long)h);
}

/* If all spools exist, only the shards count; otherwise also one row for each wanted image. */
enum chex_status chex_create_spool_bytes(const struct chex_create *c, uint64_t *bytes_out,
                                         struct chex_error *err) {
    bool all = true;
    for (size_t i = 0; i < c->packed_count; i++) {
        char *path = spool_path(c, c->packed[i]);
        if (!path)
            return no_memory(err);
        all = all && chex_fs_exists(path);
        free(path);
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
    size_t open_parts; /* queued or decoding images, plus 1 for the reader; under spooling.lock */
    char fault[CHEX_ERROR_TEXT_BYTES];
};

struct slot {
    struct slot *next;
    uint8_t *data;
    size_t capacity, bytes;
    struct task *task;
    size_t row;
    char path[PATH_MAX + CHEX_ARCHIVE_NAME_BYTES]; /* ARCHIVE/MEMBER */
};

struct spooling {
    struct chex_create *c;
    struct task *tasks;
    size_t task_count;
    struct chex_convert_worker *workers;
    struct slot *slots;
    size_t slot_count;
    int readers; /* threads; the first items of the pool's loop */
    struct chex_progress *progress;
    size_t expected; /* images; 0: unknown */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t freed, filled;
    struct slot *idle;         /* slots without an image */
    struct slot *first, *last; /* queue of slots with an image */
    uint64_t held;             /* bytes of all slots' memory */
    size_t busy;               /* slots that are not idle */
    size_t next_task, readers_left;
    size_t done, bad;
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
    pthread_cond_broadcast(&s->filled);
    pthread_mutex_unlock(&s->lock);
}

static void drop_memory(struct spooling *s, struct slot *slot) {
    free(slot->data);
    s->held -= slot->capacity;
    slot->data = NULL;
    slot->capacity = 0;
}

/* Frees the memory of idle slots until `more` bytes fit. True if they fit, or if no slot is busy:
 * one image may exceed the limit. Requires the lock. */
static bool reserve(struct spooling *s, const struct slot *keep, uint64_t more) {
    for (struct slot *i = s->idle; i && s->held + more > MAX_HELD_BYTES; i = i->next)
        if (i != keep)
            drop_memory(s, i);
    return s->held + more <= MAX_HELD_BYTES || s->busy == 0;
}

/* An idle slot with memory for an image of `bytes` bytes; waits for one. NULL after a failure. */
static struct slot *take_slot(struct spooling *s, size_t bytes) {
    struct slot *slot = NULL;
    bool out_of_memory = false;
    pthread_mutex_lock(&s->lock);
    while (s->status == CHEX_OK) {
        struct slot *top = s->idle;
        size_t more = top && bytes > top->capacity ? bytes - top->capacity : 0;
        if (top && reserve(s, top, more)) {
            slot = top;
            break;
        }
        pthread_cond_wait(&s->freed, &s->lock);
    }
    if (slot) {
        s->idle = slot->next;
        s->busy++;
        if (bytes > slot->capacity) {
            drop_memory(s, slot);
            slot->data = malloc(bytes);
            slot->capacity = slot->data ? bytes : 0;
            s->held += slot->capacity;
            out_of_memory = !slot->data;
        }
        slot->bytes = bytes;
    }
    pthread_mutex_unlock(&s->lock);
    if (out_of_memory) {
        struct chex_error err = {0};
        chex_error_errno(&err, CHEX_E_RESOURCE, ENOMEM, "an image of %zu bytes", bytes);
        fail(s, err.status, &err);
    }
    return out_of_memory ? NULL : slot; /* release() frees the slot's memory after a failure */
}

static void give_back(struct spooling *s, struct slot *slot) {
    pthread_mutex_lock(&s->lock);
    slot->next = s->idle;
    s->idle = slot;
    s->busy--;
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

/* Appends a filled slot to the queue of the workers. */
static void enqueue(struct spooling *s, struct slot *slot) {
    pthread_mutex_lock(&s->lock);
    slot->next = NULL;
    slot->task->open_parts++;
    if (s->last)
        s->last->next = slot;
    else
        s->first = slot;
    s->last = slot;
    pthread_cond_signal(&s->filled);
    pthread_mutex_unlock(&s->lock);
}

/* The next filled slot; waits for one. NULL after a failure, or when all readers ended and the
 * queue is empty. */
static struct slot *take_image(struct spooling *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->first && s->readers_left && s->status == CHEX_OK)
        pthread_cond_wait(&s->filled, &s->lock);
    struct slot *slot = s->status == CHEX_OK ? s->first : NULL;
    if (slot && !(s->first = slot->next))
        s->last = NULL;
    pthread_mutex_unlock(&s->lock);
    return slot;
}

/* One part of the archive is done. The thread that ends the last part finishes the spool. */
static void end_part(struct spooling *s, struct task *t) {
    struct chex_error err = {0};
    pthread_mutex_lock(&s->lock);
    bool last = --t->open_parts == 0 && s->status == CHEX_OK;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    struct chex_spool_writer *writer = t->writer;
    t->writer = NULL;
    enum chex_status st = chex_spool_finish(writer, t->fault[0] ? t->fault : NULL, &err);
    if (st != CHEX_OK)
        fail(s, st, &err);
}

/* ---- readers ---- */

/* True if the member's file name is wanted, with or without its extension (see chex_folder_find).
 */
static bool is_wanted(const struct chex_create *c, const char *member) {
    char stem[CHEX_ARCHIVE_NAME_BYTES + 1];
    const char *name = name_of(member), *at = stem;
    if (bsearch(&name, c->wanted, c->wanted_count, sizeof *c->wanted, by_text))
        return true;
    size_t n = strcspn(name, ".");
    memcpy(stem, name, n);
    stem[n] = '\0';
    return bsearch(&at, c->wanted, c->wanted_count, sizeof *c->wanted, by_text) != NULL;
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
    return chex_error_set(err, CHEX_E_DATA,
                          "at least %zu images cannot be used (--max-bad is %zu), such as %s", bad,
                          most, reason);
}

/* Reads one member into a slot. A member that is empty or too large is a bad image at once.
 * *fault_out: the failure is a fault of the archive. */
static enum chex_status read_member(struct spooling *s, struct task *t,
                                    struct chex_archive *archive,
                                    const struct chex_archive_member *m, bool *fault_out,
                                    struct chex_error *err) {
    char path[CHEX_ERROR_TEXT_BYTES];
    struct chex_error why = {0};
    size_t row;
    if (m->bytes == 0 || m->bytes > CHEX_IMAGE_MAX_FILE_BYTES) {
        CHEX_TRY(chex_spool_add(t->writer, m->name, m->bytes, &row, err));
        snprintf(path, sizeof path, "%s/%s", t->file->path, m->name);
        chex_image_check_bytes(path, m->bytes, &why);
        return reject(s, t, row, why.text, err);
    }
    struct slot *slot = take_slot(s, (size_t)m->bytes);
    if (!slot)
        return CHEX_E_FAIL; /* the failure is recorded in s */
    slot->task = t;
    snprintf(slot->path, sizeof slot->path, "%s/%s", t->file->path, m->name);
    enum chex_status st = chex_archive_read(archive, slot->data, err);
    *fault_out = st == CHEX_E_DATA;
    if (st == CHEX_OK)
        st = chex_spool_add(t->writer, m->name, m->bytes, &slot->row, err);
    if (st == CHEX_OK)
        enqueue(s, slot);
    else
        give_back(s, slot);
    return st;
}

static bool failed(struct spooling *s) {
    pthread_mutex_lock(&s->lock);
    bool yes = s->status != CHEX_OK;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

static enum chex_status read_members(struct spooling *s, struct task *t, bool *fault_out,
                                     struct chex_error *err) {
    struct chex_archive *archive = NULL;
    enum chex_status st = chex_archive_open(t->file->path, &archive, err);
    *fault_out = st == CHEX_E_DATA;
    for (bool more = true; more && st == CHEX_OK && !failed(s);) {
        struct chex_archive_member m;
        st = chex_archive_next(archive, &m, &more, err);
        *fault_out = st == CHEX_E_DATA;
        if (st == CHEX_OK && more && is_wanted(s->c, m.name))
            st = read_member(s, t, archive, &m, fault_out, err);
    }
    chex_archive_close(archive);
    return st;
}

static void read_archive(struct spooling *s, struct task *t) {
    struct chex_error err = {0};
    bool fault = false;
    enum chex_status st = chex_spool_create(t->path, (size_t)row_bytes(s->c), &t->writer, &err);
    if (st == CHEX_OK)
        st = read_members(s, t, &fault, &err);
    if (fault) {
        snprintf(t->fault, sizeof t->fault, "%s", err.text);
        st = CHEX_OK;
    }
    if (st != CHEX_OK)
        fail(s, st, &err);
    end_part(s, t);
}

static void read_archives(struct spooling *s) {
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct task *t =
            s->next_task < s->task_count && s->status == CHEX_OK ? &s->tasks[s->next_task++] : NULL;
        if (t)
            t->open_parts = 1;
        else if (--s->readers_left == 0)
            pthread_cond_broadcast(&s->filled);
        pthread_mutex_unlock(&s->lock);
        if (!t)
            return;
        read_archive(s, t);
    }
}

/* ---- workers ---- */

static void spool_image(struct spooling *s, struct slot *slot, struct chex_convert_worker *w) {
    struct task *t = slot->task;
    struct chex_error err = {0};
    uint64_t source[2];
    enum chex_status st = chex_convert_image(w, slot->data, slot->bytes, slot->path, false, &err);
    if (st == CHEX_E_DATA) {
        char reason[CHEX_ERROR_TEXT_BYTES];
        memcpy(reason, err.text, sizeof reason);
        st = reject(s, t, slot->row, reason, &err);
    } else if (st == CHEX_OK) {
        chex_hash128(slot->data, slot->bytes, source);
        st = chex_spool_put(t->writer, slot->row, w->row, source, &err);
    }
    if (st != CHEX_OK)
        fail(s, st, &err);
    give_back(s, slot);
    end_part(s, t);
    pthread_mutex_lock(&s->lock);
    size_t done = ++s->done;
    pthread_mutex_unlock(&s->lock);
    /* `done` can exceed `expected` if a name occurs more than once. */
    chex_progress_set(s->progress, s->expected && done > s->expected ? s->expected : done, NULL);
}

/* Thread body. Each pool item is one thread: the first `readers` items read, the others decode. */
static void run_thread(void *arg, size_t item, int thread) {
    struct spooling *s = arg;
    (void)thread;
    if (item < (size_t)s->readers) {
        read_archives(s);
        return;
    }
    struct chex_convert_worker *w = &s->workers[item - (size_t)s->readers];
    for (struct slot *slot; (slot = take_image(s));)
        spool_image(s, slot, w);
}

/* ---- the pass ---- */

/* *whole_out: an interrupted run left this spool and all its checksums are right. Removes a damaged
 * spool with a warning. */
static enum chex_status check_spool(const struct chex_create *c, const char *path, bool *whole_out,
                                    struct chex_error *err) {
    struct chex_spool *spool = NULL;
    struct chex_error why = {0};
    *whole_out = false;
    if (!chex_fs_exists(path))
        return CHEX_OK;
    uint8_t *pixels = malloc((size_t)row_bytes(c));
    if (!pixels)
        return no_memory(err);
    enum chex_status st = chex_spool_open(path, (size_t)row_bytes(c), &spool, &why);
    for (size_t i = 0; st == CHEX_OK && i < chex_spool_count(spool); i++)
        if (!chex_spool_get(spool, i)->reason)
            st = chex_spool_read(spool, i, pixels, &why);
    chex_spool_close(spool);
    free(pixels);
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
        char *path = spool_path(c, c->packed[i]);
        if (!path)
            return no_memory(err);
        bool whole = false;
        enum chex_status st = check_spool(c, path, &whole, err);
        if (whole)
            chex_info("%s: its images were resized by the interrupted run", c->packed[i]->path);
        if (whole || st != CHEX_OK)
            free(path);
        CHEX_TRY(st);
        if (whole)
            continue;
        s->tasks[s->task_count++] = (struct task){.file = c->packed[i], .path = path};
    }
    return CHEX_OK;
}

static enum chex_status make_threads(struct spooling *s, struct chex_error *err) {
    int workers = s->c->o->workers;
    size_t readers = (size_t)(workers + WORKERS_PER_READER - 1) / WORKERS_PER_READER;
    readers = readers < s->task_count ? readers : s->task_count;
    s->readers = (int)readers;
    s->readers_left = readers;
    s->slot_count = (size_t)workers * SLOTS_PER_WORKER + readers;
    s->slots = chex_alloc_zeroed(s->slot_count, sizeof *s->slots);
    if (!s->slots)
        return no_memory(err);
    for (size_t i = 0; i < s->slot_count; i++) {
        s->slots[i].next = s->idle;
        s->idle = &s->slots[i];
    }
    return chex_convert_workers(workers, s->c->o->size, &s->workers, err);
}

static void release(struct spooling *s) {
    chex_convert_workers_free(s->workers, s->c->o->workers);
    for (size_t i = 0; i < s->task_count; i++) {
        chex_spool_abandon(s->tasks[i].writer);
        free(s->tasks[i].path);
    }
    for (size_t i = 0; s->slots && i < s->slot_count; i++)
        free(s->slots[i].data);
    free(s->slots);
    free(s->tasks);
    pthread_cond_destroy(&s->freed);
    pthread_cond_destroy(&s->filled);
    pthread_mutex_destroy(&s->lock);
}

static enum chex_status run(struct spooling *s, struct chex_error *err) {
    struct chex_pool *pool = NULL;
    int threads = s->readers + s->c->o->workers;
    CHEX_TRY(chex_pool_create(threads, &pool, err));
    /* With several ranks, no rank knows how many of the wanted images are in its archives. */
    s->expected = s->c->group->size == 1 ? s->c->wanted_count : 0;
    s->progress =
        chex_progress_create("reading archives", "img", s->expected, s->c->group->rank == 0);
    chex_pool_run(pool, (size_t)threads, run_thread, s);
    chex_progress_destroy(s->progress, s->status == CHEX_OK);
    chex_pool_destroy(pool);
    return s->status == CHEX_OK ? CHEX_OK : chex_error_set(err, s->status, "%s", s->err.text);
}

enum chex_status chex_create_spool(struct chex_create *c, struct chex_error *err) {
    struct spooling s = {.c = c};
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.freed, NULL);
    pthread_cond_init(&s.filled, NULL);
    enum chex_status st = make_tasks(&s, err);
    if (st == CHEX_OK && s.task_count)
        st = make_threads(&s, err);
    if (st == CHEX_OK && s.task_count)
        st = run(&s, err);
    release(&s);
    return st;
}

static enum chex_status take_spool(struct chex_create *c, const struct chex_folder_file *archive,
                                   struct chex_error *err) {
    struct chex_spool *spool = NULL;
    char *path = spool_path(c, archive);
    if (!path)
        return no_memory(err);
    enum chex_status st = chex_spool_open(path, (size_t)row_bytes(c), &spool, err);
    free(path);
    if (st == CHEX_OK)
        st = chex_folder_add_spool(c->folder, spool, err);
    for (size_t i = 0; st == CHEX_OK && i < chex_spool_count(spool); i++) {
        const struct chex_spool_row *row = chex_spool_get(spool, i);
        struct chex_folder_file image = {.bytes = row->bytes,
                                         .modified_ns = archive->modified_ns,
                                         .spool = spool,
                                         .spool_row = i};
        st = chex_folder_add(c->folder, &image, archive->path, row->name, err);
    }
    if (st == CHEX_OK && chex_spool_fault(spool))
        st = record_fault(c, CHEX_E_DATA, chex_spool_fault(spool), err);
    return st;
}

enum chex_status chex_create_take_spools(struct chex_create *c, struct chex_error *err) {
    for (size_t i = 0; i < c->packed_count; i++)
        CHEX_TRY(take_spool(c, c->packed[i], err));
    chex_folder_sort(c->folder);
    return CHEX_OK;
}

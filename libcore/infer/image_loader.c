/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker threads and the ring of image_loader.h.
 *
 * Two locks. `take` gives out positions in order: its holder waits until the slot of its position
 * is free, and reads the member if the image is in a compressed archive. `lock` guards the state of
 * the slots. A worker that holds `take` may take `lock`, never the reverse.
 */
#include "infer/image_loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/thread.h"
#include "image/convert.h"
#include "infer/image_flags.h"
#include "ingest/archive.h"
#include "input/augment.h"

struct slot {
    struct chex_loaded_image image;
    float *pixels;
    bool done;
};

/* What one worker has for itself. */
struct worker {
    struct chex_image_loader *loader;
    struct chex_convert_worker *convert;
    void *scratch;   /* of chex_augment_apply */
    uint8_t *member; /* bytes of an archive member */
    size_t member_capacity;
    pthread_t thread;
    bool runs;
};

struct chex_image_loader {
    struct chex_image_loader_config config;
    struct chex_crop crop;
    struct slot *slots;
    struct worker *workers;
    struct chex_convert_worker *converters;

    pthread_mutex_t take; /* guards the members up to `lock` */
    size_t next;          /* position that the next worker gets */
    struct chex_archive *archive;
    int archive_index; /* that is open */
    size_t archive_at; /* members of it that were already read or skipped */

    pthread_mutex_t lock; /* guards the rest, and `done` of the slots */
    pthread_cond_t filled, freed;
    size_t given, released; /* positions given to the consumer, and released by it */
    bool stop;
    enum chex_status status;
    struct chex_error err;
};

static void fail(struct chex_image_loader *s, enum chex_status status,
                 const struct chex_error *err) {
    pthread_mutex_lock(&s->lock);
    if (s->status == CHEX_OK) {
        s->status = status;
        s->err = *err;
    }
    s->stop = true;
    pthread_cond_broadcast(&s->filled);
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

/* ---- taking a position ---- */

/* Opens the archive and goes to a member. Under `take`. */
static enum chex_status go_to_member(struct chex_image_loader *s, int index, size_t member,
                                     struct chex_archive_member *out, struct chex_error *err) {
    const struct chex_listed_archive *a = &s->config.list->archives[index];
    if (!s->archive || s->archive_index != index) {
        chex_archive_close(s->archive);
        s->archive = NULL;
        CHEX_TRY(chex_archive_open(a->path, &s->archive, err));
        s->archive_index = index;
        s->archive_at = 0;
    }
    for (bool more = true; s->archive_at <= member; s->archive_at++) {
        CHEX_TRY(chex_archive_next(s->archive, out, &more, err));
        if (!more)
            return chex_error_set(err, CHEX_E_ENV, "%s: it changed while it was read", a->path);
    }
    return CHEX_OK;
}

/* Reads an archive member into the worker's buffer. Under `take`. */
static enum chex_status read_member(struct worker *w, const struct chex_listed_image *image,
                                    size_t index, struct chex_error *err) {
    struct chex_image_loader *s = w->loader;
    struct chex_archive_member member;
    const size_t bytes = (size_t)image->file.bytes;
    CHEX_TRY(chex_image_check_bytes(image->file.path, image->file.bytes, err));
    CHEX_TRY(go_to_member(s, image->archive, index - s->config.list->archives[image->archive].first,
                          &member, err));
    if (member.bytes != image->file.bytes)
        return chex_error_set(err, CHEX_E_ENV, "%s: it changed while it was read",
                              image->file.path);
    if (bytes > w->member_capacity) {
        free(w->member);
        w->member_capacity = 0;
        if (!(w->member = malloc(bytes)))
            return chex_error_memory(err, "%s", image->file.path);
        w->member_capacity = bytes;
    }
    return chex_archive_read(s->archive, w->member, err);
}

/* Waits for the slot of a position. False: the loader stops. Under `take`. */
static bool wait_for_slot(struct chex_image_loader *s, size_t position) {
    pthread_mutex_lock(&s->lock);
    while (!s->stop && position - s->released >= s->config.slots)
        pthread_cond_wait(&s->freed, &s->lock);
    const bool good = !s->stop;
    pthread_mutex_unlock(&s->lock);
    return good;
}

/* The next position of this worker. False: there is none, or the loader stops. *st_out: of the
 * reading of an archive member. */
static bool take(struct worker *w, size_t *position_out, enum chex_status *st_out,
                 struct chex_error *err) {
    struct chex_image_loader *s = w->loader;
    const struct chex_image_loader_config *c = &s->config;
    pthread_mutex_lock(&s->take);
    const size_t position = s->next;
    const bool good = position < c->count && wait_for_slot(s, position);
    *st_out = CHEX_OK;
    if (good) {
        const struct chex_listed_image *image = &c->list->images[c->order[position]];
        s->next++;
        if (image->archive >= 0 && !image->fault)
            *st_out = read_member(w, image, c->order[position], err);
    }
    pthread_mutex_unlock(&s->take);
    *position_out = position;
    return good;
}

/* ---- one image ---- */

/* Resizes the decoded image so that its longer side has `px` at most. */
static enum chex_status shrink(struct worker *w, int px, struct chex_image *out,
                               struct chex_error *err) {
    const struct chex_image *in = &w->convert->image;
    const int longer = in->width > in->height ? in->width : in->height;
    const double by = longer > px ? (double)px / longer : 1;
    const int width = (int)(in->width * by + 0.5), height = (int)(in->height * by + 0.5);
    CHEX_TRY(chex_image_reserve(out, width > 0 ? width : 1, height > 0 ? height : 1, err));
    return chex_resize(w->convert->resizer, in->pixels, in->width, in->height, out->pixels,
                       out->width, out->height, err);
}

/* Writes the thumbnail INDEX.png. */
static enum chex_status write_thumb(struct worker *w, size_t index, struct chex_error *err) {
    struct chex_image thumb = {0};
    CHEX_AUTO_FREE char *path = chex_fs_format("%s/%zu.png", w->loader->config.thumb_dir, index);
    enum chex_status st =
        path ? shrink(w, CHEX_LOADER_THUMB_PX, &thumb, err) : chex_error_memory(err, "a thumbnail");
    if (st == CHEX_OK)
        st = chex_image_write_png(path, thumb.pixels, thumb.width, thumb.height, err);
    chex_image_release(&thumb);
    return st;
}

static enum chex_status read_file(struct worker *w, const struct chex_listed_image *image,
                                  const uint8_t **data_out, size_t *bytes_out,
                                  struct chex_error *err) {
    if (image->fault)
        return chex_error_set(err, CHEX_E_DATA, "%s", image->fault);
    if (image->archive < 0)
        return chex_folder_read(&image->file, w->convert->reader, data_out, bytes_out, err);
    *data_out = w->member;
    *bytes_out = (size_t)image->file.bytes;
    return CHEX_OK;
}

/* Fills a slot. CHEX_E_DATA: the image cannot be used. */
static enum chex_status fill(struct worker *w, struct slot *slot, struct chex_error *err) {
    struct chex_image_loader *s = w->loader;
    const struct chex_image_loader_config *c = &s->config;
    struct chex_loaded_image *out = &slot->image;
    const struct chex_listed_image *image = &c->list->images[out->index];
    const uint8_t *data = NULL;
    size_t bytes = 0;
    CHEX_TRY(read_file(w, image, &data, &bytes, err));
    CHEX_TRY(chex_convert_image(w->convert, data, bytes, image->file.path, false, err));
    chex_augment_apply(w->convert->row, c->stored_px, &s->crop, c->image_px, false, slot->pixels,
                       w->scratch);
    out->flags = chex_image_flags_of_pixels(w->convert->row, c->stored_px) |
                 chex_image_flags_of_file(&w->convert->image, c->stored_px);
    out->about = w->convert->image.about;
    if (out->index < c->pictures)
        CHEX_TRY(shrink(w, CHEX_LOADER_PICTURE_PX, &out->picture, err));
    return out->index < c->thumbs ? write_thumb(w, out->index, err) : CHEX_OK;
}

static void give(struct chex_image_loader *s, struct slot *slot) {
    pthread_mutex_lock(&s->lock);
    slot->done = true;
    pthread_cond_broadcast(&s->filled);
    pthread_mutex_unlock(&s->lock);
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct chex_image_loader *s = w->loader;
    const struct chex_image_loader_config *c = &s->config;
    struct chex_error err = {0};
    enum chex_status st;
    size_t position;
    while (take(w, &position, &st, &err)) {
        struct slot *slot = &s->slots[position % c->slots];
        const size_t ahead = position + 2 * (size_t)c->workers;
        slot->image.index = c->order[position];
        if (ahead < c->count && c->list->images[c->order[ahead]].archive < 0)
            chex_folder_prefetch(&c->list->images[c->order[ahead]].file);
        if (st == CHEX_OK)
            st = fill(w, slot, &err);
        if (st == CHEX_E_DATA && !(slot->image.reason = strdup(err.text)))
            st = chex_error_memory(&err, "the list of rejected images");
        if (st != CHEX_OK && st != CHEX_E_DATA) {
            fail(s, st, &err);
            break;
        }
        give(s, slot);
    }
    return NULL;
}

/* ---- the loader ---- */

static enum chex_status start_workers(struct chex_image_loader *s, struct chex_error *err) {
    const struct chex_image_loader_config *c = &s->config;
    CHEX_TRY(chex_convert_workers(c->workers, c->stored_px, &s->converters, err));
    for (int i = 0; i < c->workers; i++) {
        struct worker *w = &s->workers[i];
        w->loader = s;
        w->convert = &s->converters[i];
        w->scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(c->stored_px, c->image_px));
        CHEX_ALLOCATED(w->scratch, err, "a worker's memory");
        const int why = chex_thread_start(&w->thread, work, w);
        if (why)
            return chex_error_errno(err, CHEX_E_RESOURCE, why, "cannot start a worker");
        w->runs = true;
    }
    return CHEX_OK;
}

static enum chex_status make_slots(struct chex_image_loader *s, struct chex_error *err) {
    const size_t px = (size_t)s->config.image_px;
    for (size_t i = 0; i < s->config.slots; i++) {
        struct slot *slot = &s->slots[i];
        if (!(slot->pixels = chex_alloc_aligned(px * px, sizeof *slot->pixels)))
            return chex_error_memory(err, "%zu images", s->config.slots);
        slot->image.pixels = slot->pixels;
    }
    return CHEX_OK;
}

enum chex_status chex_image_loader_create(const struct chex_image_loader_config *config,
                                          struct chex_image_loader **loader_out,
                                          struct chex_error *err) {
    struct chex_image_loader *s = chex_alloc_zeroed(1, sizeof *s);
    CHEX_ALLOCATED(s, err, "the images");
    s->config = *config;
    s->crop = chex_augment_centre(config->stored_px, config->image_px);
    pthread_mutex_init(&s->take, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->filled, NULL);
    pthread_cond_init(&s->freed, NULL);
    s->slots = chex_alloc_zeroed(config->slots, sizeof *s->slots);
    s->workers = chex_alloc_zeroed((size_t)config->workers, sizeof *s->workers);
    enum chex_status st =
        s->slots && s->workers ? make_slots(s, err) : chex_error_memory(err, "the images");
    if (st == CHEX_OK)
        st = start_workers(s, err);
    if (st != CHEX_OK) {
        chex_image_loader_destroy(s);
        return st;
    }
    *loader_out = s;
    return CHEX_OK;
}

static void stop_workers(struct chex_image_loader *s) {
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; s->workers && i < s->config.workers; i++) {
        if (s->workers[i].runs)
            pthread_join(s->workers[i].thread, NULL);
        free(s->workers[i].scratch);
        free(s->workers[i].member);
    }
}

static void clear(struct chex_loaded_image *image) {
    free(image->reason);
    image->reason = NULL;
    image->flags = 0;
}

void chex_image_loader_destroy(struct chex_image_loader *s) {
    if (!s)
        return;
    stop_workers(s);
    for (size_t i = 0; s->slots && i < s->config.slots; i++) {
        clear(&s->slots[i].image);
        chex_image_release(&s->slots[i].image.picture);
        free(s->slots[i].pixels);
    }
    chex_convert_workers_free(s->converters, s->config.workers);
    chex_archive_close(s->archive);
    pthread_cond_destroy(&s->filled);
    pthread_cond_destroy(&s->freed);
    pthread_mutex_destroy(&s->take);
    pthread_mutex_destroy(&s->lock);
    free(s->slots);
    free(s->workers);
    free(s);
}

enum chex_status chex_image_loader_next(struct chex_image_loader *s,
                                        const struct chex_loaded_image **image_out,
                                        struct chex_error *err) {
    pthread_mutex_lock(&s->lock);
    struct slot *slot = &s->slots[s->given % s->config.slots];
    while (s->status == CHEX_OK && !slot->done)
        pthread_cond_wait(&s->filled, &s->lock);
    const enum chex_status st = s->status;
    if (st == CHEX_OK)
        s->given++;
    else if (err)
        *err = s->err;
    pthread_mutex_unlock(&s->lock);
    if (st == CHEX_OK)
        *image_out = &slot->image;
    return st;
}

void chex_image_loader_release(struct chex_image_loader *s, size_t count) {
    pthread_mutex_lock(&s->lock);
    for (; count > 0; count--) {
        struct slot *slot = &s->slots[s->released++ % s->config.slots];
        clear(&slot->image);
        slot->done = false;
    }
    pthread_cond_broadcast(&s->freed);
    pthread_mutex_unlock(&s->lock);
}

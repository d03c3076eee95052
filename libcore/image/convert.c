/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the workers and converts one image (convert.h).
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "image/convert.h"

static enum chex_status fill_worker(struct chex_convert_worker *w, int size,
                                    struct chex_error *err) {
    w->size = size;
    CHEX_TRY(chex_image_reader_create(&w->reader, err));
    chex_image_reader_set_target(w->reader, size);
    CHEX_TRY(chex_resizer_create(&w->resizer, err));
    w->row = chex_alloc_aligned((size_t)size, (size_t)size);
    return w->row ? CHEX_OK : chex_error_memory(err, "a worker's memory");
}

enum chex_status chex_convert_workers(int count, int size, struct chex_convert_worker **workers_out,
                                      struct chex_error *err) {
    struct chex_convert_worker *workers = chex_alloc_zeroed((size_t)count, sizeof *workers);
    if (!workers)
        return chex_error_memory(err, "%d workers", count);
    enum chex_status st = CHEX_OK;
    for (int i = 0; st == CHEX_OK && i < count; i++)
        st = fill_worker(&workers[i], size, err);
    if (st != CHEX_OK) {
        chex_convert_workers_free(workers, count);
        return st;
    }
    *workers_out = workers;
    return CHEX_OK;
}

void chex_convert_workers_free(struct chex_convert_worker *workers, int count) {
    for (int i = 0; workers && i < count; i++) {
        chex_image_reader_destroy(workers[i].reader);
        chex_resizer_destroy(workers[i].resizer);
        chex_image_release(&workers[i].image);
        free(workers[i].row);
    }
    free(workers);
}

enum chex_status chex_convert_image(struct chex_convert_worker *w, const uint8_t *data,
                                    size_t bytes, const char *name, bool check_only,
                                    struct chex_error *err) {
    CHEX_TRY(chex_image_decode(w->reader, data, bytes, name, &w->image, err));
    if (check_only)
        return CHEX_OK;
    return chex_resize(w->resizer, w->image.pixels, w->image.width, w->image.height, w->row,
                       w->size, w->size, err);
}

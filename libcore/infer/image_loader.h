/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns image files into the network's input on worker threads, in a fixed order.
 *
 * Workers take the positions of `order` one after the other, decode and resize as chex-shard does
 * (image/convert.h), and cut the centre crop as the evaluation does. Results wait in a ring of
 * slots; the consumer gets them in order. So decoding overlaps with inference, and the result does
 * not depend on the number of workers.
 *
 * Members of a compressed archive must be neighbours in `order`, in the order of the archive: one
 * worker at a time reads it forward.
 */
#ifndef CHEX_INFER_IMAGE_LOADER_H
#define CHEX_INFER_IMAGE_LOADER_H

#include <stddef.h>

#include "image/image.h"
#include "ingest/image_list.h"

/* Longer side of the pictures for heat maps, in pixels. */
enum { CHEX_LOADER_PICTURE_PX = 512, CHEX_LOADER_THUMB_PX = 128 };

struct chex_image_loader_config {
    const struct chex_image_list *list;
    const size_t *order; /* (count) indexes of images in the list */
    size_t count;
    int stored_px, image_px;
    int workers;
    size_t slots;          /* results in memory; more than the consumer holds at once */
    size_t pictures;       /* images below this index get a picture */
    size_t thumbs;         /* images below this index get a thumbnail */
    const char *thumb_dir; /* thumbnails are written here as INDEX.png */
};

struct chex_loaded_image {
    size_t index;
    char *reason;        /* why the image cannot be used; NULL: the members below are set */
    const float *pixels; /* (image_px, image_px) as in a batch */
    unsigned flags;      /* of image_flags.h, without the distances */
    struct chex_image_about about;
    struct chex_image
        picture; /* with the sides of the file in proportion; empty if not asked for */
};

struct chex_image_loader;

enum chex_status chex_image_loader_create(const struct chex_image_loader_config *config,
                                          struct chex_image_loader **loader_out,
                                          struct chex_error *err);
/* Stops the workers. NULL allowed. */
void chex_image_loader_destroy(struct chex_image_loader *loader);

/* Waits for the next image in order. It is valid until it is released. Call it `count` times at
 * most. An image that cannot be used is no error: `reason` says why. Errors are those of the
 * machine: out of memory, no module for DICOM, an archive that changed. */
enum chex_status chex_image_loader_next(struct chex_image_loader *loader,
                                        const struct chex_loaded_image **image_out,
                                        struct chex_error *err);

/* Gives back the `count` oldest images that are not released yet. */
void chex_image_loader_release(struct chex_image_loader *loader, size_t count);

#endif

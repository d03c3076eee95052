/* SPDX-License-Identifier: Apache-2.0
 *
 * The image reader of image.h: the table of formats, the size limits, file input and the memory
 * that one thread reuses for all its images.
 *
 * To add a format, write one struct chex_image_format (image_format.h) in a file of its own and add
 * one line to the table below.
 */
#include "image/image.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "image/image_format.h"

static const struct chex_image_format *const formats[] = {
    &chex_image_format_png,
    &chex_image_format_jpeg,
    &chex_image_format_dicom,
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* Deflate produces at most a little less than 1032 bytes from one byte. */
enum { DEFLATE_MAX_RATIO = 1032 };

struct chex_image_reader {
    uint8_t *file;
    size_t file_capacity;
    int target_px;
    struct chex_png_state *png;
};

void chex_image_release(struct chex_image *image) {
    free(image->pixels);
    *image = (struct chex_image){0};
}

enum chex_status chex_image_reserve(struct chex_image *image, int width, int height,
                                    struct chex_error *err) {
    if (width < 1 || height < 1)
        return chex_error_data(err, "%d x %d pixels, expected at least 1 x 1", width, height);
    CHEX_TRY(chex_image_check_size("image", (uint64_t)width, (uint64_t)height, 8, UINT64_MAX, err));
    size_t bytes = (size_t)width * (size_t)height;
    if (bytes > image->capacity) {
        uint8_t *pixels = malloc(bytes);
        if (!pixels)
            return chex_error_memory(err, "an image of %d x %d pixels", width, height);
        free(image->pixels);
        image->pixels = pixels;
        image->capacity = bytes;
    }
    image->width = width;
    image->height = height;
    return CHEX_OK;
}

enum chex_status chex_image_reader_create(struct chex_image_reader **reader_out,
                                          struct chex_error *err) {
    struct chex_image_reader *reader = calloc(1, sizeof *reader);
    if (!reader)
        return chex_error_memory(err, "an image reader");
    *reader_out = reader;
    return CHEX_OK;
}

void chex_image_reader_destroy(struct chex_image_reader *reader) {
    if (!reader)
        return;
    chex_png_state_destroy(reader->png);
    free(reader->file);
    free(reader);
}

void chex_image_reader_set_target(struct chex_image_reader *reader, int px) {
    reader->target_px = px > 0 ? px : 0;
}

int chex_image_reader_target(const struct chex_image_reader *reader) { return reader->target_px; }

struct chex_png_state **chex_image_reader_png(struct chex_image_reader *reader) {
    return &reader->png;
}

enum chex_status chex_image_check_size(const char *name, uint64_t width, uint64_t height,
                                       unsigned bits, uint64_t file_bytes, struct chex_error *err) {
    if (width > CHEX_IMAGE_MAX_SIDE_PX || height > CHEX_IMAGE_MAX_SIDE_PX)
        return chex_error_data(err, "%s: %llu x %llu pixels, the limit is %d a side", name,
                               (unsigned long long)width, (unsigned long long)height,
                               CHEX_IMAGE_MAX_SIDE_PX);
    if (width * height > CHEX_IMAGE_MAX_PIXELS)
        return chex_error_data(err, "%s: %llu x %llu pixels, the limit is %d in all", name,
                               (unsigned long long)width, (unsigned long long)height,
                               CHEX_IMAGE_MAX_PIXELS);
    if (width * height * bits / 8 / DEFLATE_MAX_RATIO > file_bytes)
        return chex_error_data(err, "%s: says %llu x %llu pixels, which its %llu bytes cannot hold",
                               name, (unsigned long long)width, (unsigned long long)height,
                               (unsigned long long)file_bytes);
    return CHEX_OK;
}

enum chex_status chex_image_check_bytes(const char *name, uint64_t bytes, struct chex_error *err) {
    if (bytes == 0)
        return chex_error_data(err, "%s: empty file", name);
    if (bytes > CHEX_IMAGE_MAX_FILE_BYTES)
        return chex_error_data(err, "%s: %llu bytes, the limit is %d", name,
                               (unsigned long long)bytes, CHEX_IMAGE_MAX_FILE_BYTES);
    return CHEX_OK;
}

enum chex_status chex_image_capacity(struct chex_image_reader *reader, const char *name,
                                     uint64_t bytes, uint8_t **buffer_out, struct chex_error *err) {
    CHEX_TRY(chex_image_check_bytes(name, bytes, err));
    if (bytes > reader->file_capacity) {
        uint8_t *file = malloc((size_t)bytes);
        if (!file)
            return chex_error_memory(err, "%s", name);
        free(reader->file);
        reader->file = file;
        reader->file_capacity = (size_t)bytes;
    }
    *buffer_out = reader->file;
    return CHEX_OK;
}

enum chex_status chex_image_read(struct chex_image_reader *reader, const char *path,
                                 const uint8_t **data_out, size_t *size_out,
                                 struct chex_error *err) {
    CHEX_AUTO(chex_fs_close_at) int fd = -1;
    uint8_t *buffer = NULL;
    uint64_t bytes = 0;
    CHEX_TRY(chex_fs_open(path, &fd, &bytes, err));
    CHEX_TRY(chex_image_capacity(reader, path, bytes, &buffer, err));
    CHEX_TRY(chex_fs_read_all(fd, path, buffer, (size_t)bytes, 0, err));
    *data_out = buffer;
    *size_out = (size_t)bytes;
    return CHEX_OK;
}

static const struct chex_image_format *find_format(const void *data, size_t size) {
    for (int i = 0; i < FORMATS; i++)
        if (formats[i]->match(data, size))
            return formats[i];
    return NULL;
}

const char *chex_image_format(const void *data, size_t size) {
    const struct chex_image_format *format = find_format(data, size);
    return format ? format->name : NULL;
}

static enum chex_status unknown_format(const char *name, const uint8_t *data, size_t size,
                                       struct chex_error *err) {
    char known[128] = "", first[3 * 8 + 1] = "";
    for (int i = 0, at = 0; i < FORMATS; i++)
        at += snprintf(known + at, sizeof known - (size_t)at, "%s%s", i ? ", " : "",
                       formats[i]->name);
    for (size_t i = 0; i < size && i < 8; i++)
        snprintf(first + 3 * i, sizeof first - 3 * i, " %02x", data[i]);
    return chex_error_data(err, "%s: not an image of a known kind (begins with%s), expected: %s",
                           name, size ? first : " nothing", known);
}

enum chex_status chex_image_decode(struct chex_image_reader *reader, const void *data, size_t size,
                                   const char *name, struct chex_image *image,
                                   struct chex_error *err) {
    const struct chex_image_format *format = find_format(data, size);
    image->file_width = image->file_height = 0;
    image->about = (struct chex_image_about){0};
    enum chex_status st = format ? format->decode(reader, data, size, name, image, err)
                                 : unknown_format(name, data, size, err);
    if (st != CHEX_OK)
        image->width = image->height = 0;
    if (st != CHEX_OK || !image->file_width) {
        image->file_width = image->width;
        image->file_height = image->height;
    }
    return st;
}

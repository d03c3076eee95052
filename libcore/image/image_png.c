/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes and writes PNG files with libpng, and chooses between libpng and the fast path.
 *
 * libpng reports an error with longjmp. To make this safe, all state that a decode changes is in
 * struct job, and setjmp is called only in run_guarded(). Warnings about the pixel data (IDAT) are
 * treated as errors.
 */
#include <errno.h>
#include <fcntl.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "image/grey.h"
#include "image/image_png_private.h"

struct job {
    const uint8_t *data;
    size_t size, at;
    const char *name;
    struct chex_image *image;
    struct chex_error *err;
    enum chex_status status; /* not CHEX_OK: a fault found here, not by libpng */
    png_structp png;
    png_infop info;
    uint8_t *rows;   /* one row from libpng, or all; 8 bits, 1 or 3 channels, or 16 bits, grey */
    uint32_t *count; /* of each value of 16 bits, then its pixel */
    int passes;
    char message[128]; /* libpng's error that ended the job */
    char damaged[128]; /* libpng's warning about damaged pixel data, or "" */
};

static bool match(const uint8_t *data, size_t size) {
    return size >= 8 && png_sig_cmp(data, 0, 8) == 0;
}

static void keep_message(char out[128], const char *message) {
    strncpy(out, message, 127);
    out[127] = '\0';
}

_Noreturn static void on_error(png_structp png, png_const_charp message) {
    struct job *job = png_get_error_ptr(png);
    keep_message(job->message, message);
    png_longjmp(png, 1);
}

/* libpng only warns about a wrong checksum after the last pixel and about extra pixels. Such files
 * are refused here. */
static void on_warning(png_structp png, png_const_charp message) {
    struct job *job = png_get_error_ptr(png);
    if (!strncmp(message, "IDAT", 4))
        keep_message(job->damaged, message);
}

static void on_read(png_structp png, png_bytep out, size_t bytes) {
    struct job *job = png_get_io_ptr(png);
    if (bytes > job->size - job->at)
        png_error(png, "the file ends early");
    memcpy(out, job->data + job->at, bytes);
    job->at += bytes;
}

/* Checks the sizes in the header before libpng allocates memory for them. */
static enum chex_status check_header(const struct job *job) {
    const uint8_t *d = job->data;
    if (job->size < 33 || memcmp(d + 12, "IHDR", 4) != 0)
        return CHEX_OK; // libpng reports this fault
    static const unsigned channels[7] = {1, 0, 3, 1, 2, 0, 4};
    unsigned bits = d[25] <= 6 ? d[24] * channels[d[25]] : 0;
    return chex_image_check_size(job->name, png_get_uint_32(d + 16), png_get_uint_32(d + 20), bits,
                                 job->size, job->err);
}

/* Grey of 16 bits stays so; colour becomes 8 bits. */
static void set_output_grey_or_rgb(struct job *job) {
    const uint16_t little_endian = 1;
    int colour = png_get_color_type(job->png, job->info);
    int bits = png_get_bit_depth(job->png, job->info);
    if (bits == 16 && colour & PNG_COLOR_MASK_COLOR)
        png_set_strip_16(job->png); // v >> 8
    else if (bits == 16 && *(const uint8_t *)&little_endian)
        png_set_swap(job->png);
    job->passes = png_set_interlace_handling(job->png);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(job->png);
    else if (colour == PNG_COLOR_TYPE_GRAY && bits < 8)
        png_set_expand_gray_1_2_4_to_8(job->png);
    png_set_strip_alpha(job->png);
    png_read_update_info(job->png, job->info);
}

/* Maps the values from the 0.1 % quantile to the 99.9 % quantile to 0..255, rounded half up. So few
 * pixels, such as those of a dead detector element, do not decide. If the quantiles are equal, the
 * least and the greatest value are taken. */
static void apply_window(struct job *job, const uint16_t *value) {
    enum { VALUES = 1 << 16 };
    const size_t pixels = (size_t)job->image->width * (size_t)job->image->height;
    uint32_t *of = job->count = png_malloc(job->png, VALUES * sizeof *of);
    size_t low, high, skip = pixels / 1000;
    memset(of, 0, VALUES * sizeof *of);
    for (size_t i = 0; i < pixels; i++)
        of[value[i]]++;
    for (;; skip = 0) {
        size_t below = 0, above = 0;
        for (low = 0; (below += of[low]) <= skip;)
            low++;
        for (high = VALUES - 1; (above += of[high]) <= skip;)
            high--;
        if (low < high || !skip)
            break;
    }
    for (size_t v = 0; v < VALUES; v++)
        of[v] = v <= low    ? 0
                : v >= high ? 255
                            : (uint32_t)((2 * 255 * (v - low) + high - low) / (2 * (high - low)));
    for (size_t i = 0; i < pixels; i++)
        job->image->pixels[i] = (uint8_t)of[value[i]];
}

static void put_row(struct job *job, int y, const uint8_t *row, int channels) {
    const size_t w = (size_t)job->image->width;
    uint8_t *out = job->image->pixels + (size_t)y * w;
    if (channels == 1) {
        memcpy(out, row, w);
        return;
    }
    chex_grey_note_row(row, 3, w, (size_t)y, &job->image->about);
    chex_grey_of_colour(row, 3, w, out);
}

/* Interlaced images, and grey of 16 bits, are read as a whole. */
static void read_pixels(struct job *job, int channels, bool deep) {
    const size_t bytes = png_get_rowbytes(job->png, job->info);
    const int h = job->image->height;
    const bool whole = deep || job->passes > 1;
    job->rows = png_malloc(job->png, whole ? bytes * (size_t)h : bytes);
    for (int pass = 0; pass < job->passes; pass++)
        for (int y = 0; y < h; y++) {
            uint8_t *row = job->rows + (whole ? bytes * (size_t)y : 0);
            png_read_row(job->png, row, NULL);
            if (!whole)
                put_row(job, y, row, channels);
        }
    if (deep)
        apply_window(job, (const uint16_t *)(const void *)job->rows);
    for (int y = 0; whole && !deep && y < h; y++)
        put_row(job, y, job->rows + bytes * (size_t)y, channels);
}

static void read_image(struct job *job) {
    png_structp png = job->png;
    png_set_read_fn(png, job, on_read);
    png_set_user_limits(png, CHEX_IMAGE_MAX_SIDE_PX, CHEX_IMAGE_MAX_SIDE_PX);
    png_set_crc_action(png, PNG_CRC_DEFAULT, PNG_CRC_ERROR_QUIT);
    /* Ancillary chunks (text, profiles): the CRC is checked, the content is dropped. */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(png, job->info);
    set_output_grey_or_rgb(job);

    int width = (int)png_get_image_width(png, job->info);
    int height = (int)png_get_image_height(png, job->info);
    int channels = png_get_channels(png, job->info);
    int bits = png_get_bit_depth(png, job->info);
    if ((channels != 1 && channels != 3) || (bits != 8 && (bits != 16 || channels != 1)))
        png_error(png, "a colour type that is neither grey nor RGB");
    job->status = chex_image_reserve(job->image, width, height, job->err);
    if (job->status != CHEX_OK)
        png_longjmp(png, 1);
    read_pixels(job, channels, bits == 16);
    png_read_end(png, NULL);
    if (job->damaged[0])
        png_error(png, job->damaged);
}

/* Calls run(job). False: a fault. */
static bool run_guarded(struct job *job, void (*run)(struct job *)) {
    if (setjmp(png_jmpbuf(job->png)))
        return false;
    run(job);
    return true;
}

static enum chex_status decode_by_libpng(struct job *job) {
    job->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, job, on_error, on_warning);
    job->info = job->png ? png_create_info_struct(job->png) : NULL;
    if (!job->info) {
        png_destroy_read_struct(&job->png, NULL, NULL);
        return chex_error_memory(job->err, "%s", job->name);
    }
    bool done = run_guarded(job, read_image);
    png_free(job->png, job->rows);
    png_free(job->png, job->count);
    png_destroy_read_struct(&job->png, &job->info, NULL);
    if (done)
        return CHEX_OK;
    if (job->status != CHEX_OK)
        return chex_error_prefix(job->err, job->status, "%s", job->name);
    if (!strncmp(job->message, "Out of memory", 13))
        return chex_error_set(job->err, CHEX_E_RESOURCE, "%s: libpng: %s", job->name, job->message);
    return chex_error_data(job->err, "%s: libpng: %s", job->name, job->message);
}

static enum chex_status decode(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               const char *name, struct chex_image *image, struct chex_error *err) {
    struct job job = {.data = data, .size = size, .name = name, .image = image, .err = err};
    struct chex_png_state *state = NULL;
    CHEX_TRY(check_header(&job));
    CHEX_TRY(chex_png_state(reader, &state, err));
    if (chex_png_path(state) == CHEX_PNG_LIBPNG)
        return decode_by_libpng(&job);
    const char *why = chex_png_fast(state, data, size, image);
    if (why && chex_png_path(state) == CHEX_PNG_FAST)
        return chex_error_data(err, "%s: not for the fast path: %s", name, why);
    return why ? decode_by_libpng(&job) : CHEX_OK;
}

const struct chex_image_format chex_image_format_png = {"png", match, decode};

struct sink {
    png_structp png;
    png_infop info;
    const uint8_t *pixels;
    int width, height, channels;
    const char *const *texts; /* alternating keys and values, NULL at the end; or NULL */
    FILE *to;                 /* a memory stream */
    char message[128];
};

_Noreturn static void on_write_error(png_structp png, png_const_charp message) {
    struct sink *sink = png_get_error_ptr(png);
    keep_message(sink->message, message);
    png_longjmp(png, 1);
}

static void on_write_warning(png_structp png, png_const_charp message) { (void)png, (void)message; }

static void on_write(png_structp png, png_bytep data, size_t bytes) {
    struct sink *sink = png_get_io_ptr(png);
    if (fwrite(data, 1, bytes, sink->to) != bytes)
        png_error(png, "Out of memory");
}

static void on_flush(png_structp png) { (void)png; }

/* ASCII texts use the chunk tEXt, which every reader supports. Other texts use iTXt (UTF-8). */
static void put_texts(struct sink *sink) {
    for (const char *const *t = sink->texts; t && t[0]; t += 2) {
        png_text text = {.key = (png_charp)(uintptr_t)t[0], .text = (png_charp)(uintptr_t)t[1]};
        bool ascii = true;
        for (const char *c = t[1]; *c; c++)
            ascii = ascii && (unsigned char)*c < 0x80;
        text.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
        png_set_text(sink->png, sink->info, &text, 1);
    }
}

static bool write_image(struct sink *sink) {
    if (setjmp(png_jmpbuf(sink->png)))
        return false;
    png_set_write_fn(sink->png, sink, on_write, on_flush);
    png_set_compression_buffer_size(sink->png, 64 << 10);
    /* On radiographs the default level takes twice the time and saves nothing: they are noise. */
    if (sink->channels > 1)
        png_set_compression_level(sink->png, 3);
    png_set_IHDR(sink->png, sink->info, (png_uint_32)sink->width, (png_uint_32)sink->height, 8,
                 sink->channels == 1   ? PNG_COLOR_TYPE_GRAY
                 : sink->channels == 3 ? PNG_COLOR_TYPE_RGB
                                       : PNG_COLOR_TYPE_RGBA,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    put_texts(sink);
    png_write_info(sink->png, sink->info);
    for (int y = 0; y < sink->height; y++)
        png_write_row(sink->png,
                      sink->pixels + (size_t)y * (size_t)sink->width * (size_t)sink->channels);
    png_write_end(sink->png, NULL);
    return true;
}

static enum chex_status encode(struct sink *sink, const char *name, uint8_t **png_out,
                               size_t *bytes_out, struct chex_error *err) {
    char *bytes = NULL;
    CHEX_TRY(chex_image_check_size(name, (uint64_t)sink->width, (uint64_t)sink->height, 8,
                                   UINT64_MAX, err));
    if (!(sink->to = open_memstream(&bytes, bytes_out)))
        return chex_error_memory(err, "%s", name);
    sink->png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, sink, on_write_error, on_write_warning);
    sink->info = sink->png ? png_create_info_struct(sink->png) : NULL;
    bool whole = sink->info && write_image(sink);
    png_destroy_write_struct(&sink->png, &sink->info);
    whole = fclose(sink->to) == 0 && whole;
    if (whole) {
        *png_out = (uint8_t *)bytes;
        return CHEX_OK;
    }
    free(bytes);
    if (!sink->message[0] || !strncmp(sink->message, "Out of memory", 13))
        return chex_error_memory(err, "%s", name);
    return chex_error_set(err, CHEX_E_FAIL, "%s: libpng: %s", name, sink->message);
}

/* Writes the image and closes fd. */
static enum chex_status write_png(int fd, const char *path, struct sink sink,
                                  struct chex_error *err) {
    uint8_t *bytes = NULL;
    size_t count = 0;
    enum chex_status st = encode(&sink, path, &bytes, &count, err);
    if (st == CHEX_OK && chex_fs_pwrite(fd, bytes, count, 0) != count)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    free(bytes);
    if (close(fd) != 0 && st == CHEX_OK)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return st;
}

enum chex_status chex_image_write_png(const char *path, const uint8_t *pixels, int width,
                                      int height, struct chex_error *err) {
    const struct sink sink = {.pixels = pixels, .width = width, .height = height, .channels = 1};
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", path);
    enum chex_status st = write_png(fd, path, sink, err);
    if (st != CHEX_OK)
        unlink(path);
    return st;
}

enum chex_status chex_image_write_png_rgb(int fd, const char *name, const uint8_t *rgb, int width,
                                          int height, const char *const *texts,
                                          struct chex_error *err) {
    const struct sink sink = {
        .pixels = rgb, .width = width, .height = height, .channels = 3, .texts = texts};
    return write_png(fd, name, sink, err);
}

enum chex_status chex_image_encode_png(const uint8_t *pixels, int width, int height, int channels,
                                       uint8_t **png_out, size_t *bytes_out,
                                       struct chex_error *err) {
    struct sink sink = {.pixels = pixels, .width = width, .height = height, .channels = channels};
    return encode(&sink, "a picture", png_out, bytes_out, err);
}

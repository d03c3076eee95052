/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG 2000 in DICOM, by OpenJPEG. The header is read here first, because OpenJPEG allocates by
 * what it says. OpenJPEG decodes truncated streams with a warning at most, so warnings are errors.
 */
#include "image/image_dicom_j2k.h"

#include <openjpeg.h>
#include <stdio.h>
#include <string.h>

/* Markers of a codestream (ISO/IEC 15444-1, annex A). */
enum { SOC = 0xff4f, SIZ = 0xff51, SOT = 0xff90, EOC = 0xffd9, SIZ_END = 45, SOT_BYTES = 12 };

static unsigned u16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static uint32_t u32(const uint8_t *p) { return (uint32_t)u16(p) << 16 | u16(p + 2); }

/* The image and tile sizes of the marker SIZ. */
struct header {
    uint32_t x1, y1, x0, y0, tile_width, tile_height, tile_x0, tile_y0;
    unsigned components, bits, step_x, step_y;
    bool is_signed;
};

static struct header read_header(const uint8_t *p) {
    return (struct header){u32(p + 8),        u32(p + 12),        u32(p + 16), u32(p + 20),
                           u32(p + 24),       u32(p + 28),        u32(p + 32), u32(p + 36),
                           u16(p + 40),       (p[42] & 127) + 1u, p[43],       p[44],
                           (p[42] & 128) != 0};
}

/* Tiles of one axis; 0: the grid does not cover the start of the image. */
static uint64_t tiles(uint32_t x0, uint32_t x1, uint32_t tile_x0, uint32_t tile) {
    if (tile == 0 || tile_x0 > x0 || (uint64_t)tile_x0 + tile <= x0)
        return 0;
    return ((uint64_t)x1 - tile_x0 + tile - 1) / tile;
}

/* The error of a stream that is not valid. */
#define BAD(format, ...) chex_error_data(err, "%s: " format, name, __VA_ARGS__)

static enum chex_status check_header(const struct header *h, const char *name,
                                     const struct chex_j2k_frame *f, struct chex_error *err) {
    if (h->components != 1)
        return BAD("JPEG 2000 with %u components, expected 1 (grey)", h->components);
    if (h->x1 <= h->x0 || h->y1 <= h->y0 || h->x1 - h->x0 != (uint32_t)f->width ||
        h->y1 - h->y0 != (uint32_t)f->height || h->step_x != 1 || h->step_y != 1)
        return BAD(
            "the JPEG 2000 image has another size than the %d x %d pixels of Columns and Rows",
            f->width, f->height);
    if (h->bits > 16 || h->is_signed != f->is_signed)
        return BAD(
            "JPEG 2000 with %u bits, %s; expected at most 16, %s as PixelRepresentation says",
            h->bits, h->is_signed ? "signed" : "unsigned", f->is_signed ? "signed" : "unsigned");
    const uint64_t across = tiles(h->x0, h->x1, h->tile_x0, h->tile_width);
    const uint64_t down = tiles(h->y0, h->y1, h->tile_y0, h->tile_height);
    if (across == 0 || down == 0 || across * down > CHEX_J2K_MAX_TILES)
        return BAD("JPEG 2000 with %llu x %llu tiles, expected 1 to %d in all",
                   (unsigned long long)across, (unsigned long long)down, CHEX_J2K_MAX_TILES);
    return CHEX_OK;
}

/* Walks the parts of the tiles from byte `at` to the end mark. Returns whether each of `count`
 * tiles has all its parts. */
static bool has_all_tiles(const uint8_t *data, size_t size, size_t at, size_t count) {
    uint8_t seen[CHEX_J2K_MAX_TILES] = {0}, wanted[CHEX_J2K_MAX_TILES] = {0};
    while (size - at > SOT_BYTES && u16(data + at) == SOT) {
        const unsigned tile = u16(data + at + 4), parts = data[at + 11];
        const uint32_t bytes = u32(data + at + 6); /* 0: up to the end mark */
        if (tile >= count || (bytes && bytes < SOT_BYTES) || bytes > size - at)
            return false;
        seen[tile]++;
        wanted[tile] = parts ? (uint8_t)parts : wanted[tile];
        at = bytes ? at + bytes : size - 2;
    }
    if (size - at != 2 || u16(data + at) != EOC)
        return false;
    for (size_t k = 0; k < count; k++)
        if (!seen[k] || (wanted[k] && seen[k] != wanted[k]))
            return false;
    return true;
}

/* The first tile part, after all segments of the main header; `size` if there is none. */
static size_t find_tiles(const uint8_t *data, size_t size) {
    size_t at = 2;
    while (size - at > SOT_BYTES && u16(data + at) != SOT) {
        const size_t bytes = 2 + (size_t)u16(data + at + 2);
        if (bytes < 4 || bytes > size - at)
            return size;
        at += bytes;
    }
    return at;
}

static enum chex_status check_stream(const uint8_t *data, size_t size, const char *name,
                                     const struct chex_j2k_frame *f, struct chex_error *err) {
    if (size < SIZ_END || u16(data) != SOC || u16(data + 2) != SIZ)
        return chex_error_data(err,
                               "%s: PixelData is no JPEG 2000 codestream (it begins with another "
                               "mark, or is too short)",
                               name);
    const struct header h = read_header(data);
    CHEX_TRY(check_header(&h, name, f, err));
    const size_t count = (size_t)(tiles(h.x0, h.x1, h.tile_x0, h.tile_width) *
                                  tiles(h.y0, h.y1, h.tile_y0, h.tile_height));
    if (!has_all_tiles(data, size, find_tiles(data, size), count))
        return chex_error_data(
            err, "%s: the JPEG 2000 codestream is incomplete: a tile or the end mark is missing",
            name);
    return CHEX_OK;
}

/* ---- OpenJPEG ---- */

/* The bytes that OpenJPEG reads. */
struct source {
    const uint8_t *data;
    size_t size, at;
};

static OPJ_SIZE_T read_bytes(void *to, OPJ_SIZE_T bytes, void *arg) {
    struct source *s = arg;
    const size_t left = s->size - s->at, n = bytes < left ? bytes : left;
    if (n == 0)
        return (OPJ_SIZE_T)-1;
    memcpy(to, s->data + s->at, n);
    s->at += n;
    return n;
}

static OPJ_OFF_T skip_bytes(OPJ_OFF_T bytes, void *arg) {
    struct source *s = arg;
    if (bytes < 0 || (uint64_t)bytes > s->size - s->at)
        return -1;
    s->at += (size_t)bytes;
    return bytes;
}

static OPJ_BOOL seek_byte(OPJ_OFF_T at, void *arg) {
    struct source *s = arg;
    if (at < 0 || (uint64_t)at > s->size)
        return OPJ_FALSE;
    s->at = (size_t)at;
    return OPJ_TRUE;
}

/* The first error or warning. */
struct fault {
    char text[160];
};

static void keep_fault(const char *text, void *arg) {
    struct fault *f = arg;
    if (!f->text[0])
        snprintf(f->text, sizeof f->text, "%.*s", (int)strcspn(text, "\r\n"), text);
}

/* The caller destroys *image_out, also after a failure. */
static bool decode(struct source *source, struct fault *fault, opj_image_t **image_out) {
    opj_dparameters_t parameters;
    opj_codec_t *codec = opj_create_decompress(OPJ_CODEC_J2K);
    opj_stream_t *stream = opj_stream_create(source->size < 65536 ? source->size : 65536, OPJ_TRUE);
    bool done = codec && stream;
    if (done) {
        opj_set_default_decoder_parameters(&parameters);
        opj_set_error_handler(codec, keep_fault, fault);
        opj_set_warning_handler(codec, keep_fault, fault);
        opj_stream_set_user_data(stream, source, NULL);
        opj_stream_set_user_data_length(stream, source->size);
        opj_stream_set_read_function(stream, read_bytes);
        opj_stream_set_skip_function(stream, skip_bytes);
        opj_stream_set_seek_function(stream, seek_byte);
        done = opj_setup_decoder(codec, &parameters) && opj_read_header(stream, codec, image_out) &&
               opj_decode(codec, stream, *image_out) && opj_end_decompress(codec, stream);
    }
    if (stream)
        opj_stream_destroy(stream);
    if (codec)
        opj_destroy_codec(codec);
    return done && !fault->text[0];
}

static enum chex_status store(const opj_image_t *image, const char *name,
                              const struct chex_j2k_frame *f, uint16_t *samples_out,
                              struct chex_error *err) {
    const opj_image_comp_t *c = image->comps;
    const size_t pixels = (size_t)f->width * (size_t)f->height;
    const int low = f->is_signed ? -(1 << (f->bits - 1)) : 0, high = low + (1 << f->bits) - 1;
    if (image->numcomps != 1 || !c->data || c->w != (OPJ_UINT32)f->width ||
        c->h != (OPJ_UINT32)f->height)
        return chex_error_data(err, "%s: OpenJPEG decoded another size", name);
    for (size_t i = 0; i < pixels; i++) {
        if (c->data[i] < low || c->data[i] > high)
            return BAD("the JPEG 2000 image has the value %d, which does not fit into the %u bits "
                       "of BitsStored",
                       c->data[i], f->bits);
        samples_out[i] = (uint16_t)((unsigned)c->data[i] & ((1u << f->bits) - 1));
    }
    return CHEX_OK;
}

enum chex_status chex_j2k_decode(const uint8_t *data, size_t size, const char *name,
                                 const struct chex_j2k_frame *frame, uint16_t *samples_out,
                                 struct chex_error *err) {
    struct fault fault = {{0}};
    opj_image_t *image = NULL;
    while (size && data[size - 1] == 0) /* DICOM pads fragments to an even length */
        size--;
    CHEX_TRY(check_stream(data, size, name, frame, err));
    struct source source = {data, size, 0};
    enum chex_status st =
        decode(&source, &fault, &image)
            ? store(image, name, frame, samples_out, err)
            : BAD("OpenJPEG: %s", fault.text[0] ? fault.text : "the codestream cannot be decoded");
    opj_image_destroy(image);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path of PNG (image_png.h). If it cannot be sure that libpng would accept a file, it
 * returns a reason, and libpng decodes the file. So libpng alone decides which files are valid.
 */
#include <stdlib.h>
#include <string.h>

#include "image/grey.h"
#include "image/image_png_private.h"
#include "image/inflate.h"
#include "image/unfilter.h"

enum {
    SIGNATURE_BYTES = 8,
    CHUNK_FRAME_BYTES = 12, // length, kind, CRC
    HEADER_BYTES = 13,
    /* libpng's own limit for such chunks starts at 8 MB. */
    MAX_OTHER_BYTES = 4 << 20,
    DEFLATE_MAX_RATIO = 1032,
    /* The fast path needs memory for the whole colour image, libpng for one row. This limits the
     * memory of a worker for colour images. */
    MAX_COLOUR_BYTES = 64 << 20,
};

struct buffer {
    uint8_t *bytes;
    size_t capacity;
};

struct chex_png_state {
    enum chex_png_path path;
    struct chex_inflate *inflate;
    const struct chex_unfilter *unfilter;
    struct buffer packed, raw, colour; // joined IDAT chunks; filtered rows; RGB or RGBA pixels
    uint64_t fast_count;
};

struct chunk {
    const uint8_t *kind, *body;
    size_t size;
};

/* Position in the chunks of a file. */
struct walk {
    const uint8_t *at, *end;
    uint32_t width, height;
    size_t pixel_bytes;
    const uint8_t *first_idat; // start of the first IDAT chunk
    size_t idat_count, idat_bytes;
    struct chunk last_idat;
};

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The chunk must lie completely inside the file. */
static struct chunk chunk_at(const uint8_t *at) {
    return (struct chunk){.kind = at + 4, .body = at + 8, .size = get_u32(at)};
}

static const uint8_t *chunk_end(const struct chunk *chunk) { return chunk->body + chunk->size + 4; }

static bool is(const struct chunk *chunk, const char kind[4]) {
    return memcmp(chunk->kind, kind, 4) == 0;
}

static const char *next_chunk(struct walk *walk, struct chunk *chunk) {
    const size_t left = (size_t)(walk->end - walk->at);
    if (left < CHUNK_FRAME_BYTES || get_u32(walk->at) > left - CHUNK_FRAME_BYTES)
        return "the file ends early";
    *chunk = chunk_at(walk->at);
    if (chex_crc32(chunk->kind, chunk->size + 4) != get_u32(chunk->body + chunk->size))
        return "a chunk with a wrong CRC";
    walk->at = chunk_end(chunk);
    return NULL;
}

static const char *read_header(struct walk *walk) {
    static const uint8_t pixel_bytes[7] = {[0] = 1, [2] = 3, [6] = 4}; // of grey, RGB, RGBA
    static const uint8_t methods[3] = {0}; // deflate, the five filters, no interlace
    struct chunk header;
    const char *why = next_chunk(walk, &header);
    if (why)
        return why;
    if (!is(&header, "IHDR") || header.size != HEADER_BYTES)
        return "no header";
    const uint8_t depth = header.body[8], colour = header.body[9];
    walk->pixel_bytes = depth == 8 && colour < 7 ? pixel_bytes[colour] : 0;
    if (!walk->pixel_bytes || memcmp(header.body + 10, methods, sizeof methods) != 0)
        return "not grey, RGB or RGBA of 8 bits without interlace";
    walk->width = get_u32(header.body);
    walk->height = get_u32(header.body + 4);
    return walk->width && walk->height ? NULL : "no pixels";
}

/* Checks a chunk that is no IDAT. Only chunks that a decoder may ignore are allowed. */
static const char *check_other(const struct chunk *chunk) {
    for (int i = 0; i < 4; i++)
        if ((chunk->kind[i] | 32) < 'a' || (chunk->kind[i] | 32) > 'z')
            return "a chunk without a name";
    if (!(chunk->kind[0] & 32))
        return "a critical chunk";
    if (is(chunk, "tRNS"))
        return "transparency";
    return chunk->size > MAX_OTHER_BYTES ? "a large chunk" : NULL;
}

static const char *add_idat(struct walk *walk, const struct chunk *chunk) {
    const uint8_t *start = chunk->body - 8;
    if (!walk->idat_count)
        walk->first_idat = start;
    else if (chunk_end(&walk->last_idat) != start)
        return "pixels in two places";
    walk->last_idat = *chunk;
    walk->idat_count++;
    walk->idat_bytes += chunk->size;
    return NULL;
}

static const char *read_chunks(struct walk *walk) {
    struct chunk chunk;
    const char *why = read_header(walk);
    while (!why && !(why = next_chunk(walk, &chunk))) {
        if (is(&chunk, "IEND"))
            return chunk.size ? "an end mark with a content" : NULL;
        why = is(&chunk, "IDAT") ? add_idat(walk, &chunk) : check_other(&chunk);
    }
    return why;
}

static bool grow(struct buffer *buffer, size_t bytes) {
    if (bytes <= buffer->capacity)
        return true;
    free(buffer->bytes);
    buffer->bytes = malloc(bytes);
    buffer->capacity = buffer->bytes ? bytes : 0;
    return buffer->bytes != NULL;
}

/* Returns the content of all IDAT chunks as one piece; NULL: out of memory. */
static const uint8_t *gather(const struct walk *walk, struct buffer *packed) {
    struct chunk chunk = chunk_at(walk->first_idat);
    if (walk->idat_count == 1)
        return chunk.body;
    if (!grow(packed, walk->idat_bytes))
        return NULL;
    uint8_t *out = packed->bytes;
    for (size_t i = 0; i < walk->idat_count; i++, chunk = chunk_at(chunk_end(&chunk))) {
        memcpy(out, chunk.body, chunk.size);
        out += chunk.size;
    }
    return packed->bytes;
}

const char *chex_png_fast(struct chex_png_state *state, const uint8_t *data, size_t size,
                          struct chex_image *image) {
    struct walk walk = {.at = data + SIGNATURE_BYTES, .end = data + size};
    const char *why = read_chunks(&walk);
    if (why)
        return why;
    if (!walk.idat_count || !walk.last_idat.size)
        return "no pixels in the last IDAT";
    const size_t row_bytes = walk.width * walk.pixel_bytes;
    const size_t pixel_count = (size_t)walk.width * walk.height;
    const size_t raw_bytes = walk.height * (row_bytes + 1);
    const bool is_grey = walk.pixel_bytes == 1;
    if (!is_grey && raw_bytes > MAX_COLOUR_BYTES)
        return "a colour image too large to hold whole";
    if (raw_bytes / DEFLATE_MAX_RATIO > walk.idat_bytes)
        return "more pixels than the data can hold";
    if (chex_image_reserve(image, (int)walk.width, (int)walk.height, NULL) != CHEX_OK ||
        !grow(&state->raw, raw_bytes) ||
        (!is_grey && !grow(&state->colour, pixel_count * walk.pixel_bytes)))
        return "no room";
    const uint8_t *packed = gather(&walk, &state->packed);
    if (!packed)
        return "no room";
    if (!chex_inflate_run(state->inflate, packed, walk.idat_bytes, state->raw.bytes, raw_bytes))
        return "damaged pixel data";
    uint8_t *out = is_grey ? image->pixels : state->colour.bytes;
    if (!chex_unfilter_run(state->unfilter, state->raw.bytes, row_bytes, walk.height,
                           walk.pixel_bytes, out))
        return "an unknown filter";
    for (size_t y = 0; !is_grey && y < walk.height; y++)
        chex_grey_note_row(out + y * row_bytes, walk.pixel_bytes, walk.width, y, &image->about);
    if (!is_grey)
        chex_grey_of_colour(out, walk.pixel_bytes, pixel_count, image->pixels);
    state->fast_count++;
    return NULL;
}

enum chex_png_path chex_png_path(const struct chex_png_state *state) { return state->path; }

void chex_png_state_destroy(struct chex_png_state *state) {
    if (!state)
        return;
    chex_inflate_destroy(state->inflate);
    free(state->packed.bytes);
    free(state->raw.bytes);
    free(state->colour.bytes);
    free(state);
}

static enum chex_status choose(struct chex_png_state *state, const struct chex_png_choice *choice,
                               struct chex_error *err) {
    const struct chex_unfilter *unfilter = chex_unfilter_find(choice->unfilter);
    struct chex_inflate *inflate = NULL;
    if (!unfilter)
        return chex_error_set(err, CHEX_E_USAGE, "unfilter '%s': not in this build or machine",
                              choice->unfilter ? choice->unfilter : "fastest");
    CHEX_TRY(chex_inflate_create(choice->inflate, &inflate, err));
    chex_inflate_destroy(state->inflate);
    state->inflate = inflate;
    state->unfilter = unfilter;
    state->path = choice->path;
    return CHEX_OK;
}

enum chex_status chex_png_state(struct chex_image_reader *reader, struct chex_png_state **state_out,
                                struct chex_error *err) {
    struct chex_png_state **kept = chex_image_reader_png(reader);
    if (!*kept) {
        struct chex_png_state *state = calloc(1, sizeof *state);
        if (!state)
            return chex_error_memory(err, "a PNG reader");
        enum chex_status st = choose(state, &(struct chex_png_choice){0}, err);
        if (st != CHEX_OK) {
            chex_png_state_destroy(state);
            return st;
        }
        *kept = state;
    }
    *state_out = *kept;
    return CHEX_OK;
}

enum chex_status chex_png_choose(struct chex_image_reader *reader,
                                 const struct chex_png_choice *choice, struct chex_error *err) {
    struct chex_png_state *state = NULL;
    CHEX_TRY(chex_png_state(reader, &state, err));
    return choose(state, choice, err);
}

uint64_t chex_png_fast_count(struct chex_image_reader *reader) {
    const struct chex_png_state *state = *chex_image_reader_png(reader);
    return state ? state->fast_count : 0;
}

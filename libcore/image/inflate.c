/* SPDX-License-Identifier: Apache-2.0
 *
 * One adapter for each inflate library, fastest first (inflate.h).
 */
#include "image/inflate.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#if CHEXNET_HAVE_ISAL
#include <isa-l/igzip_lib.h>
#endif
#if CHEXNET_HAVE_LIBDEFLATE
#include <libdeflate.h>
#elif CHEXNET_HAVE_ISAL
#include <isa-l/crc.h>
#endif

struct library {
    const char *name;
    void *(*create)(void); /* NULL: out of memory */
    void (*destroy)(void *state);
    bool (*run)(void *state, const uint8_t *data, size_t size, uint8_t *out, size_t out_size);
};

struct chex_inflate {
    const struct library *library;
    void *state;
};

#if CHEXNET_HAVE_ISAL
static void *isal_create(void) { return malloc(sizeof(struct inflate_state)); }

/* ISAL_DECOMP_OK (0) is the only success: a truncated stream gives a positive code. */
static bool isal_run(void *state, const uint8_t *data, size_t size, uint8_t *out, size_t out_size) {
    struct inflate_state *s = state;
    isal_inflate_init(s);
    s->crc_flag = ISAL_ZLIB;
    s->next_in = (uint8_t *)(uintptr_t)data;
    s->avail_in = (uint32_t)size;
    s->next_out = out;
    s->avail_out = (uint32_t)out_size;
    return isal_inflate_stateless(s) == ISAL_DECOMP_OK && s->total_out == out_size &&
           s->avail_in == 0;
}
#endif

#if CHEXNET_HAVE_LIBDEFLATE
static void *deflate_create(void) { return libdeflate_alloc_decompressor(); }
static void deflate_destroy(void *state) { libdeflate_free_decompressor(state); }

static bool deflate_run(void *state, const uint8_t *data, size_t size, uint8_t *out,
                        size_t out_size) {
    size_t used = 0;
    return libdeflate_zlib_decompress_ex(state, data, size, out, out_size, &used, NULL) ==
               LIBDEFLATE_SUCCESS &&
           used == size;
}
#endif

static void *zlib_create(void) {
    z_stream *z = calloc(1, sizeof *z);
    if (z && inflateInit(z) == Z_OK)
        return z;
    free(z);
    return NULL;
}

static void zlib_destroy(void *state) {
    inflateEnd(state);
    free(state);
}

static bool zlib_run(void *state, const uint8_t *data, size_t size, uint8_t *out, size_t out_size) {
    z_stream *z = state;
    if (inflateReset(z) != Z_OK)
        return false;
    z->next_in = (uint8_t *)(uintptr_t)data;
    z->avail_in = (uInt)size;
    z->next_out = out;
    z->avail_out = (uInt)out_size;
    return inflate(z, Z_FINISH) == Z_STREAM_END && z->avail_in == 0 && z->avail_out == 0;
}

static const struct library libraries[] = {
#if CHEXNET_HAVE_ISAL
    {"igzip", isal_create, free, isal_run},
#endif
#if CHEXNET_HAVE_LIBDEFLATE
    {"libdeflate", deflate_create, deflate_destroy, deflate_run},
#endif
    {"zlib", zlib_create, zlib_destroy, zlib_run},
};
enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

const char *chex_inflate_name(int i) { return i < LIBRARIES ? libraries[i].name : NULL; }

enum chex_status chex_inflate_create(const char *name, struct chex_inflate **inflate_out,
                                     struct chex_error *err) {
    const struct library *library = name ? NULL : libraries;
    for (int i = 0; i < LIBRARIES && !library; i++)
        if (!strcmp(libraries[i].name, name))
            library = &libraries[i];
    if (!library)
        return chex_error_set(err, CHEX_E_USAGE, "inflate '%s': not in this build", name);
    struct chex_inflate *inflate = malloc(sizeof *inflate);
    void *state = inflate ? library->create() : NULL;
    if (!state) {
        free(inflate);
        return chex_error_memory(err, "%s", library->name);
    }
    *inflate = (struct chex_inflate){library, state};
    *inflate_out = inflate;
    return CHEX_OK;
}

void chex_inflate_destroy(struct chex_inflate *inflate) {
    if (!inflate)
        return;
    inflate->library->destroy(inflate->state);
    free(inflate);
}

/* Checks the zlib header: two bytes before the first block (RFC 1950). */
static bool header_is_plain(const uint8_t *data, size_t out_size) {
    enum { DEFLATE = 8, PRESET_DICTIONARY = 0x20, MAX_WINDOW = 32768 };
    const size_t window = (size_t)256 << (data[0] >> 4);
    return (data[0] & 15) == DEFLATE && (data[0] << 8 | data[1]) % 31 == 0 &&
           !(data[1] & PRESET_DICTIONARY) && window <= MAX_WINDOW &&
           (window == MAX_WINDOW || window >= out_size);
}

bool chex_inflate_run(struct chex_inflate *inflate, const uint8_t *data, size_t size, uint8_t *out,
                      size_t out_size) {
    return size > 2 && size <= INT_MAX && out_size <= INT_MAX && header_is_plain(data, out_size) &&
           inflate->library->run(inflate->state, data, size, out, out_size);
}

uint32_t chex_crc32(const uint8_t *data, size_t size) {
#if CHEXNET_HAVE_LIBDEFLATE
    return libdeflate_crc32(0, data, size);
#elif CHEXNET_HAVE_ISAL
    return crc32_gzip_refl(0, data, size);
#else
    return (uint32_t)crc32_z(0, data, size);
#endif
}

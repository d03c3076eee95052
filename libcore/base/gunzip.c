/* SPDX-License-Identifier: Apache-2.0
 *
 * Decompresses a gzip file (RFC 1952) block by block, with ISA-L if it was built in and with zlib
 * otherwise. Both decoders report the same bytes and accept the same files; tests compare them.
 */
#include "base/gunzip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/fs.h"

#if CHEXNET_HAVE_ISAL
#include <isa-l.h>
#endif

/* The output block stays in a core's second-level cache. */
enum { IN_BYTES = 256 << 10, OUT_BYTES = 256 << 10 };

/* Offsets in a gzip header. */
enum { FLAGS_AT = 3, RESERVED_FLAGS = 0xe0 };

enum phase { BETWEEN, INSIDE, PADDING, OVER };

struct chex_gunzip {
    int fd;
    bool portable;
    enum phase phase;
    uint64_t file_at; /* where the next input is read */
    uint8_t *in, *out;
    size_t in_at, in_end;
    struct chex_error fault; /* found after bytes that must be returned first */
    bool faulty;
    z_stream z;
#if CHEXNET_HAVE_ISAL
    struct inflate_state isal;
#endif
};

enum chex_status chex_gunzip_open(int fd, bool portable, struct chex_gunzip **gz_out,
                                  struct chex_error *err) {
    struct chex_gunzip *g = calloc(1, sizeof *g);
    if (g) {
        g->fd = fd;
        g->portable = portable || !CHEXNET_HAVE_ISAL;
        g->in = malloc(IN_BYTES);
        g->out = malloc(OUT_BYTES);
    }
    /* 16 added to the window bits: zlib reads the gzip header and checks the trailer. */
    if (!g || !g->in || !g->out || (g->portable && inflateInit2(&g->z, 16 + MAX_WBITS) != Z_OK)) {
        chex_gunzip_close(g);
        return chex_error_memory(err, "a gzip reader");
    }
    *gz_out = g;
    return CHEX_OK;
}

void chex_gunzip_close(struct chex_gunzip *g) {
    if (!g)
        return;
    if (g->portable)
        inflateEnd(&g->z);
    free(g->in);
    free(g->out);
    free(g);
}

/* File offset of the first unused byte. */
static uint64_t position(const struct chex_gunzip *g) {
    return g->file_at - (g->in_end - g->in_at);
}

static enum chex_status fill(struct chex_gunzip *g, struct chex_error *err) {
    if (g->in_at < g->in_end)
        return CHEX_OK;
    const size_t n = chex_fs_pread(g->fd, g->in, IN_BYTES, g->file_at);
    if (n == 0 && errno)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read at byte %llu",
                                (unsigned long long)g->file_at);
    g->in_at = 0;
    g->in_end = n;
    g->file_at += n;
    return CHEX_OK;
}

/* Continues at byte `at` of the file. */
static void seek(struct chex_gunzip *g, uint64_t at) {
    g->file_at = at;
    g->in_at = g->in_end = 0;
}

static enum chex_status damaged(const struct chex_gunzip *g, const char *what,
                                struct chex_error *err) {
    return chex_error_set(err, CHEX_E_DATA, "gzip: %s, near byte %llu of the file", what,
                          (unsigned long long)position(g));
}

/* Examines the next bytes: a gzip member, padding or the end. */
static enum chex_status begin(struct chex_gunzip *g, bool first, struct chex_error *err) {
    CHEX_TRY(fill(g, err));
    if (g->in_at == g->in_end) {
        g->phase = OVER;
        return first ? damaged(g, "empty file", err) : CHEX_OK;
    }
    if (g->in[g->in_at] == 0 && !first) {
        g->phase = PADDING;
        return CHEX_OK;
    }
    if (g->in[g->in_at] != 0x1f)
        return damaged(g, "expected a gzip header", err);
    /* ISA-L accepts reserved flags. A header with such flags may have fields of unknown size. */
    if (g->in_end - g->in_at <= FLAGS_AT) {
        seek(g, position(g));
        CHEX_TRY(fill(g, err));
    }
    if (g->in_end - g->in_at > FLAGS_AT && g->in[g->in_at + FLAGS_AT] & RESERVED_FLAGS)
        return damaged(g, "unknown header flags set", err);
    g->phase = INSIDE;
    if (g->portable) {
        inflateReset(&g->z);
        return CHEX_OK;
    }
#if CHEXNET_HAVE_ISAL
    isal_inflate_init(&g->isal);
    g->isal.crc_flag = ISAL_GZIP;
#endif
    return CHEX_OK;
}

static enum chex_status skip_padding(struct chex_gunzip *g, struct chex_error *err) {
    for (;;) {
        CHEX_TRY(fill(g, err));
        if (g->in_at == g->in_end)
            break;
        for (; g->in_at < g->in_end; g->in_at++)
            if (g->in[g->in_at])
                return damaged(g, "neither a gzip header nor padding after the data", err);
    }
    g->phase = OVER;
    return CHEX_OK;
}

static enum chex_status step_zlib(struct chex_gunzip *g, size_t *made_out, bool *ended_out,
                                  struct chex_error *err) {
    g->z.next_in = g->in + g->in_at;
    g->z.avail_in = (uInt)(g->in_end - g->in_at);
    g->z.next_out = g->out;
    g->z.avail_out = OUT_BYTES;
    int rc = inflate(&g->z, Z_NO_FLUSH);
    g->in_at = g->in_end - g->z.avail_in;
    *made_out = OUT_BYTES - g->z.avail_out;
    *ended_out = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR)
        return CHEX_OK;
    if (rc == Z_MEM_ERROR)
        return chex_error_memory(err, "a gzip reader");
    return damaged(g, g->z.msg ? g->z.msg : "damaged data", err);
}

#if CHEXNET_HAVE_ISAL
static const char *isal_text(int rc) {
    switch (rc) {
    case ISAL_INVALID_BLOCK: return "invalid block";
    case ISAL_INVALID_SYMBOL: return "invalid code";
    case ISAL_INVALID_LOOKBACK: return "invalid distance";
    case ISAL_INVALID_WRAPPER: return "incorrect header check";
    case ISAL_UNSUPPORTED_METHOD: return "unknown compression method";
    case ISAL_INCORRECT_CHECKSUM: return "incorrect data check";
    default: return "damaged data";
    }
}

static enum chex_status step_isal(struct chex_gunzip *g, size_t *made_out, bool *ended_out,
                                  struct chex_error *err) {
    struct inflate_state *s = &g->isal;
    s->next_in = g->in + g->in_at;
    s->avail_in = (uint32_t)(g->in_end - g->in_at);
    s->next_out = g->out;
    s->avail_out = OUT_BYTES;
    int rc = isal_inflate(s);
    g->in_at = g->in_end - s->avail_in;
    *made_out = OUT_BYTES - s->avail_out;
    *ended_out = rc == ISAL_DECOMP_OK && s->block_state == ISAL_BLOCK_FINISH;
    /* The bit buffer may hold whole bytes after the member: give them back. */
    if (*ended_out && s->read_in_length >= 8)
        seek(g, position(g) - (uint64_t)s->read_in_length / 8);
    return rc < 0 ? damaged(g, isal_text(rc), err) : CHEX_OK;
}
#else
#define step_isal step_zlib
#endif

static enum chex_status step(struct chex_gunzip *g, size_t *made_out, struct chex_error *err) {
    bool ended = false;
    CHEX_TRY(fill(g, err));
    bool dry = g->in_at == g->in_end;
    enum chex_status st =
        g->portable ? step_zlib(g, made_out, &ended, err) : step_isal(g, made_out, &ended, err);
    if (st == CHEX_OK && ended)
        g->phase = BETWEEN;
    else if (st == CHEX_OK && dry && *made_out == 0)
        st = damaged(g, "the file ends in the middle of the data", err);
    return st;
}

enum chex_status chex_gunzip_read(struct chex_gunzip *g, const uint8_t **data_out,
                                  size_t *bytes_out, struct chex_error *err) {
    size_t made = 0;
    enum chex_status st = CHEX_OK;
    struct chex_error found = {0};
    while (!g->faulty && st == CHEX_OK && !made && g->phase != OVER) {
        if (g->phase == BETWEEN)
            st = begin(g, g->file_at == 0, &found);
        else if (g->phase == PADDING)
            st = skip_padding(g, &found);
        else
            st = step(g, &made, &found);
    }
    if (st != CHEX_OK) {
        g->fault = found;
        g->faulty = true;
    }
    if (g->faulty && !made)
        return chex_error_set(err, g->fault.status, "%s", g->fault.text);
    *data_out = g->out;
    *bytes_out = made;
    return CHEX_OK;
}

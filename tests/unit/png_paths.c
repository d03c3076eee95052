/* SPDX-License-Identifier: Apache-2.0
 *
 * The fast path of PNG against libpng: the same verdict, words and pixels for all kinds of a
 * conformance set, and which of the two paths a file took.
 */
#include <png.h>
#include <zlib.h>

#include "image/image_png.h"
#include "image/inflate.h"
#include "image/unfilter.h"
#include "image_bytes.h"
#include "tap.h"

static struct chex_image_reader *referee;
static struct chex_image wanted;
static uint64_t state = 0x2545f4914f6cdd1du;

static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* ---- both paths on one file ---- */

/* Equal verdict, words, pixels. */
static bool agree(const struct bytes *b) {
    struct chex_error why;
    const enum chex_status st = decode(b);
    if (st != decode_by(referee, b, &wanted, &why) || strcmp(err.text, why.text) != 0) {
        printf("# %d '%s', libpng: '%s'\n", (int)st, err.text, why.text);
        return false;
    }
    return st != CHEX_OK ||
           (image.width == wanted.width && image.height == wanted.height &&
            !memcmp(image.pixels, wanted.pixels, (size_t)image.width * (size_t)image.height));
}

static bool took_fast_path(const struct bytes *b) {
    const uint64_t before = chex_png_fast_count(reader);
    decode(b);
    return chex_png_fast_count(reader) == before + 1;
}

/* ---- files made by libpng ---- */

static void on_write(png_structp png, png_bytep data, size_t n) {
    put(png_get_io_ptr(png), data, n);
}
static void on_flush(png_structp png) { (void)png; }

struct kind {
    int colour, depth, interlace, filters;
    bool transparent, ancillary;
};

static void write_ancillary(png_structp png, png_infop info, const struct kind *k) {
    const png_color_8 significant = {8, 8, 8, 8, 8};
    if (k->colour != PNG_COLOR_TYPE_PALETTE && k->depth == 8)
        png_set_sBIT(png, info, &significant);
    png_set_gAMA(png, info, 0.45455);
    png_set_pHYs(png, info, 2835, 2835, PNG_RESOLUTION_METER);
    char key[] = "Title", words[] = "chest";
    png_text text = {.compression = PNG_TEXT_COMPRESSION_NONE, .key = key, .text = words};
    png_set_text(png, info, &text, 1);
}

static void make(struct bytes *b, int w, int h, const struct kind *k) {
    static png_color palette[256];
    static png_byte alpha[256];
    static uint8_t row[8 * 512];
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    BAIL_UNLESS(info && !setjmp(png_jmpbuf(png)), "libpng cannot write");
    b->size = 0;
    png_set_write_fn(png, b, on_write, on_flush);
    png_set_IHDR(png, info, (png_uint_32)w, (png_uint_32)h, k->depth, k->colour, k->interlace, 0,
                 0);
    png_set_filter(png, 0, k->filters);
    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(png_byte)(i * 7), (png_byte)(255 - i), (png_byte)(i * i)};
        alpha[i] = (png_byte)i;
    }
    if (k->colour == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 1 << k->depth);
    png_color_16 clear = {.gray = 1, .red = 1, .green = 1, .blue = 1};
    if (k->transparent)
        png_set_tRNS(png, info, alpha, k->colour == PNG_COLOR_TYPE_PALETTE ? 1 << k->depth : 0,
                     &clear);
    if (k->ancillary)
        write_ancillary(png, info, k);
    png_write_info(png, info);
    for (int pass = png_set_interlace_handling(png); pass > 0; pass--)
        for (int y = 0; y < h; y++) {
            for (size_t x = 0; x < sizeof row; x++)
                row[x] = (uint8_t)(x * 3 + (size_t)y * 5 + draw() % 3);
            png_write_row(png, row);
        }
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
}

static void check_kinds(struct bytes *b) {
    static const struct {
        int colour, depths;
    } types[] = {
        {0, 1 | 2 | 4 | 8 | 16}, {2, 8 | 16}, {3, 1 | 2 | 4 | 8}, {4, 8 | 16}, {6, 8 | 16}};
    static const int sizes[][2] = {{1, 1}, {3, 2}, {8, 8}, {33, 17}, {100, 70}};
    int tried = 0, differ = 0, fast = 0, misled = 0;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (int depth = 1; depth <= 16; depth *= 2)
            for (int options = 0; types[t].depths & depth && options < 8; options++)
                for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++, tried++) {
                    const struct kind k = {types[t].colour,
                                           depth,
                                           options & 1 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                                           PNG_ALL_FILTERS,
                                           options & 2 && types[t].colour < 4,
                                           options & 4};
                    make(b, sizes[s][0], sizes[s][1], &k);
                    differ += !agree(b);
                    const bool plain = k.colour != 3 && k.colour != 4 && k.depth == 8 &&
                                       !k.interlace && !k.transparent;
                    fast += plain;
                    misled += took_fast_path(b) != plain;
                }
    OK(differ == 0, "%d files of all colour types, depths, interlaces: as libpng", tried);
    OK(misled == 0,
       "the fast path took the %d plain ones of 8 bits, grey, RGB and RGBA, and no other", fast);
}

static void check_filters(struct bytes *b) {
    static const int filters[] = {PNG_FILTER_NONE, PNG_FILTER_SUB,   PNG_FILTER_UP,
                                  PNG_FILTER_AVG,  PNG_FILTER_PAETH, PNG_ALL_FILTERS};
    for (int i = 0; chex_inflate_name(i); i++)
        for (const struct chex_unfilter *const *u = chex_unfilters; *u; u++) {
            const struct chex_png_choice choice = {CHEX_PNG_FAST, chex_inflate_name(i), (*u)->name};
            int wrong = 0;
            if (!(*u)->usable())
                continue;
            OK(chex_png_choose(reader, &choice, &err) == CHEX_OK, "%s + %s", chex_inflate_name(i),
               (*u)->name);
            for (int f = 0; f < 6; f++)
                for (int size = 1; size < 200; size += 33)
                    for (int colour = 0; colour <= 6; colour += colour ? 4 : 2) {
                        make(b, size + f, 201 - size,
                             &(struct kind){colour, 8, 0, filters[f], 0, 0});
                        wrong += !agree(b);
                    }
            OK(wrong == 0, "and its pixels are libpng's, whatever the filter");
        }
    OK_STATUS(chex_png_choose(reader, &(struct chex_png_choice){0, "none such", NULL}, &err),
              CHEX_E_USAGE, err, "none such");
    OK_STATUS(chex_png_choose(reader, &(struct chex_png_choice){0, NULL, "none such"}, &err),
              CHEX_E_USAGE, err, "none such");
    make(b, 4, 4, &(struct kind){4, 8, 0, PNG_ALL_FILTERS, 0, 0});
    OK_STATUS(decode(b), CHEX_E_DATA, err, "x: not for the fast path");
    OK(chex_png_choose(reader, &(struct chex_png_choice){0}, &err) == CHEX_OK, "back to both");
}

/* ---- files made by hand ---- */

static struct bytes packed;

static void pack(uint32_t w, uint32_t h, uint8_t filter) {
    uint8_t raw[2048];
    uLongf size = sizeof packed.data;
    for (size_t i = 0; i < h * (w + 1); i++)
        raw[i] = i % (w + 1) ? (uint8_t)draw() : filter;
    BAIL_UNLESS(compress(packed.data, &size, raw, h * (w + 1)) == Z_OK, "zlib");
    packed.size = size;
}

/* One letter a chunk: I all pixel data, a and b its halves, 0 an empty IDAT, t text, T tRNS,
 * P a palette, X an unknown critical chunk, x an unknown ancillary one, 1 a name that is none,
 * g junk IDAT, H a second header, E the end, e an end with a content. */
static void lay_out(struct bytes *b, const char *layout) {
    const size_t half = packed.size / 2;
    put_png_header(b, 20, 20, 8, 0);
    for (; *layout; layout++)
        switch (*layout) {
        case 'I': put_chunk(b, "IDAT", packed.data, packed.size); break;
        case 'a': put_chunk(b, "IDAT", packed.data, half); break;
        case 'b': put_chunk(b, "IDAT", packed.data + half, packed.size - half); break;
        case '0': put_chunk(b, "IDAT", "", 0); break;
        case 'g': put_chunk(b, "IDAT", "junk", 4); break;
        case 't': put_chunk(b, "tEXt", "Title\0chest", 11); break;
        case 'T': put_chunk(b, "tRNS", "\0\1", 2); break;
        case 'P': put_chunk(b, "PLTE", "abcdef", 6); break;
        case 'X': put_chunk(b, "ABCD", "", 0); break;
        case 'x': put_chunk(b, "abCd", "xyz", 3); break;
        case '1': put_chunk(b, "a1Cd", "xyz", 3); break;
        case 'H': put_chunk(b, "IHDR", b->data + 16, 13); break;
        case 'E': put_chunk(b, "IEND", "", 0); break;
        case 'e': put_chunk(b, "IEND", "e", 1); break;
        }
}

static void check_layouts(struct bytes *b) {
    static const struct {
        const char *layout;
        bool fast;
    } cases[] = {
        {"IE", true},     {"abE", true},   {"0abE", true}, {"a0bE", true},  {"a000bE", true},
        {"tIE", true},    {"xItxE", true}, {"IEt", true},  {"IEE", true},   {"ab0E", false},
        {"ab00E", false}, {"Ig0E", false}, {"IgE", false}, {"IggE", false}, {"atbE", false},
        {"ItgE", false},  {"It0E", false}, {"TIE", false}, {"ITE", false},  {"PIE", false},
        {"XIE", false},   {"IXE", false},  {"1IE", false}, {"I1E", false},  {"HIE", false},
        {"IHE", false},   {"Ie", false},   {"I", false},   {"aE", false},   {"bE", false},
        {"E", false},     {"0E", false},   {"", false},    {"baE", false},  {"IIE", false},
    };
    pack(20, 20, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lay_out(b, cases[i].layout);
        const bool same = agree(b);
        OK(same && took_fast_path(b) == cases[i].fast, "chunks '%s': as libpng, %s",
           cases[i].layout, cases[i].fast ? "fast" : "by libpng");
    }
    for (int filter = 5; filter < 256; filter += 50) {
        pack(20, 20, (uint8_t)filter);
        lay_out(b, "IE");
        OK(agree(b) && !took_fast_path(b), "filter %d: as libpng", filter);
    }
}

static bool agree_packed(const struct bytes *stream) {
    static struct bytes b;
    (void)stream;
    lay_out(&b, "IE");
    return agree(&b);
}

static void check_every_byte(struct bytes *b) {
    pack(20, 20, 3);
    lay_out(b, "ta0bxE");
    const size_t size = b->size;
    size_t differ = flips_that_fail(b, 0, agree);
    for (b->size = 0; b->size < size; b->size++)
        differ += !agree(b);
    OK(differ == 0, "every flipped bit and every truncation: libpng's words");
    /* Damage under a right CRC: in the pixel data and its checksum. */
    OK(flips_that_fail(&packed, 0, agree_packed) == 0,
       "every flipped bit of the stream under a right CRC: libpng's words");
}

static void check_bombs(struct bytes *b) {
    static const uint32_t sizes[][2] = {{60000, 60000},  {65500, 4000},  {4000, 65500},
                                        {0x7fffffff, 1}, {16384, 16384}, {0, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct chex_image none = {0};
        put_png_header(b, sizes[i][0], sizes[i][1], 8, 0);
        put_chunk(b, "IDAT", packed.data, packed.size);
        put_chunk(b, "IEND", "", 0);
        OK(decode_by(reader, b, &none, &err) == CHEX_E_DATA && none.capacity == 0 && agree(b),
           "%u x %u: nothing is allocated: %s", sizes[i][0], sizes[i][1], err.text);
    }
    /* The file is large enough for the header, its pixel data are not. */
    static uint8_t text[200000];
    struct chex_image none = {0};
    put_png_header(b, 10000, 10000, 8, 0);
    put_chunk(b, "teXt", text, sizeof text);
    put_chunk(b, "IDAT", packed.data, packed.size);
    put_chunk(b, "IEND", "", 0);
    OK(agree(b) && !took_fast_path(b), "pixels that only the other chunks could hold");
    chex_image_release(&none);
}

int main(void) {
    struct bytes *b = bytes_new();
    MUST(chex_image_reader_create(&reader, &err));
    MUST(chex_image_reader_create(&referee, &err));
    OK(chex_png_fast_count(reader) == 0, "a new reader has decoded nothing");
    const struct chex_png_choice libpng = {.path = CHEX_PNG_LIBPNG};
    MUST(chex_png_choose(referee, &libpng, &err));
    check_kinds(b);
    check_filters(b);
    check_layouts(b);
    check_every_byte(b);
    check_bombs(b);
    OK(chex_png_fast_count(referee) == 0, "libpng when it is asked for");
    chex_image_release(&image);
    chex_image_release(&wanted);
    chex_image_reader_destroy(reader);
    chex_image_reader_destroy(referee);
    free(b);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * JPEG 2000 in DICOM: lossless files have the pixels of the uncompressed file, lossy ones are near
 * them, and damaged ones are refused. The test makes the codestreams with OpenJPEG, and the DICOM
 * files byte by byte. Without OpenJPEG only the error text is tested.
 */
#include "base/module.h"
#include "image_bytes.h"
#include "tap.h"

#if CHEXNET_HAVE_OPENJPEG
#include <openjpeg.h>

enum { MAX_PIXELS = 1 << 16 };

static struct bytes raw, stream, packed;
static int values[MAX_PIXELS];

/* How an image is stored. */
struct kind {
    int width, height;
    unsigned bits, allocated;
    bool is_signed;
    int tile;         /* side of the tiles; 0: one tile */
    double rate;      /* 0: lossless */
    size_t fragments; /* of the codestream */
    const char *photometric, *window, *window_width, *slope, *intercept;
    int components;     /* 0: 1 */
    unsigned precision; /* of the codestream; 0: bits */
    const char *frames; /* NULL: no NumberOfFrames */
};

/* ---- codestreams ---- */

static OPJ_SIZE_T put_bytes(void *from, OPJ_SIZE_T bytes, void *arg) {
    put(arg, from, bytes);
    return bytes;
}

static OPJ_OFF_T skip_bytes(OPJ_OFF_T bytes, void *arg) {
    ((struct bytes *)arg)->size += (size_t)bytes;
    return bytes;
}

static OPJ_BOOL seek_byte(OPJ_OFF_T at, void *arg) {
    ((struct bytes *)arg)->size = (size_t)at;
    return OPJ_TRUE;
}

static void encode(const struct kind *k) {
    opj_cparameters_t p;
    opj_image_cmptparm_t component[3];
    const int count = k->components ? k->components : 1;
    opj_set_default_encoder_parameters(&p);
    memset(component, 0, sizeof component);
    for (int c = 0; c < count; c++)
        component[c] = (opj_image_cmptparm_t){.dx = 1,
                                              .dy = 1,
                                              .w = (OPJ_UINT32)k->width,
                                              .h = (OPJ_UINT32)k->height,
                                              .prec = k->precision ? k->precision : k->bits,
                                              .sgnd = k->is_signed};
    p.tcp_numlayers = 1;
    p.cp_disto_alloc = 1;
    p.tcp_rates[0] = (float)k->rate;
    p.irreversible = k->rate > 0;
    p.tile_size_on = k->tile > 0;
    p.cp_tdx = p.cp_tdy = k->tile;
    p.numresolution = k->width < 4 ? 1 : 3;
    opj_image_t *im = opj_image_create((OPJ_UINT32)count, component,
                                       count == 1 ? OPJ_CLRSPC_GRAY : OPJ_CLRSPC_SRGB);
    opj_codec_t *codec = opj_create_compress(OPJ_CODEC_J2K);
    opj_stream_t *to = opj_stream_create(65536, OPJ_FALSE);
    BAIL_UNLESS(im && codec && to, "OpenJPEG");
    im->x1 = (OPJ_UINT32)k->width;
    im->y1 = (OPJ_UINT32)k->height;
    for (int c = 0; c < count; c++)
        for (int i = 0; i < k->width * k->height; i++)
            im->comps[c].data[i] = values[i];
    stream.size = 0;
    opj_stream_set_user_data(to, &stream, NULL);
    opj_stream_set_write_function(to, put_bytes);
    opj_stream_set_skip_function(to, skip_bytes);
    opj_stream_set_seek_function(to, seek_byte);
    BAIL_UNLESS(opj_setup_encoder(codec, &p, im) && opj_start_compress(codec, im, to) &&
                    opj_encode(codec, to) && opj_end_compress(codec, to),
                "OpenJPEG cannot encode");
    opj_stream_destroy(to);
    opj_destroy_codec(codec);
    opj_image_destroy(im);
}

/* ---- DICOM files, explicit VR, little endian ---- */

static void put_number(struct bytes *to, uint32_t value, int size) {
    const uint8_t b[] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                         (uint8_t)(value >> 24)};
    put(to, b, (size_t)size);
}

static void put_tag(struct bytes *to, uint32_t tag, const char *vr) {
    put_number(to, tag >> 16, 2);
    put_number(to, tag & 0xffff, 2);
    put(to, vr, strlen(vr));
}

static void put_text(struct bytes *to, uint32_t tag, const char *vr, const char *text) {
    const size_t n = text ? strlen(text) : 0;
    if (!text)
        return;
    put_tag(to, tag, vr);
    put_number(to, (uint32_t)(n + n % 2), 2);
    put(to, text, n);
    put(to, strcmp(vr, "UI") == 0 ? "\0" : " ", n % 2);
}

static void put_u16(struct bytes *to, uint32_t tag, unsigned value) {
    put_tag(to, tag, "US");
    put_number(to, 2, 2);
    put_number(to, value, 2);
}

static void put_header(struct bytes *to, const struct kind *k, const char *syntax) {
    to->size = 0;
    memset(to->data, 0, 128);
    to->size = 128;
    put(to, "DICM", 4);
    put_tag(to, 0x00020000, "UL");
    put_number(to, 4, 2);
    put_number(to, (uint32_t)(8 + strlen(syntax) + strlen(syntax) % 2), 4);
    put_text(to, 0x00020010, "UI", syntax);
    put_u16(to, 0x00280002, 1);
    put_text(to, 0x00280004, "CS", k->photometric ? k->photometric : "MONOCHROME2");
    put_text(to, 0x00280008, "IS", k->frames);
    put_u16(to, 0x00280010, (unsigned)k->height);
    put_u16(to, 0x00280011, (unsigned)k->width);
    put_u16(to, 0x00280100, k->allocated);
    put_u16(to, 0x00280101, k->bits);
    put_u16(to, 0x00280102, k->bits - 1);
    put_u16(to, 0x00280103, k->is_signed);
    put_text(to, 0x00281050, "DS", k->window);
    put_text(to, 0x00281051, "DS", k->window_width);
    put_text(to, 0x00281052, "DS", k->intercept);
    put_text(to, 0x00281053, "DS", k->slope);
}

static void put_raw(const struct kind *k) {
    const int size = (int)k->allocated / 8, pixels = k->width * k->height;
    put_header(&raw, k, "1.2.840.10008.1.2.1");
    put_tag(&raw, 0x7fe00010, k->allocated == 8 ? "OB" : "OW");
    put_number(&raw, 0, 2);
    put_number(&raw, (uint32_t)(pixels * size + pixels * size % 2), 4);
    for (int i = 0; i < pixels; i++)
        put_number(&raw, (uint32_t)values[i] & ((1u << k->bits) - 1), size);
    put(&raw, "\0", (size_t)(pixels * size % 2));
}

static void put_item(struct bytes *to, const uint8_t *data, size_t size) {
    put_tag(to, 0xfffee000, "");
    put_number(to, (uint32_t)(size + size % 2), 4);
    put(to, data, size);
    put(to, "\0", size % 2);
}

static void put_packed(const struct kind *k) {
    const size_t count = k->fragments ? k->fragments : 1, each = stream.size / count / 2 * 2;
    put_header(&packed, k, k->rate > 0 ? "1.2.840.10008.1.2.4.91" : "1.2.840.10008.1.2.4.90");
    put_tag(&packed, 0x7fe00010, "OB");
    put_number(&packed, 0, 2);
    put_number(&packed, 0xffffffff, 4);
    put_item(&packed, NULL, 0);
    for (size_t i = 0; i < count; i++)
        put_item(&packed, stream.data + i * each, i + 1 < count ? each : stream.size - i * each);
    put_tag(&packed, 0xfffee0dd, "");
    put_number(&packed, 0, 4);
}

/* ---- tests ---- */

static void fill(const struct kind *k) {
    const int low = k->is_signed ? -(1 << (k->bits - 1)) : 0, range = 1 << k->bits;
    uint32_t noise = k->bits * 2 + k->is_signed;
    for (int i = 0; i < k->width * k->height; i++) {
        noise = noise * 1664525u + 1013904223u;
        const int smooth = (i % k->width * 3 + i / k->width * 2) * range / 600 % range;
        values[i] = low + (k->rate > 0 ? smooth : (smooth + (int)(noise >> 20)) % range);
    }
    values[0] = low;
    values[k->width * k->height - 1] = low + range - 1;
}

/* A copy of the pixels; NULL if the file is refused. */
static uint8_t *pixels_of(const struct bytes *file) {
    if (decode(file) != CHEX_OK) {
        printf("# %s\n", err.text);
        return NULL;
    }
    const size_t pixels = (size_t)image.width * (size_t)image.height;
    uint8_t *copy = malloc(pixels);
    if (copy)
        memcpy(copy, image.pixels, pixels);
    return copy;
}

/* The largest difference of grey between the compressed file and the other; 256: not decoded. */
static int difference(const struct kind *k) {
    int most = 0;
    fill(k);
    encode(k);
    put_raw(k);
    put_packed(k);
    uint8_t *a = pixels_of(&raw), *b = pixels_of(&packed);
    for (int i = 0; a && b && i < k->width * k->height; i++)
        most = abs(a[i] - b[i]) > most ? abs(a[i] - b[i]) : most;
    if (!a || !b || image.width != k->width || image.height != k->height)
        most = 256;
    free(a);
    free(b);
    return most;
}

static void test_lossless(void) {
    int wrong = 0, files = 0;
    for (unsigned bits = 8; bits <= 16; bits++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            const struct kind k = {.width = 37,
                                   .height = 23,
                                   .bits = bits,
                                   .allocated = bits == 8 && !is_signed ? 8 : 16,
                                   .is_signed = is_signed,
                                   .tile = bits % 2 ? 16 : 0,
                                   .fragments = 1 + bits % 3};
            wrong += difference(&k) != 0;
            files++;
        }
    OK(wrong == 0,
       "%d lossless files of 8 to 16 bits, signed and unsigned, with tiles and "
       "fragments, have the pixels of the uncompressed file",
       files);
    static const struct kind meaning[] = {
        {64, 48, 12, 16, .window = "1800.5", .window_width = "2500", .photometric = "MONOCHROME1"},
        {64, 48, 14, 16, .slope = "0.5", .intercept = "-100", .window = "900",
         .window_width = "1200"},
        {64, 48, 12, 16, .is_signed = true, .window = "0", .window_width = "3000"},
        {64, 48, 8, 8, .photometric = "MONOCHROME1"},
        {1, 2, 12, 16},
        {255, 255, 12, 16, .tile = 64},
        {64, 48, 12, 16, .precision = 16},
    };
    for (size_t i = 0; i < sizeof meaning / sizeof *meaning; i++)
        wrong += difference(&meaning[i]) != 0;
    OK(wrong == 0, "rescale, window and inversion follow as without compression");
}

static void test_lossy(void) {
    const struct kind k = {.width = 128, .height = 128, .bits = 12, .allocated = 16, .rate = 10};
    const int most = difference(&k);
    OK(most > 0 && most < 40, "a lossy file is near the uncompressed one: at most %d of 255", most);
}

static void refuse(const struct kind *k, const char *needle, const char *what) {
    put_packed(k);
    OK(refused(&packed, "x") && strstr(err.text, needle), "refused: %s", what);
}

static void set_u32(size_t at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        stream.data[at + (size_t)i] = (uint8_t)(value >> (24 - 8 * i));
}

static void test_frames(void) {
    const struct kind k = {.width = 40, .height = 30, .bits = 12, .allocated = 16};
    struct kind two = k;
    two.frames = "2";
    fill(&k);
    encode(&k);
    put_raw(&k);
    /* Two complete codestreams: halves of a doubled one. */
    put(&stream, "\0", stream.size % 2);
    put(&stream, stream.data, stream.size);
    two.fragments = 2;
    put_packed(&two);
    uint8_t *a = pixels_of(&raw), *b = pixels_of(&packed);
    OK(a && b && memcmp(a, b, (size_t)k.width * (size_t)k.height) == 0,
       "of two frames the first one is read");
    free(a);
    free(b);
    two.frames = "3";
    refuse(&two, "3 frames of JPEG 2000 in 2 fragments", "frames in another number of fragments");
}

static void test_refused(void) {
    const struct kind k = {.width = 40, .height = 30, .bits = 12, .allocated = 16};
    struct kind other = k;
    fill(&k);
    other.components = 3;
    encode(&other);
    refuse(&k, "JPEG 2000 with 3 components, expected 1", "colour");
    encode(&k);
    other = k;
    other.width = 41;
    refuse(&other, "another size than the 41 x 30 pixels", "another width");
    other = k;
    other.is_signed = true;
    refuse(&other, "12 bits, unsigned; expected at most 16, signed", "another sign");
    other = k;
    other.bits = 11;
    refuse(&other, "does not fit into the 11 bits of BitsStored", "values above the stored bits");
    set_u32(24, 1);
    set_u32(28, 1);
    other = k;
    other.width = other.height = 400;
    set_u32(8, 400);
    set_u32(12, 400);
    refuse(&other, "400 x 400 tiles, expected 1 to 4096", "tiles of one pixel");
    encode(&k);
    set_u32(24, 0);
    refuse(&k, "0 x 1 tiles", "tiles of no width");
    encode(&k);
    set_u32(32, 50);
    refuse(&k, "tiles, expected 1 to", "tiles that begin after the image");
    encode(&k);
    stream.data[42] = 37;
    refuse(&k, "JPEG 2000 with 38 bits", "38 bits");
    encode(&k);
    stream.data[0] = 0;
    refuse(&k, "is no JPEG 2000 codestream", "another first mark");
    stream.size = 0;
    refuse(&k, "is no JPEG 2000 codestream", "no codestream");
}

/* The file is complete, the codestream in it is not. */
static void test_truncated(void) {
    const struct kind k = {.width = 40, .height = 30, .bits = 12, .allocated = 16, .tile = 16};
    size_t passed = 0, ended = 0;
    fill(&k);
    encode(&k);
    const size_t whole = stream.size;
    for (size_t n = 0; n < whole; n++) {
        stream.size = n;
        put_packed(&k);
        passed += !refused(&packed, "x");
    }
    OK(passed == 0, "each of %zu truncated codestreams is refused", whole);
    for (size_t n = 60; n + 2 < whole; n++) {
        encode(&k);
        stream.size = n;
        put(&stream, "\xff\xd9", 2);
        put_packed(&k);
        ended += !refused(&packed, "x");
    }
    OK(ended == 0, "and so are those with an end mark after the cut (%zu passed)", ended);
    encode(&k);
    put_packed(&k);
    passed = cuts_that_pass(&packed, 132, "x");
    OK(passed == 0, "each truncated file is refused (%zu passed)", passed);
}

/* JPEG 2000 has no checksums: a damaged stream may decode. It must not crash or take long. */
static void test_damaged(void) {
    const struct kind k = {.width = 40, .height = 30, .bits = 12, .allocated = 16, .tile = 32};
    uint32_t noise = 1;
    int wrong = 0;
    fill(&k);
    for (int i = 0; i < (TAP_SLOW_BUILD ? 300 : 3000); i++) {
        if (i % 50 == 0) {
            encode(&k);
            put_packed(&k);
        }
        noise = noise * 1664525u + 1013904223u;
        const size_t start = packed.size - stream.size - 8;
        const size_t span = i % 2 ? stream.size : 150; /* every second time in the headers */
        const size_t at = start + (noise >> 8) % (span < stream.size ? span : stream.size);
        packed.data[at] = (uint8_t)(noise >> 3);
        const enum chex_status st = decode(&packed);
        wrong += st != CHEX_OK && st != CHEX_E_DATA;
    }
    OK(wrong == 0, "damaged codestreams are decoded or refused");
}

static void test_openjpeg(void) {
    test_lossless();
    test_lossy();
    test_frames();
    test_refused();
    test_truncated();
    test_damaged();
}
#else
static void test_openjpeg(void) {
    OK_STATUS(image_load(reader, TEST_DATA "/dicom/jpeg-2000.dcm", &image, &err), CHEX_E_ENV, err,
              "is DICOM in JPEG 2000: build chexnet with OpenJPEG (libopenjp2-7-dev");
}
#endif

int main(void) {
    void *symbol;
    if (chex_module_symbol("dicom", "chexnet_image_dicom", &symbol, &err) != CHEX_OK)
        SKIP_ALL("%s", err.text);
    MUST(chex_image_reader_create(&reader, &err));
    test_openjpeg();
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the synthetic radiographs and writes a set of them.
 *
 * - Coordinates are in the unit square: x to the right, y down, centre (0.5, 0.5). The same chest
 *   is drawn at every size in pixels.
 * - A pixel uses only + - * / and sqrt, which IEEE 754 rounds exactly. So no maths library changes
 *   a pixel.
 * - Random numbers are addressed by (seed, item, draw) and have no state. An item is an image, a
 *   patient or a group of patients; enum draw assigns the draws.
 * - Every pattern must be visible at 64 px: several pixels wide and well above the noise.
 */
#include "ingest/phantom.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/rng.h"
#include "image/image.h"
#include "label/labels.h"

enum finding {
    ATELECTASIS,
    CARDIOMEGALY,
    EFFUSION,
    INFILTRATION,
    MASS,
    NODULE,
    PNEUMONIA,
    PNEUMOTHORAX,
    CONSOLIDATION,
    EDEMA,
    EMPHYSEMA,
    FIBROSIS,
    PLEURAL_THICKENING,
    HERNIA
};

/* 10 consecutive images belong to 4 patients, who have 1, 2, 3 and 4 images in random order. */
enum { GROUP_IMAGES = 10, GROUP_PATIENTS = 4 };

/* Fraction of images with each finding. The order of frequency is about that of the NIH set; rare
 * findings are more frequent than there, so that small sets have some. The fraction HEALTHY has no
 * finding. */
static const float prevalence[CHEX_CLASS_COUNT] = {
    [ATELECTASIS] = 0.11f,   [CARDIOMEGALY] = 0.08f,
    [EFFUSION] = 0.13f,      [INFILTRATION] = 0.16f,
    [MASS] = 0.09f,          [NODULE] = 0.10f,
    [PNEUMONIA] = 0.07f,     [PNEUMOTHORAX] = 0.08f,
    [CONSOLIDATION] = 0.08f, [EDEMA] = 0.07f,
    [EMPHYSEMA] = 0.07f,     [FIBROSIS] = 0.07f,
    [HERNIA] = 0.06f,        [PLEURAL_THICKENING] = 0.08f,
};
#define HEALTHY 0.3f

/* First draw number of each purpose. The ranges must not overlap. Pixel noise uses PIXELS and up.
 */
enum draw { LABELS = 0, PATIENT = 8, SHAPE = 16, FINDING = 32, PIXELS = 4096 };

/* Item numbers of patients and groups start here; item numbers of images start at 0. */
static const uint64_t patient_items = (uint64_t)1 << 62, group_items = (uint64_t)1 << 63;

/* ---- random numbers in order ---- */

struct dice {
    uint64_t seed, item;
    uint32_t draw;
    int left;
    struct chex_rng4 block;
};

static struct dice dice_at(uint64_t seed, uint64_t item, uint32_t draw) {
    return (struct dice){.seed = seed, .item = item, .draw = draw};
}

static float roll(struct dice *d) {
    if (!d->left) {
        d->block = chex_rng(d->seed, CHEX_RNG_PHANTOM, d->item, d->draw++);
        d->left = 4;
    }
    return chex_rng_unit(d->block.v[--d->left]);
}

static float between(struct dice *d, float low, float high) { return low + (high - low) * roll(d); }

static int side(struct dice *d) { return roll(d) < 0.5f ? -1 : 1; }

/* ---- patients and labels ---- */

/* Shuffles the image counts 1 to 4 of the group's patients and finds the patient of the image. */
static void find_patient(uint64_t seed, uint64_t index, struct chex_phantom_case *c) {
    uint64_t group = index / GROUP_IMAGES;
    int at = (int)(index % GROUP_IMAGES), images[GROUP_PATIENTS] = {1, 2, 3, 4};
    struct dice d = dice_at(seed, group_items + group, LABELS);
    for (int i = GROUP_PATIENTS - 1; i > 0; i--) {
        int j = (int)(roll(&d) * (float)(i + 1)), swap = images[i];
        images[i] = images[j];
        images[j] = swap;
    }
    int p = 0;
    while (at >= images[p])
        at -= images[p++];
    c->patient = (uint32_t)(group * GROUP_PATIENTS) + (uint32_t)p + 1;
    c->follow_up = (uint32_t)at;
}

void chex_phantom_case(uint64_t seed, uint64_t index, struct chex_phantom_case *out) {
    struct chex_phantom_case c = {0};
    find_patient(seed, index, &c);
    struct dice d = dice_at(seed, patient_items + c.patient, LABELS);
    c.sex = roll(&d) < 0.56f ? 'M' : 'F';
    c.age_years = 18 + (int)(roll(&d) * 70.0f) + (int)c.follow_up;
    d = dice_at(seed, index, LABELS);
    c.view = roll(&d) < 0.6f ? CHEX_VIEW_PA : CHEX_VIEW_AP;
    bool healthy = roll(&d) < HEALTHY;
    for (int k = 0; k < CHEX_CLASS_COUNT; k++)
        c.labels[k] = roll(&d) * (1.0f - HEALTHY) < prevalence[k] && !healthy;
    *out = c;
}

/* ---- shapes ---- */

static float clamp01(float v) { return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v; }

/* Smoothstep from 0 at a to 1 at b, constant outside. If a > b, it falls from 1 to 0. */
static float ramp(float a, float b, float v) {
    float t = clamp01((v - a) / (b - a));
    return t * t * (3.0f - 2.0f * t);
}

/* Distance from the centre of an ellipse in units of its radii: 1 on the edge. */
static float radii(float x, float y, float cx, float cy, float rx, float ry) {
    float u = (x - cx) / rx, v = (y - cy) / ry;
    return sqrtf(u * u + v * v);
}

/* Soft spot without an edge: 1 at r = 0, 0.4 at r = 1. */
static float glow(float r) {
    float s = 1.0f + r * r;
    return 1.0f / (s * s * 0.5f + 0.5f);
}

/* Triangle wave of period 1 between 0 and 1. */
static float wave(float t) {
    t -= floorf(t);
    return t < 0.5f ? 2.0f * t : 2.0f - 2.0f * t;
}

/* The parameters of one image. */
enum { PATCHES = 7 };
struct chest {
    const int8_t *has;
    float middle, lung_rx, lung_ry, lung_dx, lung_cy; // lungs at middle -+ lung_dx
    float dome, heart_rx, heart_ry, heart_cx, heart_cy;
    float rib_period, rib_phase, brightness, contrast, noise;
    /* findings: side (-1: left in the image, 1: right) and position */
    int side[CHEX_CLASS_COUNT];
    float x[CHEX_CLASS_COUNT], y[CHEX_CLASS_COUNT], size[CHEX_CLASS_COUNT];
    float patch_x[PATCHES], patch_y[PATCHES];
};

/* Chooses side and position of finding k, in radii from the lung's centre: u outwards, v down. */
static void place(struct chest *c, int k, struct dice *d, float u0, float u1, float v0, float v1) {
    c->side[k] = side(d);
    c->x[k] = c->middle + (float)c->side[k] * (c->lung_dx + between(d, u0, u1) * c->lung_rx);
    c->y[k] = c->lung_cy + between(d, v0, v1) * c->lung_ry;
}

static void place_findings(struct chest *c, uint64_t seed, uint64_t index) {
    static const float where[CHEX_CLASS_COUNT][4] = {
        [ATELECTASIS] = {-0.1f, 0.1f, 0.05f, 0.45f}, [MASS] = {-0.2f, 0.35f, -0.55f, 0.3f},
        [NODULE] = {-0.25f, 0.5f, -0.6f, 0.25f},     [INFILTRATION] = {-0.15f, 0.15f, -0.1f, 0.3f},
        [PNEUMONIA] = {-0.1f, 0.1f, 0.25f, 0.45f},
    };
    for (int k = 0; k < CHEX_CLASS_COUNT; k++) {
        struct dice d = dice_at(seed, index, FINDING + 8 * (uint32_t)k);
        const float *w = where[k];
        place(c, k, &d, w[0], w[1], w[2], w[3]);
        c->size[k] = between(&d, 0.85f, 1.15f);
        if (k != INFILTRATION)
            continue;
        for (int i = 0; i < PATCHES; i++) {
            c->patch_x[i] = c->x[k] + between(&d, -0.6f, 0.6f) * c->lung_rx;
            c->patch_y[i] = c->y[k] + between(&d, -0.4f, 0.4f) * c->lung_ry;
        }
    }
}

static struct chest compose(uint64_t seed, uint64_t index, const struct chex_phantom_case *who) {
    struct chest c = {.has = who->labels};
    struct dice d = dice_at(seed, patient_items + who->patient, PATIENT);
    c.lung_rx = between(&d, 0.150f, 0.170f);
    c.lung_ry = between(&d, 0.30f, 0.34f);
    c.lung_dx = between(&d, 0.205f, 0.220f);
    c.rib_period = between(&d, 0.088f, 0.100f);
    c.heart_rx = between(&d, 0.095f, 0.110f);
    d = dice_at(seed, index, SHAPE);
    c.middle = between(&d, 0.485f, 0.515f);
    c.lung_cy = between(&d, 0.44f, 0.47f);
    c.dome = c.lung_cy + c.lung_ry * between(&d, 0.66f, 0.74f);
    c.rib_phase = roll(&d);
    c.brightness = between(&d, -10.0f, 10.0f) + (who->view == CHEX_VIEW_AP ? 6.0f : 0.0f);
    c.contrast = between(&d, 0.92f, 1.08f);
    c.noise = between(&d, 4.0f, 7.0f);
    c.heart_ry = c.heart_rx * 1.15f;
    c.heart_cx = c.middle + 0.045f;
    if (who->labels[EMPHYSEMA]) // flat, low diaphragm
        c.dome += 0.055f;
    c.heart_cy = c.dome - 0.085f;
    if (who->labels[CARDIOMEGALY]) {
        float grown = between(&d, 1.75f, 2.0f);
        c.heart_rx *= grown;
        c.heart_ry *= 1.0f + 0.5f * (grown - 1.0f);
        c.heart_cy -= 0.03f;
    }
    place_findings(&c, seed, index);
    return c;
}

enum { TISSUE = 168, AIR = 62 };

/* Distance of a point from the centre of a lung, in radii. lung_field() cuts the lower end at the
 * diaphragm. */
static float lung_radii(const struct chest *c, int s, float x, float y) {
    float cx = c->middle + (float)s * c->lung_dx;
    float narrow = 1.0f - 0.30f * clamp01((c->lung_cy - y) / c->lung_ry); // towards the apex
    return radii(x, y, cx, c->lung_cy, c->lung_rx * narrow,
                 c->lung_ry * (y > c->lung_cy ? 1.3f : 1));
}

/* The height (y) of the diaphragm below a lung: a dome, flat with emphysema. */
static float dome_at(const struct chest *c, int s, float x) {
    float u = (x - c->middle - (float)s * c->lung_dx) / c->lung_rx;
    float bend = c->has[EMPHYSEMA] ? 0.01f : 0.055f;
    return c->dome + bend * u * u;
}

/* Sum of the opacities inside lung s at (x, y). r: lung_radii() of the point. */
static float lung_findings(const struct chest *c, int s, float x, float y, float r) {
    const int8_t *has = c->has;
    float v = 0.0f;
    float outer = (x - c->middle - (float)s * c->lung_dx) / c->lung_rx * (float)s; // 1: the side
#define HERE(k) (has[k] && c->side[k] == s)
    if (HERE(ATELECTASIS)) { // a plate: a long thin line, a little aslant
        float t = y - c->y[ATELECTASIS] - 0.12f * (x - c->x[ATELECTASIS]);
        v += 95.0f * ramp(0.024f, 0.012f, fabsf(t));
    }
    if (HERE(INFILTRATION)) // many small soft patches
        for (int i = 0; i < PATCHES; i++)
            v += 70.0f * glow(radii(x, y, c->patch_x[i], c->patch_y[i], 0.024f, 0.024f));
    if (HERE(MASS)) {
        float m =
            radii(x, y, c->x[MASS], c->y[MASS], 0.075f * c->size[MASS], 0.070f * c->size[MASS]);
        v += 85.0f * ramp(1.12f, 0.88f, m);
    }
    if (HERE(NODULE)) {
        float n = 0.042f * c->size[NODULE];
        v += 125.0f * ramp(1.25f, 0.75f, radii(x, y, c->x[NODULE], c->y[NODULE], n, n));
    }
    if (HERE(PNEUMONIA)) { // a dense patch with air-filled bronchi: dark stripes
        float p = radii(x, y, c->x[PNEUMONIA], c->y[PNEUMONIA], 0.14f, 0.12f);
        float stripes = wave((x * (float)s + y) / 0.085f);
        v += ramp(1.15f, 0.75f, p) * (35.0f + 80.0f * ramp(0.35f, 0.65f, stripes));
    }
    if (HERE(CONSOLIDATION)) // the upper lobe, down to a straight fissure
        v += 72.0f * ramp(0.010f, -0.010f, y - (c->lung_cy - 0.22f * c->lung_ry));
    if (has[EDEMA]) { // both hila, like wings
        float wx = c->middle + (float)s * 0.115f;
        v += 88.0f * glow(radii(x, y, wx, c->lung_cy + 0.01f, 0.085f, 0.115f) * 0.9f);
    }
    if (has[FIBROSIS]) { // a net at both bases
        float base = ramp(c->lung_cy + 0.06f, c->lung_cy + 0.10f, y);
        float net = fmaxf(wave(x / 0.0625f), wave(y / 0.0625f));
        v += base * 75.0f * ramp(0.55f, 0.80f, net);
    }
    if (has[EMPHYSEMA])
        v -= 34.0f;
    if (HERE(PLEURAL_THICKENING)) // a bright rind along the side
        v += 90.0f * ramp(0.70f, 0.80f, r) * ramp(0.05f, 0.3f, outer);
    return v;
#undef HERE
}

/* Air beside the collapsed lung: black without structure, with a fine bright line at the lung. */
static float pneumothorax(const struct chest *c, int s, float x, float y, float r, float v) {
    if (!c->has[PNEUMOTHORAX] || c->side[PNEUMOTHORAX] != s)
        return v;
    float edge = radii(x, y, c->middle + (float)s * (c->lung_dx - 0.055f),
                       c->lung_cy + 0.13f * c->lung_ry, c->lung_rx * 0.82f, c->lung_ry * 0.95f);
    if (r > 1.0f)
        return v;
    float air = ramp(0.98f, 1.02f, edge);
    v = v + (8.0f - v) * air;
    return v + 70.0f * ramp(0.09f, 0.03f, fabsf(edge - 0.97f));
}

static float lung_field(const struct chest *c, int s, float x, float y, float body) {
    float r = lung_radii(c, s, x, y);
    float inside = ramp(1.04f, 0.96f, r);
    if (inside <= 0.0f)
        return body;
    float air = AIR + 26.0f * r * r;
    float rib = wave(y / c->rib_period + c->rib_phase + 1.6f * (x - c->middle) * (float)s);
    air += 20.0f * ramp(0.62f, 0.86f, rib);
    air += lung_findings(c, s, x, y, r);
    air = pneumothorax(c, s, x, y, r, air);
    float dome = dome_at(c, s, x), below = body;
    if (c->has[EFFUSION] && c->side[EFFUSION] == s) { // fluid: the level climbs at the side
        float u = (x - c->middle - (float)s * c->lung_dx) / c->lung_rx * (float)s;
        dome -= 0.105f * c->size[EFFUSION] + 0.075f * clamp01(u) * clamp01(u);
        below = 205.0f;
    }
    air += (below - air) * ramp(-0.006f, 0.006f, y - dome);
    return body + (air - body) * inside;
}

/* A stomach bubble behind the heart: a bright ring around air. */
static float hernia(const struct chest *c, float x, float y, float v) {
    if (!c->has[HERNIA])
        return v;
    float h = radii(x, y, c->middle - 0.01f, c->dome - 0.05f, 0.072f * c->size[HERNIA],
                    0.066f * c->size[HERNIA]);
    v += (45.0f - v) * ramp(0.85f, 0.65f, h);
    return v + (240.0f - v) * ramp(0.25f, 0.12f, fabsf(h - 0.98f));
}

/* Grey value of a point without noise. */
static float shade(const struct chest *c, float x, float y) {
    float shoulders = 0.10f * ramp(0.45f, 0.05f, y);
    float body = 22.0f + (TISSUE - 40.0f) *
                             ramp(0.50f, 0.44f, fabsf(x - c->middle) * (1.0f - shoulders)) *
                             ramp(0.0f, 0.06f, y + 0.03f);
    float v = lung_field(c, -1, x, y, body);
    v = lung_field(c, 1, x, y, v);
    float spine = ramp(0.075f, 0.045f, fabsf(x - c->middle));
    v += (fmaxf(v, 178.0f) - v) * spine;
    float heart =
        ramp(1.06f, 0.94f, radii(x, y, c->heart_cx, c->heart_cy, c->heart_rx, c->heart_ry));
    v += (fmaxf(v, 188.0f) - v) * heart * ramp(0.02f, -0.02f, y - c->dome - 0.06f);
    return hernia(c, x, y, v);
}

/* Approximately normal, standard deviation 1: the sum of the four bytes of a random word. */
static float noise(uint32_t word) {
    int sum =
        (int)(word & 255) + (int)(word >> 8 & 255) + (int)(word >> 16 & 255) + (int)(word >> 24);
    return (float)(sum - 510) * (1.0f / 147.8f);
}

static uint8_t grey(float v) { return (uint8_t)(v <= 0.0f ? 0 : v >= 255.0f ? 255 : v + 0.5f); }

enum chex_status chex_phantom_draw(uint64_t seed, uint64_t index, int size, uint8_t *pixels,
                                   struct chex_error *err) {
    if (size < CHEX_PHANTOM_MIN_SIZE_PX || size > CHEX_PHANTOM_MAX_SIZE_PX)
        return chex_error_set(err, CHEX_E_USAGE, "phantom size %d, expected %d to %d px", size,
                              CHEX_PHANTOM_MIN_SIZE_PX, CHEX_PHANTOM_MAX_SIZE_PX);
    struct chex_phantom_case who;
    chex_phantom_case(seed, index, &who);
    struct chest c = compose(seed, index, &who);
    struct chex_rng4 words = {{0}};
    size_t n = (size_t)size * (size_t)size;
    float step = 1.0f / (float)size;
    for (size_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            words = chex_rng(seed, CHEX_RNG_PHANTOM, index, PIXELS + (uint32_t)(i / 4));
        float x = ((float)(i % (size_t)size) + 0.5f) * step;
        float y = ((float)(i / (size_t)size) + 0.5f) * step;
        float v = (shade(&c, x, y) - 120.0f) * c.contrast + 120.0f + c.brightness;
        pixels[i] = grey(v + c.noise * noise(words.v[i % 4]));
    }
    return CHEX_OK;
}

/* ---- writing a set ---- */

enum { MAX_COUNT = 10000000 };

struct job {
    const struct chex_phantom_options *options;
    const char *images; /* dir/images */
    uint8_t *pixels;    /* one image for each worker */
    struct chex_progress *progress;
    atomic_ullong done;
};

static void image_name(const struct chex_phantom_case *c, char out[32]) {
    snprintf(out, 32, "%08u_%03u.png", c->patient, c->follow_up);
}

static enum chex_status write_one(void *arg, size_t index, int worker, struct chex_error *err) {
    struct job *job = arg;
    const struct chex_phantom_options *o = job->options;
    const int size = (int)o->size;
    uint8_t *pixels = job->pixels + (size_t)worker * (size_t)size * (size_t)size;
    struct chex_phantom_case c;
    char name[32];
    chex_phantom_case(o->seed, index, &c);
    image_name(&c, name);
    CHEX_TRY(chex_phantom_draw(o->seed, index, size, pixels, err));
    enum chex_status st =
        chex_image_write_png(chex_path(job->images, name).text, pixels, size, size, err);
    chex_progress_set(job->progress, atomic_fetch_add(&job->done, 1) + 1, NULL);
    return st;
}

static enum chex_status write_images(struct job *job, struct chex_error *err) {
    const struct chex_phantom_options *o = job->options;
    const size_t bytes = (size_t)o->size * (size_t)o->size;
    const int workers = (int)o->workers;
    CHEX_AUTO_FREE uint8_t *pixels = job->pixels = chex_alloc_aligned((size_t)workers, bytes);
    if (!pixels)
        return chex_error_memory(err, "%d phantom images of %d px", workers, (int)o->size);
    job->progress = chex_progress_create("drawing", "img", o->count, true);
    enum chex_status st = chex_pool_try(workers, o->count, write_one, job, err);
    chex_progress_destroy(job->progress, st == CHEX_OK);
    return st;
}

static void print_findings(FILE *out, const struct chex_phantom_case *c) {
    const char *bar = "";
    for (int k = 0; k < CHEX_CLASS_COUNT; k++)
        if (c->labels[k]) {
            fprintf(out, "%s%s", bar, chex_class_names[k]);
            bar = "|";
        }
    if (!*bar)
        fputs("No Finding", out);
}

/* Writes labels.csv with the NIH's header line, which has 9 names for rows of 11 fields. */
static enum chex_status write_labels(const struct chex_phantom_options *o, const char *path,
                                     struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return chex_error_memory(err, "%s", path);
    fputs("Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,"
          "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n",
          out);
    const int side_px = (int)o->size;
    double spacing_mm = 360.0 / side_px;
    for (uint64_t i = 0; i < o->count; i++) {
        struct chex_phantom_case c;
        char name[32];
        chex_phantom_case(o->seed, i, &c);
        image_name(&c, name);
        fprintf(out, "%s,", name);
        print_findings(out, &c);
        fprintf(out, ",%u,%u,%d,%c,%s,%d,%d,%.3f,%.3f\n", c.follow_up, c.patient, c.age_years,
                c.sex, chex_view_name(c.view), side_px, side_px, spacing_mm, spacing_mm);
    }
    bool ok = !ferror(out);
    ok = fclose(out) == 0 && ok;
    return ok ? chex_fs_write(path, text, size, err) : chex_error_memory(err, "%s", path);
}

static enum chex_status check_options(const struct chex_phantom_options *o,
                                      struct chex_error *err) {
    if (o->count < 1 || o->count > MAX_COUNT)
        return chex_error_set(err, CHEX_E_USAGE, "--count %llu: expected 1 to %d",
                              (unsigned long long)o->count, MAX_COUNT);
    if (o->size < CHEX_PHANTOM_MIN_SIZE_PX || o->size > CHEX_PHANTOM_MAX_SIZE_PX)
        return chex_error_set(err, CHEX_E_USAGE, "--size %d: expected %d to %d px", (int)o->size,
                              CHEX_PHANTOM_MIN_SIZE_PX, CHEX_PHANTOM_MAX_SIZE_PX);
    if (o->workers < 1)
        return chex_error_set(err, CHEX_E_USAGE, "--workers %d: expected at least 1",
                              (int)o->workers);
    return CHEX_OK;
}

static enum chex_status write_set(struct job *job, const char *labels, struct chex_error *err) {
    const struct chex_phantom_options *o = job->options;
    if (chex_fs_exists(job->images) || chex_fs_exists(labels))
        return chex_error_set(err, CHEX_E_USAGE, "%s exists, expected a new or empty folder",
                              chex_fs_exists(labels) ? labels : job->images);
    enum chex_status st = chex_fs_mkdirs(job->images, err);
    if (st == CHEX_OK)
        st = write_images(job, err);
    if (st == CHEX_OK)
        st = write_labels(o, labels, err);
    if (st != CHEX_OK)
        chex_fs_remove_tree(job->images, NULL); /* this call made the folder */
    return st;
}

enum chex_status chex_phantom_write(const struct chex_phantom_options *options,
                                    struct chex_error *err) {
    CHEX_TRY(check_options(options, err));
    const struct chex_path images = chex_path(options->dir, "images");
    struct job job = {.options = options, .images = images.text};
    return write_set(&job, chex_path(options->dir, "labels.csv").text, err);
}

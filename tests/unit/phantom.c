/* SPDX-License-Identifier: Apache-2.0
 *
 * That a network can learn the findings is shown by tests/peers/phantom_train.py.
 */
#include "ingest/phantom.h"

#include <inttypes.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "dir.h"
#include "image/image.h"
#include "images.h"
#include "label/labels.h"
#include "tap.h"

static struct chex_error err;
static const uint64_t recorded_a = 0x7ccbec6884ef89e0, recorded_b = 0x9f394a6a5eebbb4d;

static uint64_t digest(uint64_t seed, uint64_t first, int count, int size) {
    uint64_t h = 0;
    uint8_t *p = malloc((size_t)size * (size_t)size);
    for (int i = 0; i < count; i++) {
        MUST(chex_phantom_draw(seed, first + (uint64_t)i, size, p, &err));
        h = chex_hash64_mix(h, p, (size_t)size * (size_t)size);
    }
    free(p);
    return h;
}

/* The pictures are the same for every compiler and machine: recorded once. */
static void check_pixels(void) {
    uint64_t a = digest(1, 0, 40, 64), b = digest(7, 123456789012u, 3, 200);
    OK(a == recorded_a, "40 images of 64 px, seed 1: %016" PRIx64, a);
    OK(b == recorded_b, "3 images of 200 px, seed 7: %016" PRIx64, b);
    OK(digest(2, 0, 1, 64) != digest(1, 0, 1, 64), "another seed, another picture");
    OK(digest(1, 0, 1, 64) != digest(1, 1, 1, 64), "another index likewise");
    uint8_t p[1];
    OK_STATUS(chex_phantom_draw(1, 0, 31, p, &err), CHEX_E_USAGE, err, "expected 32 to 4096 px");
    OK_STATUS(chex_phantom_draw(1, 0, 4097, p, &err), CHEX_E_USAGE, err, "phantom size 4097");
}

static void check_cases(void) {
    enum { N = 2000 };
    int with[CHEX_CLASS_COUNT] = {0}, healthy = 0, most = 0, pa = 0;
    bool order = true, same = true;
    struct chex_phantom_case last = {0}, c;
    for (uint64_t i = 0; i < N; i++) {
        chex_phantom_case(5, i, &c);
        int findings = 0;
        for (int k = 0; k < CHEX_CLASS_COUNT; k++) {
            with[k] += c.labels[k];
            findings += c.labels[k];
        }
        healthy += findings == 0;
        pa += c.view == CHEX_VIEW_PA;
        most = (int)c.follow_up > most ? (int)c.follow_up : most;
        bool next = c.patient == last.patient + 1 && c.follow_up == 0;
        bool again = c.patient == last.patient && c.follow_up == last.follow_up + 1;
        order = order && (next || again);
        same = same && (next || (c.sex == last.sex && c.age_years == last.age_years + 1));
        last = c;
    }
    bool enough = true;
    for (int k = 0; k < CHEX_CLASS_COUNT; k++)
        enough = enough && with[k] >= N / 20 && with[k] <= N / 5;
    OK(enough, "each finding in 5 to 20 %% of the images");
    OK(healthy > N / 4 && healthy < N / 2, "%d of %d healthy", healthy, N);
    OK(order && most == 3 && last.patient == 800, "patients follow each other, 1 to 4 images each");
    OK(same, "a patient keeps its sex and grows older");
    OK(pa > N / 2 && pa < N * 7 / 10, "both views");
}

/* A digest over the files of a set that was written with so many threads. */
static uint64_t write_set(const char *name, int threads) {
    const char *path = dir_path("%s", name);
    struct chex_phantom_options o = {
        .dir = path, .count = 60, .size = 48, .seed = 9, .workers = threads};
    OK_CALL(chex_phantom_write(&o, &err));
    struct chex_label_table *t = NULL;
    char *labels = chex_fs_join(path, "labels.csv");
    OK_CALL(chex_labels_load(labels, NULL, NULL, &t, &err));
    BAIL_UNLESS(t, "no labels");
    bool equal = t->count == 60 && !strcmp(t->format, "nih");
    uint64_t h = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct chex_phantom_case c;
        chex_phantom_case(9, i, &c);
        equal = equal && !memcmp(c.labels, t->rows[i].labels, CHEX_CLASS_COUNT) &&
                c.view == t->rows[i].view && c.sex == t->rows[i].sex &&
                c.age_years == t->rows[i].age_years && strlen(t->rows[i].patient_id) == 8 &&
                (uint32_t)atoi(t->rows[i].patient_id) == c.patient;
        char *image = chex_fs_format("%s/images/%s", path, t->rows[i].image_id), *data = NULL;
        size_t size;
        MUST(chex_fs_read(image, 1 << 20, &data, &size, &err));
        h = chex_hash64_mix(h, data, size);
        free(data);
        free(image);
    }
    OK(equal, "labels.csv says what was planted");
    free(labels);
    chex_labels_free(t);
    return h;
}

static void check_write(void) {
    uint64_t one = write_set("one", 1), four = write_set("four", 4);
    OK(one == four, "the files do not depend on the threads");
    const char *path = dir_path("one"), *images = dir_path("one/images/00000001_000.png");
    struct chex_phantom_options o = {.dir = path, .count = 5, .size = 64, .workers = 2};
    OK_STATUS(chex_phantom_write(&o, &err), CHEX_E_USAGE, err, "labels.csv exists");

    uint8_t pixels[64 * 64];
    struct chex_image image = {0};
    struct chex_image_reader *reader = NULL;
    BAIL_UNLESS(chex_image_reader_create(&reader, &err) == CHEX_OK, "no reader");
    chex_phantom_draw(9, 0, 48, pixels, &err);
    OK(image_load(reader, images, &image, &err) == CHEX_OK && image.width == 48 &&
           !memcmp(image.pixels, pixels, 48 * 48),
       "a file holds the drawn pixels");
    chex_image_reader_destroy(reader);
    chex_image_release(&image);

    o.dir = path = dir_path("never");
    o.count = 0;
    OK_STATUS(chex_phantom_write(&o, &err), CHEX_E_USAGE, err, "--count 0: expected 1 to");
    o.count = 1, o.size = 8;
    OK_STATUS(chex_phantom_write(&o, &err), CHEX_E_USAGE, err, "--size 8: expected");
    o.size = 64, o.workers = 0;
    OK_STATUS(chex_phantom_write(&o, &err), CHEX_E_USAGE, err, "--workers 0: expected");
    OK(!chex_fs_exists(path), "a refused set leaves no folder");
    o.workers = 1, o.dir = "/proc/none";
    OK_STATUS(chex_phantom_write(&o, &err), CHEX_E_ENV, err, "cannot make folder");
}

int main(void) {
    dir_make();
    check_pixels();
    check_cases();
    check_write();
    dir_remove();
    return tap_done();
}

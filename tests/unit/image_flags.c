/* SPDX-License-Identifier: Apache-2.0
 *
 * Flags of images: the radiographs of the sample have none, their negatives are inverted, and each
 * other rule on a picture made for it.
 */
#include "infer/image_flags.h"

#include <dirent.h>

#include "images.h"
#include "tap.h"

static struct chex_error err;

#define SAMPLE TEST_DATA "/../../datasets/nih-sample/images"
enum { SIDE = 64 };

static bool has(unsigned flags, enum chex_image_flag flag) { return flags >> flag & 1; }

/* Counts flagged radiographs, and inverted ones among their negatives. */
static void check_sample(void) {
    struct chex_image_reader *reader = NULL;
    struct chex_image image = {0};
    int count = 0, flagged = 0, found = 0;
    DIR *d = opendir(SAMPLE);
    BAIL_UNLESS(d && chex_image_reader_create(&reader, &err) == CHEX_OK, "no sample");
    for (struct dirent *e; (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", SAMPLE, e->d_name);
        if (e->d_name[0] == '.' || image_load(reader, path, &image, &err) != CHEX_OK)
            continue;
        BAIL_UNLESS(image.width == SIDE && image.height == SIDE, "%s: another size", path);
        count++;
        flagged += chex_image_flags_of_pixels(image.pixels, SIDE) != 0 ||
                   chex_image_flags_of_file(&image, SIDE) != 0;
        for (int i = 0; i < SIDE * SIDE; i++)
            image.pixels[i] = (uint8_t)(255 - image.pixels[i]);
        found += has(chex_image_flags_of_pixels(image.pixels, SIDE), CHEX_FLAG_INVERTED);
    }
    closedir(d);
    OK(count > 900 && flagged == 0, "none of %d radiographs has a flag", count);
    OK(found >= count * 99 / 100, "%d of %d negatives are inverted", found, count);
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
}

/* A picture of two levels side by side: `low`, and `high` from column `from` on. */
static unsigned flags_of_halves(int low, int high, int from) {
    uint8_t pixels[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        pixels[i] = (uint8_t)(i % SIDE < from ? low : high);
    return chex_image_flags_of_pixels(pixels, SIDE);
}

static void check_range(void) {
    OK(flags_of_halves(90, 97, 32) == 1u << CHEX_FLAG_BLANK, "a range below 8 levels is blank");
    OK(!has(flags_of_halves(90, 98, 32), CHEX_FLAG_BLANK), "a range of 8 levels is not");
    OK(has(flags_of_halves(90, 121, 32), CHEX_FLAG_LOW_CONTRAST),
       "a range below 32 levels has low contrast");
    OK(!has(flags_of_halves(90, 122, 32), CHEX_FLAG_LOW_CONTRAST), "a range of 32 levels has not");
    OK(has(flags_of_halves(0, 255, 62), CHEX_FLAG_LOW_CONTRAST),
       "a few bright columns do not make contrast");
}

static unsigned of_file(int width, int height, uint64_t checked, uint64_t coloured,
                        const char *view) {
    struct chex_image image = {.width = width, .height = height};
    image.about.checked = checked;
    image.about.coloured = coloured;
    snprintf(image.about.view, sizeof image.about.view, "%s", view);
    return chex_image_flags_of_file(&image, SIDE);
}

static void check_file(void) {
    OK(of_file(200, 100, 0, 0, "PA") == 0, "a side twice the other is no fault");
    OK(of_file(201, 100, 0, 0, "") == 1u << CHEX_FLAG_NARROW, "more than twice is narrow");
    OK(of_file(100, 201, 0, 0, "") == 1u << CHEX_FLAG_NARROW, "in both directions");
    OK(of_file(32, 40, 0, 0, "") == 0 && of_file(31, 40, 0, 0, "") == 1u << CHEX_FLAG_SMALL,
       "less than half of the stored size is small");
    OK(of_file(100, 100, 1000, 10, "") == 0 &&
           of_file(100, 100, 1000, 11, "") == 1u << CHEX_FLAG_COLOUR,
       "more than 1 %% coloured pixels make a colour image");
    OK(of_file(100, 100, 0, 0, "LL") == 1u << CHEX_FLAG_LATERAL &&
           chex_image_is_lateral("LATERAL") && !chex_image_is_lateral("AP"),
       "LL, RL and LATERAL are lateral views");
}

static void check_text(void) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    BAIL_UNLESS(to, "out of memory");
    chex_image_flags_put(to, 1u << CHEX_FLAG_COLOUR | 1u << CHEX_FLAG_FAR);
    fclose(to);
    OK(strcmp(text, "far;colour") == 0, "names are separated by semicolons");
    free(text);
}

int main(void) {
    check_sample();
    check_range();
    check_file();
    check_text();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Colour to grey: the definition against its sum written out, what this machine chooses against
 * the definition, for all lengths around the vectors and in place.
 */
#include "image/grey.h"

#include "tap.h"

enum { MOST = 200 };

static uint32_t draw(void) {
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return state >> 16;
}

static void check_definition(void) {
    int wrong = 0;
    for (int i = 0; i < 5000; i++) {
        const uint8_t c[4] = {(uint8_t)draw(), (uint8_t)draw(), (uint8_t)draw(), (uint8_t)draw()};
        const uint32_t want = (c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 32768u) >> 16;
        uint8_t three, four;
        chex_grey_plain(c, 3, 1, &three);
        chex_grey_plain(c, 4, 1, &four);
        wrong += three != want || four != want;
    }
    OK(wrong == 0, "the definition");
}

/* Memory of the exact size, so that the sanitizer sees a byte too many. */
static void check_lengths(size_t pixel_bytes) {
    static const uint8_t extremes[2] = {0, 255};
    int wrong = 0, in_place = 0;
    for (size_t n = 0; n <= MOST; n++)
        for (int kind = 0; kind < 2; kind++) {
            uint8_t want[MOST];
            uint8_t *colour = malloc(n * pixel_bytes + !n), *grey = malloc(n + !n);
            BAIL_UNLESS(colour && grey, "no memory");
            for (size_t i = 0; i < n * pixel_bytes; i++)
                colour[i] = kind ? extremes[draw() & 1] : (uint8_t)draw();
            chex_grey_plain(colour, pixel_bytes, n, want);
            chex_grey_of_colour(colour, pixel_bytes, n, grey);
            wrong += memcmp(grey, want, n) != 0;
            chex_grey_of_colour(colour, pixel_bytes, n, colour);
            in_place += memcmp(colour, want, n) != 0;
            free(colour);
            free(grey);
        }
    OK(wrong == 0, "%zu bytes a pixel: 0 to %d pixels", pixel_bytes, MOST);
    OK(in_place == 0, "%zu bytes a pixel: in place", pixel_bytes);
}

int main(void) {
    check_definition();
    check_lengths(3);
    check_lengths(4);
    return tap_done();
}

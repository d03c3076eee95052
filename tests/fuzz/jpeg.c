/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a JPEG: pixels or one error text; the same verdict at full size and for a target of
 * 32 px, sizes by the rule of image.h, and the same pixels when asked again.
 */
#include <stdbool.h>
#include <string.h>

#include "fuzz.h"
#include "image/image.h"

enum { TARGET_PX = 32, MAX_PIXELS = 1 << 18 };

/* Whether some frame header may say more pixels than are worth the time. */
static bool is_large(const uint8_t *data, size_t size) {
    for (size_t i = 0; i + 8 < size; i++)
        if (data[i] == 0xff && (data[i + 1] & 0xf0) == 0xc0 &&
            (data[i + 5] << 8 | data[i + 6]) * (uint64_t)(data[i + 7] << 8 | data[i + 8]) >
                MAX_PIXELS)
            return true;
    return false;
}

static enum chex_status decode(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               int target, struct chex_image *image) {
    struct chex_error err = {0};
    chex_image_reader_set_target(reader, target);
    enum chex_status st = chex_image_decode(reader, data, size, "x", image, &err);
    FUZZ_CHECK(st == CHEX_OK || (st == CHEX_E_DATA && err.text[0] && image->width == 0));
    return st;
}

static bool follows_rule(int whole_w, int whole_h, int w, int h) {
    int scale = 1;
    while (scale < 8 && (whole_w + 2 * scale - 1) / (2 * scale) >= 4 * TARGET_PX &&
           (whole_h + 2 * scale - 1) / (2 * scale) >= 4 * TARGET_PX)
        scale *= 2;
    return w == (whole_w + scale - 1) / scale && h == (whole_h + scale - 1) / scale;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct chex_image_reader *reader;
    static struct chex_image first, small, again;
    struct chex_error err = {0};
    const char *format = chex_image_format(data, size);
    if (!format || strcmp(format, "jpeg") || is_large(data, size))
        return 0;
    FUZZ_CHECK(reader || chex_image_reader_create(&reader, &err) == CHEX_OK);
    enum chex_status st = decode(reader, data, size, 0, &first);
    FUZZ_CHECK(decode(reader, data, size, TARGET_PX, &small) == st);
    FUZZ_CHECK(decode(reader, data, size, 0, &again) == st);
    if (st != CHEX_OK)
        return 0;
    FUZZ_CHECK(follows_rule(first.width, first.height, small.width, small.height));
    FUZZ_CHECK(first.width == again.width && first.height == again.height);
    size_t bytes = (size_t)first.width * (size_t)first.height;
    FUZZ_CHECK(memcmp(first.pixels, again.pixels, bytes) == 0);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards from elsewhere whose texts have control characters.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard/shard_write.h"
#include "shard/verify.h"
#include "tap.h"

static const char *image = "a.png", *patient = "p", *class_name = "Mass";
static char path[64];

static void get_row(const void *arg, size_t i, struct chex_shard_row *out) {
    static const int8_t label[1] = {0};
    (void)arg;
    *out = (struct chex_shard_row){i ? "b.png" : image, i ? "q" : patient, .labels = label,
                                   .age_years = -1};
}

/* Verifies a shard of two rows with the texts above. */
static enum chex_status verify(struct chex_verify_result *r, struct chex_error *err) {
    static const uint8_t pixels[16 * 16];
    const struct chex_shard_spec spec = {.rows = 2,
                                         .size = 16,
                                         .classes = 1,
                                         .class_names = &class_name,
                                         .resize = "pillow-bilinear",
                                         .split = "all",
                                         .tool_version = "test",
                                         .row = get_row};
    struct chex_shard_writer *w = NULL;
    BAIL_UNLESS(chex_shard_create(path, &spec, &w, err) == CHEX_OK, "%s", err->text);
    for (size_t i = 0; i < 2; i++)
        BAIL_UNLESS(chex_shard_put(w, i, pixels, err) == CHEX_OK, "%s", err->text);
    BAIL_UNLESS(chex_shard_finish(w, "00112233445566778899aabbccddeeff", err) == CHEX_OK, "%s",
                err->text);
    return chex_verify(path, NULL, 1, false, r, err);
}

int main(void) {
    struct chex_verify_result r;
    struct chex_error err = {0};
    char dir[] = "/tmp/chex-verify-XXXXXX";
    BAIL_UNLESS(mkdtemp(dir), "mkdtemp");
    snprintf(path, sizeof path, "%s/all-00000-of-00001.h5", dir);
    OK_STATUS(verify(&r, &err), CHEX_OK, err, NULL);
    chex_verify_release(&r);
    image = "a\033[2J.png";
    OK_STATUS(verify(&r, &err), CHEX_E_DATA, err,
              "row 0: image_id 'a\\x1B[2J.png' has control characters");
    OK(r.fault_count == 1, "an image id with an escape sequence is a fault");
    chex_verify_release(&r);
    image = "a.png";
    patient = "p\xc2\x9b"
              "1m";
    OK_STATUS(verify(&r, &err), CHEX_E_DATA, err, "row 0: patient_id 'p\\xC2\\x9B1m' has control");
    chex_verify_release(&r);
    patient = "p";
    class_name = "Mass\r";
    OK_STATUS(verify(&r, &err), CHEX_E_DATA, err, "finding 'Mass\\x0D' has control characters");
    chex_verify_release(&r);
    unlink(path);
    rmdir(dir);
    return tap_done();
}

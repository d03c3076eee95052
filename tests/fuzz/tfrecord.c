/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a TFRecord file and, since a checksum keeps most of them out, as a record: what is
 * found lies within them, or there is one error text.
 */
#include "ingest/tfrecord.h"
#include "fuzz.h"

static void check_file(const uint8_t *data, size_t size) {
    struct chex_tfrecord *reader = NULL;
    struct chex_error err = {0};
    FUZZ_CHECK(chex_tfrecord_open(fuzz_file("", 0, data, size), &reader, &err) == CHEX_OK);
    for (const uint8_t *record = data; record;) {
        size_t bytes = 0;
        uint64_t at = 0;
        record = NULL;
        enum chex_status st = chex_tfrecord_next(reader, &record, &bytes, &at, &err);
        FUZZ_CHECK(st == CHEX_OK || (st == CHEX_E_DATA && err.text[0]));
        if (st != CHEX_OK)
            break;
        FUZZ_CHECK(!record || (at <= size && bytes <= size - at));
    }
    chex_tfrecord_close(reader);
}

static void check_record(const uint8_t *data, size_t size) {
    struct chex_tfrecord_example e;
    struct chex_error err = {0};
    enum chex_status st = chex_tfrecord_parse(data, size, &e, &err);
    if (st != CHEX_OK) {
        FUZZ_CHECK(st == CHEX_E_DATA && err.text[0]);
        return;
    }
    const uint8_t *name = (const uint8_t *)e.name;
    FUZZ_CHECK(e.image >= data && e.image + e.image_bytes <= data + size);
    FUZZ_CHECK(name >= data && name + e.name_bytes <= data + size && e.name_bytes > 0);
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        FUZZ_CHECK(e.labels[c] >= -1 && e.labels[c] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_file(data, size);
    check_record(data, size);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord files of tf.train.Example, as Dell's ai-radiologist wrote them for ChestX-ray14:
 *   image/encoded   bytes: the image file
 *   image/filename  bytes: its name, from which the patient is taken
 *   image/label     int64 or float: one value a class, 0, 1 or -1 (uncertain)
 * Other keys are passed over. A record states no names of classes, so their order must be known:
 * Dell's is not that of the CheXNet lists.
 *
 * Every fault is CHEX_E_DATA with file, record (from 1) and byte of the file.
 */
#ifndef CHEX_DATA_TFRECORD_H
#define CHEX_DATA_TFRECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/classes.h"
#include "data/folder.h"
#include "data/labels.h"

/* ---- records ---- */

enum { CHEX_TFRECORD_HEAD_BYTES = 12 }; /* before the data: its length and the CRC of that */

struct chex_tfrecord;

enum chex_status chex_tfrecord_open(const char *path, struct chex_tfrecord **reader_out,
                                    struct chex_error *err);
void chex_tfrecord_close(struct chex_tfrecord *reader); /* NULL allowed */

/* The next record, whose length and content have the checksums stated; its bytes last until the
 * next call. *offset_out: of its first byte in the file. *data_out is NULL at the end. */
enum chex_status chex_tfrecord_next(struct chex_tfrecord *reader, const uint8_t **data_out,
                                    size_t *bytes_out, uint64_t *offset_out,
                                    struct chex_error *err);

/* What a record holds; pointers into it. */
struct chex_tfrecord_example {
    const uint8_t *image;
    size_t image_bytes;
    const char *name; /* no NUL behind it */
    size_t name_bytes;
    int8_t labels[CHEX_CLASS_COUNT]; /* in the record's order */
};

/* The text of a fault names neither file nor record. */
enum chex_status chex_tfrecord_parse(const uint8_t *record, size_t bytes,
                                     struct chex_tfrecord_example *example_out,
                                     struct chex_error *err);

/* ---- files as the source of a set ---- */

/* order: "dell", "chexnet", or the 14 names with commas between them; class_out[i] is the class of
 * a record's value i. CHEX_E_USAGE names what is wrong. */
enum chex_status chex_tfrecord_parse_order(const char *order, int class_out[CHEX_CLASS_COUNT],
                                           struct chex_error *err);

/* Reads all records once, `threads` files at a time. The rows are in the order of files and
 * records; table->text is what a CheXNet list of the same rows would hold; the folder knows where
 * each image lies. An image that is there twice is CHEX_E_DATA. */
enum chex_status chex_tfrecord_load(const char *const *paths, size_t path_count, const char *order,
                                    int threads, struct chex_label_table **table_out,
                                    struct chex_folder **folder_out, struct chex_error *err);

#endif

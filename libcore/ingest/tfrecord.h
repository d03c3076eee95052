/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads TFRecord files of tf.train.Example, as Dell's ai-radiologist wrote them for ChestX-ray14:
 *   image/encoded   bytes: the image file
 *   image/filename  bytes: its name, which contains the patient id
 *   image/label     int64 or float: one value per class, 0, 1 or -1 (uncertain)
 * Other keys are ignored. A record does not name its classes, so the user must give their order:
 * Dell's order differs from that of the CheXNet lists.
 *
 * A damaged file is CHEX_E_DATA; the text has the file, the record (from 1) and the byte offset.
 */
#ifndef CHEX_INGEST_TFRECORD_H
#define CHEX_INGEST_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ingest/folder.h"
#include "label/classes.h"
#include "label/labels.h"

/* ---- records ---- */

enum { CHEX_TFRECORD_HEAD_BYTES = 12 }; /* before the data: its length and the length's CRC */

struct chex_tfrecord;

enum chex_status chex_tfrecord_open(const char *path, struct chex_tfrecord **reader_out,
                                    struct chex_error *err);
void chex_tfrecord_close(struct chex_tfrecord *reader); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_tfrecord, chex_tfrecord_close)

/* Reads the next record and verifies both checksums.
 * - *data_out: valid until the next call; NULL at the end of the file
 * - *offset_out: position of the first data byte in the file */
enum chex_status chex_tfrecord_next(struct chex_tfrecord *reader, const uint8_t **data_out,
                                    size_t *bytes_out, uint64_t *offset_out,
                                    struct chex_error *err);

/* The content of a record; the pointers point into the record. */
struct chex_tfrecord_example {
    const uint8_t *image;
    size_t image_bytes;
    const char *name; /* not NUL-terminated */
    size_t name_bytes;
    int8_t labels[CHEX_CLASS_COUNT]; /* in the record's order */
};

/* Parses one record. The text of an error names neither file nor record; the caller adds them. */
enum chex_status chex_tfrecord_parse(const uint8_t *record, size_t bytes,
                                     struct chex_tfrecord_example *example_out,
                                     struct chex_error *err);

/* ---- files as the input of create ---- */

/* order: "dell", "chexnet", or the 14 class names separated by commas. class_out[i]: class of the
 * record's value i. CHEX_E_USAGE: unknown, repeated or missing name. */
enum chex_status chex_tfrecord_parse_order(const char *order, int class_out[CHEX_CLASS_COUNT],
                                           struct chex_error *err);

/* Reads all records once, `threads` files at a time.
 * - *table_out: rows in the order of files and records; table->text is the CheXNet list of these
 *   rows
 * - *folder_out: the offset of each image
 * - CHEX_E_DATA: a damaged file, or an image that occurs twice */
enum chex_status chex_tfrecord_load(const char *const *paths, size_t path_count, const char *order,
                                    int threads, struct chex_label_table **table_out,
                                    struct chex_folder **folder_out, struct chex_error *err);

#endif

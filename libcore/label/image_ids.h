/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids of images, if file names repeat in several folders (exports by patient and study).
 *
 * The id of an image is its file name. If several rows of a label file have the same file name, the
 * id of each is the path in the label file, without "/" and "./" at its start. Ids of CheXpert are
 * made differently (see chex_labels_set_image).
 */
#ifndef CHEX_LABEL_IMAGE_IDS_H
#define CHEX_LABEL_IMAGE_IDS_H

#include <stdbool.h>

#include "label/labels.h"

enum { CHEX_IMAGE_ID_MAX_BYTES = 1023 }; /* if the id is a path; a file name has at most 255 */

/* Gives rows that share a file name their paths as ids.
 * - If there are such rows: a patient that the label file does not state is the first folder in
 *   which the paths differ. table->warning reports this.
 * - A row without folders keeps its file name, and so does one other row with that name. The caller
 *   then refuses the two equal ids.
 * - *repeats_out: two rows had the same id before the call, and may still have it.
 * - CHEX_E_DATA: a path is too long; the text has its line. */
enum chex_status chex_image_ids_qualify(struct chex_label_table *table, bool *repeats_out,
                                        struct chex_error *err);

/* Finds the rows of a table by the names and paths of a list. Borrows the table: its rows must not
 * move while it is in use. */
struct chex_image_ids;
enum chex_status chex_image_ids_create(const struct chex_label_table *table,
                                       struct chex_image_ids **ids_out, struct chex_error *err);
void chex_image_ids_destroy(struct chex_image_ids *ids); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_image_ids, chex_image_ids_destroy)

/* Returns the row of the table for a row of a list of names; NULL if there is none.
 * - A path matches if one of the two paths ends in the other one.
 * - *rival_out: a second row that also matches, or NULL. The caller refuses such a name. */
const struct chex_label_row *chex_image_ids_find(const struct chex_image_ids *ids,
                                                 const struct chex_label_row *named,
                                                 const struct chex_label_row **rival_out);

/* End of the error text if *rival_out is set. Arguments: the name and the ids of the two rows. */
#define CHEX_IMAGE_IDS_RIVALS "'%s' names several images, such as %s and %s, expected one"

#endif

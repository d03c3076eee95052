/* SPDX-License-Identifier: Apache-2.0
 *
 * contact-sheet.html of `chex-eval predict`: one file that any browser opens without a network. A
 * table has a row for each of the first images of the list, with a thumbnail, the probabilities,
 * the decisions and the flags, or the reason why the file cannot be used.
 */
#ifndef CHEX_REPORT_CONTACT_SHEET_H
#define CHEX_REPORT_CONTACT_SHEET_H

#include "infer/predict_images.h"

/* Writes FOLDER/contact-sheet.html for the first config->thumbs images. reader: of all lines. */
enum chex_status chex_contact_sheet_write(const struct chex_predict_config *config,
                                          struct chex_partial_reader *reader,
                                          const struct chex_predict_result *result,
                                          const char *folder, struct chex_error *err);

#endif

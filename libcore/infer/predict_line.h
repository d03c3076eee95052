/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of one image in the unfinished results (predict_partial.h), with TAB between its parts:
 *   p ID STUDY SERIES CELLS FLAGS    CELLS: ",cell" for each further column
 *   r ID REASON
 * The parts are cells of a CSV file, in which TAB and line feed cannot occur.
 */
#ifndef CHEX_INFER_PREDICT_LINE_H
#define CHEX_INFER_PREDICT_LINE_H

#include <stdbool.h>

struct chex_predict_line {
    bool predicted;
    char *id, *study, *series, *cells, *flags; /* if predicted */
    char *reason;                              /* if not; besides id */
};

/* Cuts the text at its TABs. False: not such a text. */
bool chex_predict_line_split(char *text, struct chex_predict_line *line_out);

/* The text of a cell without its quotes, in place. */
char *chex_predict_line_unquote(char *cell);

#endif

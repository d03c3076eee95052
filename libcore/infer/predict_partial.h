/* SPDX-License-Identifier: Apache-2.0
 *
 * The unfinished results of `chex-eval predict`: what a killed run keeps, and what a later run goes
 * on with.
 *
 * OUT/.predict-partial/ has
 * - `run`: one line KEY=VALUE for each thing that the results depend on. A folder with other values
 *   belongs to another run.
 * - `part-NNNNN`: the lines of one process, in the order in which it finished its images. Each run
 *   and each rank appends to a file of its own.
 * - `thumbs/`, `maps/`: pictures, with the index of the image as name.
 *
 * A line: HASH INDEX TEXT. INDEX is the image's place in the list. HASH is the XXH3 of "INDEX TEXT"
 * in 16 hex digits. A line that is cut or has another hash counts as missing, so its image is
 * predicted again.
 */
#ifndef CHEX_INFER_PREDICT_PARTIAL_H
#define CHEX_INFER_PREDICT_PARTIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define CHEX_PARTIAL_NAME ".predict-partial"

/* Where the line of an image is. */
struct chex_partial_place {
    int part;        /* number of the file; -1: no line */
    uint32_t length; /* of TEXT */
    uint64_t offset; /* of TEXT */
};

struct chex_partial_index {
    size_t count; /* images of the list */
    struct chex_partial_place *places;
    size_t done; /* places with a line */
    int parts;   /* larger than the number of any file */
};

/* Creates the folder for a run with these lines (text, each ends in a line feed), or accepts the
 * one of an earlier run with the same lines. Not collective: rank 0 calls it under the lock of
 * `out`.
 * - CHEX_E_USAGE: an unfinished run with other values; the text names the first. With `force` that
 *   run is removed instead. */
enum chex_status chex_partial_begin(const char *out, const char *lines, bool force,
                                    struct chex_error *err);

/* Finds all valid lines. The caller calls chex_partial_index_release, after an error too. */
enum chex_status chex_partial_scan(const char *out, size_t count, struct chex_partial_index *index,
                                   struct chex_error *err);
void chex_partial_index_release(struct chex_partial_index *index);

/* Appends to a new file. The number must be unused. */
struct chex_partial_writer;
enum chex_status chex_partial_create(const char *out, int part, struct chex_partial_writer **w_out,
                                     struct chex_error *err);
/* text: without line feeds. It is in the file after the next flush. */
enum chex_status chex_partial_put(struct chex_partial_writer *w, size_t index, const char *text,
                                  struct chex_error *err);
enum chex_status chex_partial_flush(struct chex_partial_writer *w, struct chex_error *err);
/* Flushes if `st` is CHEX_OK. Returns `st` or the fault found here. NULL allowed. */
enum chex_status chex_partial_close(struct chex_partial_writer *w, enum chex_status st,
                                    struct chex_error *err);

/* Reads the texts of an index. Start with chex_partial_open. */
struct chex_partial_reader;
enum chex_status chex_partial_open(const char *out, const struct chex_partial_index *index,
                                   struct chex_partial_reader **r_out, struct chex_error *err);
/* *text_out: valid until the next call; NULL if the image has no line. */
enum chex_status chex_partial_read(struct chex_partial_reader *r, size_t index, char **text_out,
                                   struct chex_error *err);
void chex_partial_reader_close(struct chex_partial_reader *r); /* NULL allowed */

/* The TEXT of an image, with TAB between its parts:
 *   p ID STUDY SERIES CELLS FLAGS    CELLS: ",cell" for each further column
 *   r ID REASON
 * The parts are cells of a CSV file, in which TAB and line feed cannot occur. */
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests by file: DIR/stop makes a run save and end, DIR/save makes it save and go on. A user can
 * create them where a signal cannot be sent: from a login node, or without a right to the job.
 *
 * Rank 0 looks at most once a second, at the end of a step. The step reports carry the request to
 * all ranks. The request is taken by removing the file, so each file counts once.
 */
#ifndef CHEX_TRAIN_STORE_REQUEST_FILES_H
#define CHEX_TRAIN_STORE_REQUEST_FILES_H

#include <stdbool.h>

enum chex_request { CHEX_REQUEST_STOP, CHEX_REQUEST_SAVE, CHEX_REQUEST_COUNT };

struct chex_request_files {
    const char *dir;                  /* borrowed; NULL: there are no requests */
    double looked_s;                  /* chex_clock_s of the last look */
    bool ignored[CHEX_REQUEST_COUNT]; /* cannot be removed; logged */
};

/* Removes requests from before the start of the run, each with a warning. */
void chex_request_files_start(struct chex_request_files *f, const char *dir);

/* Takes the requests of now_s (chex_clock_s) into taken_out, all false within a second of the last
 * look. A file that cannot be removed is reported once and ignored. */
void chex_request_files_take(struct chex_request_files *f, double now_s,
                             bool taken_out[CHEX_REQUEST_COUNT]);

#endif

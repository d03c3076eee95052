/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoints.jsonl: lines come back, a resumed run drops later ones, and damaged lines are left
 * out.
 */
#include "train/store/checkpoint_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "tap.h"
#include "train/store/runfiles.h"

static char dir[256];
static struct chex_error err;
static struct chex_checkpoint_line *lines;
static size_t count;

static void add(FILE *log, uint64_t step, char digit) {
    struct chex_checkpoint_line line = {.step = step,
                                        .epoch = step / 10,
                                        .best = step == 20,
                                        .time_unix_s = 1.7e9,
                                        .write_s = 0.25};
    memset(line.digest, digit, sizeof line.digest - 1);
    snprintf(line.file, sizeof line.file, "checkpoints/step-%010llu.h5", (unsigned long long)step);
    OK_STATUS(chex_checkpoint_log_add(log, dir, &line, &err), CHEX_OK, err, NULL);
}

static void read_again(void) {
    free(lines);
    lines = NULL;
    OK_STATUS(chex_checkpoint_log_read(dir, &lines, &count, &err), CHEX_OK, err, NULL);
}

static FILE *open_at(uint64_t step) {
    FILE *log = NULL;
    OK_STATUS(chex_runfiles_open(dir, CHEX_CHECKPOINT_LOG, step, false, NULL, &log, &err), CHEX_OK,
              err, NULL);
    BAIL_UNLESS(log, "no file");
    return log;
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/chex-log-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    read_again();
    OK(count == 0, "a run without the file has no lines");

    FILE *log = open_at(0);
    add(log, 10, 'a');
    add(log, 20, 'b');
    add(log, 20, 'c');
    add(log, 30, 'd');
    fclose(log);
    read_again();
    OK(count == 3 && lines[0].step == 10 && lines[1].step == 20 && lines[2].step == 30,
       "the steps come back in order");
    OK(lines[1].digest[0] == 'c' && lines[1].best && lines[1].epoch == 2 &&
           strcmp(lines[1].file, "checkpoints/step-0000000020.h5") == 0 && lines[1].write_s == 0.25,
       "the last line of a step counts");

    log = open_at(20);
    fputs("no JSON\n{\"step\":25}\n{\"step\":26,\"file\":\"a\",\"digest\":\"short\"}\n", log);
    add(log, 40, 'e');
    fputs("{\"step\":50,\"fi", log); /* killed while it wrote this line */
    fclose(log);
    read_again();
    OK(count == 3 && lines[1].step == 20 && lines[2].step == 40,
       "a resumed run drops later lines, and damaged lines are left out");
    free(lines);
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    return tap_done();
}

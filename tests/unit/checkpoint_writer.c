/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of checkpoints: what is held back is written, replaced or dropped as asked; the result
 * comes once; a state that is not finite never becomes a file.
 */
#include "train/store/checkpoint_writer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "tap.h"
#include "train/store/runfiles.h"

static char dir[256];
static struct chex_error err;
static struct chex_net *net;
static struct chex_checkpoint state;
static struct chex_checkpoint_writer *writer;

static void put(uint64_t step, double hold_s) {
    const struct chex_checkpoint_line about = {.step = step, .epoch = 1, .stall_s = 0.5};
    char meta[80];
    snprintf(meta, sizeof meta, "{\"position\":{\"step\":%llu}}", (unsigned long long)step);
    chex_checkpoint_writer_put(writer, &about, strdup(meta), hold_s);
}

static struct chex_checkpoint_line finish(enum chex_held held, enum chex_status want,
                                          const char *text) {
    struct chex_checkpoint_line line;
    OK_STATUS(chex_checkpoint_writer_result(writer, held, &line, &err), want, err, text);
    return line;
}

static bool is_written(uint64_t step) {
    char name[CHEX_CHECKPOINT_NAME_BYTES];
    return chex_fs_exists(chex_path(dir, chex_checkpoint_store_name(step, name)).text);
}

static void test_held(void) {
    OK(finish(CHEX_HELD_WRITE, CHEX_OK, NULL).step == 0, "nothing was asked for: no result");
    put(1, INFINITY);
    OK(finish(CHEX_HELD_DROP, CHEX_OK, NULL).step == 0 && !is_written(1),
       "what is held back can be dropped");
    put(2, INFINITY);
    struct chex_checkpoint_line line;
    chex_clock_sleep_ms(20);
    OK_STATUS(chex_checkpoint_writer_result(writer, CHEX_HELD_STAYS, &line, &err), CHEX_OK, err,
              NULL);
    OK(line.step == 0 && !is_written(2), "what is held back without a limit is not written");
    line = finish(CHEX_HELD_WRITE, CHEX_OK, NULL);
    OK(line.step == 2 && is_written(2) && line.digest[0] && line.write_s > 0 &&
           line.stall_s == 0.5 && strcmp(line.file, "checkpoints/step-0000000002.h5") == 0,
       "it is whole when the wait ends");
    OK(finish(CHEX_HELD_WRITE, CHEX_OK, NULL).step == 0, "a result comes once");
    put(3, 0.03);
    for (int i = 0; i < 3000 && line.step != 3; i++) {
        OK_STATUS(chex_checkpoint_writer_result(writer, CHEX_HELD_STAYS, &line, &err), CHEX_OK, err,
                  NULL);
        chex_clock_sleep_ms(line.step == 3 ? 0 : 10);
    }
    OK(line.step == 3 && is_written(3), "after its time the writer begins by itself");
}

static void test_faults(void) {
    const float kept = state.params[5];
    state.params[5] = NAN;
    put(4, 0);
    OK(finish(CHEX_HELD_WRITE, CHEX_E_DIVERGED, "no finite numbers after step 4").step == 0 &&
           !is_written(4),
       "parameters that are no numbers are not written");
    state.params[5] = kept;
    put(5, 0);
    OK(finish(CHEX_HELD_DROP, CHEX_OK, NULL).step == 5 && is_written(5),
       "after a fault the writer goes on; one that is due is written, not dropped");
    put(6, 0);
    chex_checkpoint_writer_linger(writer, 60);
}

static void test_log(void) {
    struct chex_checkpoint_line *lines = NULL;
    size_t count = 0;
    OK_STATUS(chex_checkpoint_log_read(dir, &lines, &count, &err), CHEX_OK, err, NULL);
    bool same = count >= 2;
    for (size_t i = 0; i < count; i++)
        same = same && is_written(lines[i].step);
    OK(same, "checkpoints.jsonl has the files that are whole");
    free(lines);
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    char *names[] = {(char *)"Mass"}, sub[300];
    FILE *log = NULL;
    snprintf(dir, sizeof dir, "%s/chex-writer-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    snprintf(sub, sizeof sub, "%s/checkpoints", dir);
    BAIL_UNLESS(chex_fs_mkdirs(sub, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(chex_net_create("densenet_tiny", 1, &net, &err) == CHEX_OK, "%s", err.text);
    state = (struct chex_checkpoint){
        .model = "densenet_tiny", .classes = 1, .class_names = names, .image_size = 32};
    state.params = chex_alloc_aligned(net->state_count, sizeof(float));
    BAIL_UNLESS(state.params, "no memory");
    memset(state.params, 0, net->state_count * sizeof(float));
    BAIL_UNLESS(chex_runfiles_open(dir, CHEX_CHECKPOINT_LOG, 0, false, NULL, &log, &err) == CHEX_OK,
                "%s", err.text);
    const struct chex_checkpoint_writer_config config = {
        .dir = dir, .net = net, .snapshot = &state, .log = log};
    OK_STATUS(chex_checkpoint_writer_create(&config, &writer, &err), CHEX_OK, err, NULL);
    test_held();
    test_faults();
    chex_checkpoint_writer_destroy(writer);
    test_log();
    chex_checkpoint_writer_destroy(NULL);
    fclose(log);
    free(state.params);
    chex_net_destroy(net);
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    return tap_done();
}

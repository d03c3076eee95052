/* SPDX-License-Identifier: Apache-2.0
 *
 * The stall watch of one process. What several ranks say of each other: tests/unit/stall.c and
 * tests/slurm.
 */
#include "train/watchdog.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/coll.h"
#include "tap.h"

/* The time of day is an hour ahead for whoever asks, and the kernel's is not: as if it was set back
 * after each question. */
int clock_gettime(clockid_t clock, struct timespec *t) {
    const long rc = syscall(SYS_clock_gettime, clock, t);
    if (clock == CLOCK_REALTIME)
        t->tv_sec += 3600;
    return (int)rc;
}

/* Whether the text comes within a minute. */
static bool comes(int fd, const char *text) {
    char said[4096];
    for (int i = 0; i < 600; i++) {
        ssize_t n = pread(fd, said, sizeof said - 1, 0);
        said[n > 0 ? n : 0] = '\0';
        if (strstr(said, text))
            return true;
        chex_clock_sleep_ms(100);
    }
    return false;
}

int main(void) {
    struct chex_launch launch = {.method = "single", .size = 1, .local_size = 1, .nodes = 1};
    struct chex_coll *coll = NULL;
    struct chex_reduce *reduce = NULL;
    struct chex_watchdog *watch = NULL;
    struct chex_error err;
    char path[] = "/tmp/chex-watchdog-XXXXXX";
    const int fd = mkstemp(path), own = dup(STDERR_FILENO);
    BAIL_UNLESS(fd >= 0 && own >= 0 && dup2(fd, STDERR_FILENO) >= 0, "no file for the log");
    BAIL_UNLESS(chex_coll_create(&launch, &coll, &err) == CHEX_OK, "%s", err.text);
    const struct chex_reduce_config config = {.coll = coll, .logical_ranks = 1, .count = 16};
    BAIL_UNLESS(chex_reduce_create(&config, &reduce, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_watchdog_create(&launch, 300, 0, &watch, &err), CHEX_OK, err, NULL);
    chex_watchdog_reduce(watch, reduce);
    chex_watchdog_beat(watch, CHEX_PHASE_COMPUTE, 7);
    OK(comes(fd, ": computing at step 7"), "a stall is reported, though the clock was set back");
    chex_watchdog_destroy(watch);
    chex_reduce_destroy(reduce);
    chex_coll_destroy(coll);
    dup2(own, STDERR_FILENO);
    close(own);
    close(fd);
    unlink(path);
    return tap_done();
}

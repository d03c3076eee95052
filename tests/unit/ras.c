/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of NCCL's RAS service, against a server of this test: no NCCL is needed.
 */
#include "train/watch/ras.h"

#include <fcntl.h>

#include "base/clock.h"
#include "base/log.h"
#include "ras_server.h"

/* What is logged to stderr. addr: NCCL_RAS_ADDR, NULL: not set. */
static const char *logged(const char *addr, bool uses_nccl, uint64_t limit_ms) {
    static char said[16384];
    char path[] = "/tmp/chex-ras-XXXXXX";
    const int file = mkstemp(path), before = dup(STDERR_FILENO);
    unlink(path);
    if (addr)
        setenv("NCCL_RAS_ADDR", addr, 1);
    else
        unsetenv("NCCL_RAS_ADDR");
    dup2(file, STDERR_FILENO);
    chex_ras_log(uses_nccl, limit_ms);
    dup2(before, STDERR_FILENO);
    close(before);
    const ssize_t n = pread(file, said, sizeof said - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    close(file);
    return said;
}

static const char answer_log[] = "unit-ras warn: NCCL: Job summary\n"
                                 "unit-ras warn: NCCL: ===========\n"
                                 "unit-ras warn: NCCL:   INCOMPLETE\n"
                                 "unit-ras warn: NCCL:     The missing rank: 21\n";

static void test_log(void) {
    struct ras_server s = {0}, stopped = {.silent = 1}, open = {.stays_open = true},
                      floods = {.floods = true};
    ras_start(&s);
    const char *said = logged(s.addr, false, tap_wait_ms());
    OK(strcmp(said, answer_log) == 0, "the answer is logged without the handshake");
    OK(strcmp(s.heard, "CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n") == 0,
       "the requests are those of NCCL's client");
    ras_stop(&s);
    OK(logged(s.addr, true, tap_wait_ms())[0] == '\0', "nothing listens, nothing is logged");
    ras_start(&stopped);
    OK(strcmp(logged(stopped.addr, true, 20000), answer_log) == 0,
       "a process that does not answer is asked once more");
    ras_stop(&stopped);
    ras_start(&open);
    OK(strcmp(logged(open.addr, true, 5000), answer_log) == 0,
       "what came until the limit is logged");
    ras_stop(&open);
    ras_start(&floods);
    int lines = 0;
    said = logged(floods.addr, true, tap_wait_ms());
    for (const char *at = said; (at = strstr(at, "warn: NCCL: ")); at++)
        lines++;
    OK(lines == 61 && strstr(said, "NCCL: ... (the rest is left out)\n"),
       "a long answer is cut: %d lines", lines);
    ras_stop(&floods);
    OK(logged("login.example:28028", true, 1000)[0] == '\0' &&
           logged("28028", true, 1000)[0] == '\0',
       "an address that is not numeric is not asked");
    OK(logged(NULL, false, 1000)[0] == '\0', "a run without NCCL asks no service");
}

int main(void) {
    chex_log_init("unit-ras", CHEX_LOG_INFO);
    test_log();
    return tap_done();
}

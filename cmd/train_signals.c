/* SPDX-License-Identifier: Apache-2.0
 *
 * Signal handlers of chex-train. They use only async-signal-safe calls.
 */
#include "train_signals.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

volatile sig_atomic_t train_stop_asked;

/* timeout, srun and mpirun may deliver one request as two signals in quick succession. */
static const uint64_t one_request_ns = 2000000000u;

static atomic_uint_fast64_t asked_to_end_ns; /* time of the first TERM or INT; 0: none */
static struct sigaction usr2_before;

/* For handlers: write is async-signal-safe, stdio is not. */
static void write_stderr(const char *line) {
    const ssize_t n = write(STDERR_FILENO, line, strlen(line));
    (void)n; /* there is nothing to do if stderr is closed */
}

static bool second_request(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now_ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    uint_fast64_t first_ns = 0;
    if (atomic_compare_exchange_strong(&asked_to_end_ns, &first_ns, now_ns))
        return false;
    return now_ns - first_ns >= one_request_ns;
}

static void on_signal(int number) {
    const int saved = errno;
    train_stop_asked = 1;
    if ((number == SIGTERM || number == SIGINT) && second_request()) {
        write_stderr("chex-train: second signal: ending at once, without saving\n");
        signal(number, SIG_DFL);
        raise(number); /* takes effect when this handler returns */
    }
    errno = saved;
}

static void handle(int number, struct sigaction *before) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, before);
}

void train_signals_begin(void) {
    struct sigaction hangup;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond `ulimit -f` fails with EFBIG instead */
    handle(SIGUSR2, &usr2_before);
    handle(SIGTERM, NULL);
    handle(SIGINT, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* nohup */
        handle(SIGHUP, NULL);
}

static enum chex_status signal_number(const char *name, int *out, struct chex_error *err) {
    static const struct {
        const char *name;
        int number;
    } known[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TERM", SIGTERM},
                 {"INT", SIGINT},   {"HUP", SIGHUP},   {"CONT", SIGCONT}};
    const char *bare = strncmp(name, "SIG", 3) == 0 ? name + 3 : name;
    for (size_t i = 0; i < CHEX_COUNT(known); i++)
        if (strcmp(known[i].name, bare) == 0) {
            *out = known[i].number;
            return CHEX_OK;
        }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--preempt-signal: '%s' is not valid: expected USR1, USR2, TERM, INT or "
                          "HUP",
                          name);
}

enum chex_status train_signals_choose(const char *name, struct chex_error *err) {
    int number;
    CHEX_TRY(signal_number(name, &number, err));
    if (number != SIGUSR2) {
        handle(number, NULL);
        sigaction(SIGUSR2, &usr2_before, NULL);
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    return CHEX_OK;
}

static void on_limit(int number) {
    (void)number;
    write_stderr(
        "chex-train error: stalled: the launch takes more than a minute longer than --stall-abort; "
        "ending: look at the launcher (srun, mpirun), at MPI and at the GPU's driver\n");
    _exit(CHEX_E_LOST);
}

void train_signals_limit(uint64_t ms) {
    struct itimerval limit = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)}};
    struct sigaction action = {.sa_handler = ms ? on_limit : SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &limit, NULL);
}

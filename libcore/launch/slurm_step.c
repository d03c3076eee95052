/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs chexnet-slurm-step and reads its answers. posix_spawn copies no memory of this process, so
 * it is safe beside MPI and GPUs, whose registered pages a fork would put at risk.
 */
#include "launch/slurm_step.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/module.h"

enum { ASK_MS = 4000 }; /* Slurm's answer which nodes have left the step */

extern char **environ;

/* Starts the program (without '/': found by PATH); its standard output goes to *fd_out. Returns its
 * process number, or -1. */
static pid_t start(char *const argv[], int *fd_out) {
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t child = -1;
    if (!argv[0] || pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&child, argv[0], &actions, NULL, argv, environ) != 0)
        child = -1;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (child < 0)
        close(ends[0]);
    *fd_out = ends[0];
    return child;
}

void chex_slurm_step_kill(const char *job, const char *step) {
    char program[] = "scancel", which[64], *argv[] = {program, which, NULL};
    int fd;
    snprintf(which, sizeof which, "%s.%s", job, step);
    const pid_t child = start(argv, &fd);
    if (child < 0)
        return;
    waitpid(child, NULL, 0);
    close(fd);
}

/* Reads until the end of the output or the deadline. */
static void read_all(int fd, uint64_t deadline_ns, char *buf, size_t size) {
    size_t at = 0;
    for (uint64_t now; at + 1 < size && (now = chex_clock_ns()) < deadline_ns;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, (int)((deadline_ns - now) / 1000000u) + 1) <= 0)
            continue;
        const ssize_t n = read(fd, buf + at, size - 1 - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    buf[at] = '\0';
}

/* Whether the answers have the line "NODE STATE". */
static bool says(const char *answers, const char *node, const char *state) {
    char line[CHEX_HOST_BYTES + 16];
    const int n = snprintf(line, sizeof line, "%s %s\n", node, state);
    for (const char *at = answers; (at = strstr(at, line)); at += n)
        if (at == answers || at[-1] == '\n')
            return true;
    return false;
}

bool chex_slurm_step_ended(const char *job, const char *step, const char *own,
                           const char (*nodes)[CHEX_HOST_BYTES], int count, uint64_t wait_ms,
                           bool *ended_out) {
    const uint64_t deadline_ns = chex_clock_in_ms(wait_ms);
    const size_t size = ((size_t)count + 1) * (CHEX_HOST_BYTES + 8) + 1;
    char *list = malloc(size), *answers = malloc(size);
    char *program = chex_module_file("chexnet-slurm-step");
    bool known = false;
    int fd;
    memset(ended_out, 0, (size_t)count * sizeof *ended_out);
    if (list && answers && program) {
        size_t at = (size_t)snprintf(list, size, "%s", own);
        for (int i = 0; i < count; i++)
            at += (size_t)snprintf(list + at, size - at, ",%s", nodes[i]);
        char *argv[] = {program, (char *)(uintptr_t)job, (char *)(uintptr_t)step, list, NULL};
        const pid_t child = start(argv, &fd);
        if (child > 0) {
            read_all(fd, deadline_ns, answers, size);
            close(fd);
            kill(child, SIGKILL);
            waitpid(child, NULL, 0);
            /* Slurm knows that this process runs. If not, it answers about another step. */
            known = says(answers, own, "runs");
        }
    }
    for (int i = 0; known && i < count; i++)
        ended_out[i] = says(answers, nodes[i], "ended");
    free(list);
    free(answers);
    free(program);
    return known;
}

/* The other nodes of ranks [from, to) that were not found ended before. node_of[r - from] is the
 * index of the rank's node, or -1. Returns the count. */
static int list_nodes(const struct chex_launch *launch, int from, int to, const atomic_bool *ended,
                      char (*nodes)[CHEX_HOST_BYTES], int *node_of) {
    int count = 0;
    for (int r = from; r < to; r++) {
        int k = 0;
        node_of[r - from] = -1;
        if (r == launch->rank || atomic_load(&ended[r]))
            continue;
        chex_launch_host(launch, r, nodes[count], sizeof nodes[count]);
        if (strchr(nodes[count], ' ') || strcmp(nodes[count], launch->host) == 0)
            continue;
        while (strcmp(nodes[k], nodes[count]) != 0)
            k++;
        node_of[r - from] = k;
        count += k == count;
    }
    return count;
}

int chex_slurm_step_find_ended(const struct chex_launch *launch, const char *job, const char *step,
                               int from, int to, atomic_bool *ended, bool *known_out) {
    const size_t ranks = (size_t)(to - from);
    char(*nodes)[CHEX_HOST_BYTES] = calloc(ranks + 1, sizeof *nodes);
    int *node_of = calloc(ranks + 1, sizeof *node_of), found = 0;
    bool *left = calloc(ranks + 1, sizeof *left);
    *known_out = false;
    if (nodes && node_of && left) {
        const int count = list_nodes(launch, from, to, ended, nodes, node_of);
        *known_out =
            count == 0 || !job || !step ||
            chex_slurm_step_ended(job, step, launch->host, (const char(*)[CHEX_HOST_BYTES])nodes,
                                  count, ASK_MS, left);
        for (int r = from; r < to; r++)
            if (node_of[r - from] >= 0 && left[node_of[r - from]])
                atomic_store(&ended[r], true);
    }
    for (int r = from; r < to; r++)
        found += atomic_load(&ended[r]);
    free(nodes);
    free(node_of);
    free(left);
    return found;
}

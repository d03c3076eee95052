/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of NCCL's RAS service. The requests are lines; the answers come in their order, then
 * NCCL closes the connection. Processes of one user share the port (SO_REUSEPORT), and the kernel
 * chooses one for each connection: if that one is stopped, the next connection may get an answer.
 * If several users have jobs on a node, the port belongs to the first. So the owner of the
 * listening socket is looked up, and the service of another user is not asked.
 */
#include "train/watch/ras.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { TRIES = 5, LOG_LINES = 60, LISTEN = 10 };

/* Whether a process of this user listens at the port. */
static bool own_port(const char *table, unsigned port) {
    char line[512];
    bool own = false;
    FILE *f = fopen(table, "re");
    for (unsigned at, state, uid; f && !own && fgets(line, sizeof line, f);)
        own = sscanf(line, "%*d: %*[0-9A-F]:%x %*s %x %*s %*s %*s %u", &at, &state, &uid) == 3 &&
              at == port && state == LISTEN && uid == (unsigned)geteuid();
    if (f)
        fclose(f);
    return own;
}

static bool wait_at_most(int fd, uint64_t ms) {
    const struct timeval t = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000 + 1)};
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0;
}

/* Logs the answer. False: there is none, or its first line does not come in pause_ms. */
static bool log_answer(const struct addrinfo *a, uint64_t pause_ms, uint64_t until_ns) {
    static const char requests[] = "CLIENT PROTOCOL 2\nTIMEOUT 1\nVERBOSE STATUS\n";
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    char line[512];
    int lines = 0;
    if (f && wait_at_most(fd, pause_ms) && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        send(fd, requests, sizeof requests - 1, MSG_NOSIGNAL) > 0)
        while (lines <= LOG_LINES && chex_clock_ns() < until_ns && fgets(line, sizeof line, f)) {
            line[strcspn(line, "\n")] = '\0';
            wait_at_most(fd, (until_ns - chex_clock_ns()) / 1000000);
            if (line[0] && strncmp(line, "SERVER PROTOCOL", 15) != 0 && strcmp(line, "OK") != 0)
                chex_warn("NCCL: %s", lines++ < LOG_LINES ? line : "... (the rest is left out)");
        }
    if (f)
        fclose(f);
    return lines > 0;
}

void chex_ras_log(bool uses_nccl, uint64_t limit_ms) {
    const char *set = getenv("NCCL_RAS_ADDR"), *addr = set ? set : "localhost:28028";
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const uint64_t until_ns = chex_clock_in_ms(limit_ms);
    char host[64] = "", port[8] = "";
    bool done = false;
    if ((!uses_nccl && !set) || (sscanf(addr, "[%63[^]]]:%7[0-9]", host, port) != 2 &&
                                 sscanf(addr, "%63[^:]:%7[0-9]", host, port) != 2))
        return;
    const unsigned number = (unsigned)strtoul(port, NULL, 10);
    hints.ai_flags = strcmp(host, "localhost") ? AI_NUMERICHOST : 0; /* a name may take long */
    if ((own_port("/proc/net/tcp", number) || own_port("/proc/net/tcp6", number)) &&
        getaddrinfo(host, port, &hints, &found) == 0)
        for (int i = 0; i < TRIES && !done && chex_clock_ns() < until_ns; i++)
            for (const struct addrinfo *a = found; a && !done; a = a->ai_next)
                done = log_answer(a, limit_ms / TRIES, until_ns);
    if (found)
        freeaddrinfo(found);
    if (!done)
        chex_debug("NCCL's RAS service at %s: no answer of a process of this user", addr);
}

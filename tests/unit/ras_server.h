/* SPDX-License-Identifier: Apache-2.0
 *
 * A server in place of NCCL's RAS service, for tests of its client.
 */
#ifndef CHEX_TESTS_UNIT_RAS_SERVER_H
#define CHEX_TESTS_UNIT_RAS_SERVER_H

#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tap.h"

static const char ras_status[] =
    "Job summary\n===========\n\n  INCOMPLETE\n    The missing rank: 21\n";

/* A server: answers `silent` connections with nothing, then one as NCCL does. */
struct ras_server {
    int fd, silent;
    bool stays_open, floods;
    char addr[32], heard[256];
    pthread_t thread;
};

static inline void ras_answer(struct ras_server *s, int fd) {
    const struct timespec whole_request = {.tv_nsec = 20000000};
    size_t got = 0;
    while (!strstr(s->heard, "STATUS\n")) {
        const ssize_t n = recv(fd, s->heard + got, sizeof s->heard - 1 - got, 0);
        if (n <= 0)
            return;
        got += (size_t)n;
    }
    dprintf(fd, "SERVER PROTOCOL 2\n");
    nanosleep(&whole_request, NULL); /* the answer comes in parts */
    dprintf(fd, "OK\n%s", ras_status);
    for (int i = 0; s->floods && i < 2000; i++)
        dprintf(fd, "    Rank %d -- GPU 0 managed by process 1 on node n1\n", i);
    if (s->stays_open)
        (void)!recv(fd, s->heard, 0, MSG_PEEK), (void)!read(fd, &got, sizeof got);
}

static inline void *ras_serve(void *arg) {
    struct ras_server *s = arg;
    char byte;
    for (int i = 0; i <= s->silent; i++) {
        const int fd = accept(s->fd, NULL, NULL);
        if (i == s->silent)
            ras_answer(s, fd);
        else
            while (read(fd, &byte, 1) > 0)
                ;
        close(fd);
    }
    return NULL;
}

static inline void ras_start(struct ras_server *s) {
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    BAIL_UNLESS(bind(s->fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(s->fd, 8) == 0 &&
                    getsockname(s->fd, (struct sockaddr *)&at, &bytes) == 0,
                "no port");
    snprintf(s->addr, sizeof s->addr, "localhost:%d", ntohs(at.sin_port));
    BAIL_UNLESS(pthread_create(&s->thread, NULL, ras_serve, s) == 0, "no thread");
}

static inline void ras_stop(struct ras_server *s) {
    pthread_join(s->thread, NULL);
    close(s->fd);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread reads lines "cmd=NAME key=value ..." and answers each with a line. The protocol is
 * that of src/pmi/maint/pmi-1.1.txt of MPICH.
 */
#include "launch/pmi_server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "launch/group.h"

enum { VALUE_BYTES = 1024, LINE_BYTES = 4096 }; /* MPICH's limits are 1024 */

struct text {
    char *at; /* NULL, or ends in '\0' */
    size_t bytes;
};

struct chex_pmi_server {
    pthread_mutex_t lock;
    struct chex_launch *launch; /* NULL: the server has ended */
    int fd;
    struct text put;   /* lines "KEY value=VALUE" since the last barrier */
    struct text known; /* those of all ranks before it; begins with a newline */
};

static bool append(struct text *t, const char *from, size_t bytes) {
    char *grown = realloc(t->at, t->bytes + bytes + 1);
    if (!grown)
        return false;
    t->at = grown;
    memcpy(t->at + t->bytes, from, bytes);
    t->bytes += bytes;
    t->at[t->bytes] = '\0';
    return true;
}

static void put(struct chex_pmi_server *s, const char *line) {
    const char *pair = strstr(line, " key=");
    const bool good = pair && append(&s->put, pair + 5, strlen(pair + 5));
    dprintf(s->fd, "cmd=put_result rc=%d\n", good ? 0 : 1);
}

static void get(const struct chex_pmi_server *s, const char *line) {
    char word[VALUE_BYTES];
    const char *key = strstr(line, " key="), *at = NULL;
    if (key) {
        snprintf(word, sizeof word, "\n%.*s value=", (int)strcspn(key + 5, " \n"), key + 5);
        at = strstr(s->known.at, word);
    }
    if (at)
        dprintf(s->fd, "cmd=get_result rc=0 value=%.*s\n", (int)strcspn(at + strlen(word), "\n"),
                at + strlen(word));
    else
        dprintf(s->fd, "cmd=get_result rc=1 msg=key_not_found\n");
}

/* All ranks learn what all have put since the last barrier: first the sizes, then the texts. */
static enum chex_status share_puts(struct chex_pmi_server *s, struct chex_error *err) {
    const size_t size = (size_t)s->launch->size;
    uint64_t mine = s->put.bytes, most = 0;
    CHEX_AUTO_FREE uint64_t *bytes = chex_alloc_zeroed(size, sizeof *bytes);
    CHEX_AUTO_FREE char *all = NULL;
    if (!bytes)
        return chex_error_memory(err, NULL);
    CHEX_TRY(chex_launch_exchange(s->launch, "pmi-sizes", &mine, sizeof mine, bytes,
                                  CHEX_GROUP_START_MS, err));
    for (size_t r = 0; r < size; r++)
        most = bytes[r] > most ? bytes[r] : most;
    if (!most)
        return CHEX_OK;
    all = chex_alloc_zeroed(size + 1, most); /* the last part is what this rank gives */
    if (!all)
        return chex_error_memory(err, NULL);
    if (mine)
        memcpy(all + size * most, s->put.at, mine);
    CHEX_TRY(chex_launch_exchange(s->launch, "pmi-values", all + size * most, most, all,
                                  CHEX_GROUP_START_MS, err));
    for (size_t r = 0; r < size; r++)
        if (!append(&s->known, all + r * most, bytes[r]))
            return chex_error_memory(err, NULL);
    s->put.bytes = 0;
    return CHEX_OK;
}

/* Ends the job. The client waits for an answer that it does not get. */
static void give_up(const struct chex_pmi_server *s, const struct chex_error *err) {
    chex_err("%s", err->text);
    chex_launch_abort(s->launch, (int)err->status);
    _exit((int)err->status);
}

static void serve(struct chex_pmi_server *s, const char *line) {
    static const char *const constant[][2] = {
        {"init", "response_to_init pmi_version=1 pmi_subversion=1"},
        {"get_maxes", "maxes kvsname_max=256 keylen_max=64 vallen_max=1024"},
        {"get_appnum", "appnum appnum=0"},
        {"get_my_kvsname", "my_kvsname kvsname=chexnet"},
        {"finalize", "finalize_ack"}};
    struct chex_error err = {0};
    char name[64] = "";
    sscanf(line, "cmd=%63s", name);
    for (size_t i = 0; i < CHEX_COUNT(constant); i++)
        if (strcmp(name, constant[i][0]) == 0) {
            dprintf(s->fd, "cmd=%s rc=0\n", constant[i][1]);
            return;
        }
    if (strcmp(name, "put") == 0)
        put(s, line);
    else if (strcmp(name, "get") == 0)
        get(s, line);
    else if (!s->launch)
        dprintf(s->fd, "cmd=%s_result rc=1 msg=not_supported\n", name);
    else if (strcmp(name, "get_universe_size") == 0)
        dprintf(s->fd, "cmd=universe_size rc=0 size=%d\n", s->launch->size);
    else if (strcmp(name, "barrier_in") == 0 && share_puts(s, &err) == CHEX_OK)
        dprintf(s->fd, "cmd=barrier_out rc=0\n");
    else if (strcmp(name, "abort") == 0)
        chex_error_set(&err, CHEX_E_ENV, "MPICH ends this rank: see its message");
    else if (err.status == CHEX_OK)
        dprintf(s->fd, "cmd=%s_result rc=1 msg=not_supported\n", name);
    if (err.status != CHEX_OK)
        give_up(s, &err);
}

static void *run(void *arg) {
    struct chex_pmi_server *s = arg;
    FILE *in = fdopen(s->fd, "r");
    char line[LINE_BYTES];
    while (in && fgets(line, sizeof line, in)) {
        pthread_mutex_lock(&s->lock);
        serve(s, line);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void set_int(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

enum chex_status chex_pmi_server_start(struct chex_launch *launch,
                                       struct chex_pmi_server **server_out,
                                       struct chex_error *err) {
    int ends[2];
    pthread_t thread;
    struct chex_pmi_server *s = chex_alloc_zeroed(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, NULL);
    pthread_mutex_init(&s->lock, NULL);
    s->launch = launch;
    *server_out = s; /* also after a failure, which ends the process */
    if (!append(&s->known, "\n", 1))
        return chex_error_memory(err, NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "PMI server: socketpair");
    s->fd = ends[0];
    set_int("PMI_FD", ends[1]);
    set_int("PMI_RANK", launch->rank);
    set_int("PMI_SIZE", launch->size);
    set_int("MPIR_CVAR_PMI_VERSION", 1); /* MPICH 4.2 does not choose between PMI and PMIx */
    unsetenv("PMI_SPAWNED");
    unsetenv("I_MPI_PMI_LIBRARY"); /* of Intel MPI: Slurm's libpmi */
    if (pthread_create(&thread, NULL, run, s) != 0)
        return chex_error_set(err, CHEX_E_RESOURCE, "PMI server: no thread");
    pthread_detach(thread);
    return CHEX_OK;
}

void chex_pmi_server_end(struct chex_pmi_server *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->launch = NULL;
    pthread_mutex_unlock(&s->lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The PMI server, asked by a client of a few lines. Ranks are processes. MPICH itself is tried in
 * tests/slurm/1693-mpich.t.
 */
#include "launch/pmi_server.h"

#include "fork_ranks.h"

/* Sends a line, and compares the answer. */
static bool asks(const char *line, const char *answer) {
    const int fd = atoi(getenv("PMI_FD"));
    char got[4096];
    size_t n = 0;
    if (write(fd, line, strlen(line)) != (ssize_t)strlen(line))
        return false;
    while (n + 1 < sizeof got && read(fd, got + n, 1) == 1 && got[n++] != '\n')
        ;
    got[n] = '\0';
    if (strcmp(got, answer) == 0)
        return true;
    fprintf(stderr, "asked %sgot %swanted %s", line, got, answer);
    return false;
}

static bool is_set(const char *name, int value) {
    return getenv(name) && atoi(getenv(name)) == value;
}

static bool hello(const struct chex_launch *l) {
    return is_set("PMI_RANK", l->rank) && is_set("PMI_SIZE", l->size) &&
           asks("cmd=init pmi_version=1 pmi_subversion=1\n",
                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n") &&
           asks("cmd=get_maxes\n",
                "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0\n") &&
           asks("cmd=get_appnum\n", "cmd=appnum appnum=0 rc=0\n") &&
           asks("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=chexnet rc=0\n") &&
           asks("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=3\n") &&
           asks("cmd=get kvsname=chexnet key=PMI_process_mapping\n",
                "cmd=get_result rc=1 msg=key_not_found\n") &&
           asks("cmd=spawn_later\n", "cmd=spawn_later_result rc=1 msg=not_supported\n");
}

/* Rank 1 puts nothing. Values have other lengths, one the longest, and a space that is escaped. */
static bool round_of_puts(const struct chex_launch *l) {
    char line[2048], longest[1024];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    snprintf(line, sizeof line, "cmd=put kvsname=chexnet key=card-%d value=%s\n", l->rank,
             l->rank == 0 ? "a\\ b" : longest);
    if (l->rank != 1 && !asks(line, "cmd=put_result rc=0\n"))
        return false;
    snprintf(line, sizeof line, "cmd=get_result rc=0 value=%s\n", longest);
    return asks("cmd=barrier_in\n", "cmd=barrier_out rc=0\n") &&
           asks("cmd=get kvsname=chexnet key=card-0\n", "cmd=get_result rc=0 value=a\\ b\n") &&
           asks("cmd=get kvsname=chexnet key=card-2\n", line) &&
           asks("cmd=get kvsname=chexnet key=card-1\n",
                "cmd=get_result rc=1 msg=key_not_found\n") &&
           asks("cmd=get kvsname=chexnet key=card\n", "cmd=get_result rc=1 msg=key_not_found\n");
}

static enum chex_status play(struct chex_launch *l, struct chex_error *err) {
    struct chex_pmi_server *s = NULL;
    CHEX_TRY(chex_pmi_server_start(l, &s, err));
    bool good = hello(l) && round_of_puts(l) && asks("cmd=barrier_in\n", "cmd=barrier_out rc=0\n");
    if (good && l->rank == 0)
        good = asks("cmd=put kvsname=chexnet key=late value=1\n", "cmd=put_result rc=0\n");
    good = good && asks("cmd=barrier_in\n", "cmd=barrier_out rc=0\n") &&
           asks("cmd=get kvsname=chexnet key=late\n", "cmd=get_result rc=0 value=1\n");
    chex_pmi_server_end(s);
    good = good && asks("cmd=barrier_in\n", "cmd=barrier_in_result rc=1 msg=not_supported\n") &&
           asks("cmd=finalize\n", "cmd=finalize_ack rc=0\n");
    return good ? CHEX_OK : CHEX_E_FAIL;
}

static enum chex_status play_abort(struct chex_launch *l, struct chex_error *err) {
    struct chex_pmi_server *s = NULL;
    CHEX_TRY(chex_pmi_server_start(l, &s, err));
    (void)asks("cmd=abort exitcode=15\n", "");
    return CHEX_OK;
}

static enum chex_status play_lost(struct chex_launch *l, struct chex_error *err) {
    struct chex_pmi_server *s = NULL;
    CHEX_TRY(chex_pmi_server_start(l, &s, err));
    (void)asks("cmd=barrier_in\n", "");
    return CHEX_OK;
}

int main(void) {
    int status[FORK_RANKS];
    fork_begin();
    OK(fork_ranks(3, play, NULL), "three ranks learn what the others have put");
    (void)fork_ranks(1, play_abort, status);
    OK(status[0] == CHEX_E_ENV, "a client that aborts ends its rank with status 4");
    fork_world->lost = "pmi-sizes";
    (void)fork_ranks(3, play_lost, status);
    OK(status[0] == CHEX_E_LOST && status[2] == CHEX_E_LOST && fork_world->aborted_with == 7,
       "a rank that is lost in a barrier ends the job with status 7");
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * launch/launch_pmi2.c as rank 0 of 2 against a server that is a thread: right answers, wrong ones
 * and none. Each case is a process of its own, because a fault of the connection is for ever.
 * Slurm's server is met in tests/slurm/1690-pmi2.t, Hydra in tests/cmd/0418-without-slurm.t.
 *
 * The program is linked with --wrap=chex_clock_in_ms, which shortens long limits.
 */
#include "launch/launch.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/methods.h"
#include "tap.h"

/* NOLINTBEGIN: the names are the linker's */
uint64_t __real_chex_clock_in_ms(uint64_t ms);
uint64_t __wrap_chex_clock_in_ms(uint64_t ms);
uint64_t __wrap_chex_clock_in_ms(uint64_t ms) {
    return __real_chex_clock_in_ms(ms == 30000 ? 3000 : ms > 30000 ? ms / 100 : ms);
}
/* NOLINTEND */

/* A command of the case, and what the server then does instead of its answer. */
struct fault {
    const char *command;
    enum { ANSWER, CLOSE, NOTHING } action;
    const char *answer; /* of ANSWER */
};

enum { PAIRS = 256, LINE = 8192 };

static struct server {
    int fd;
    bool slowly; /* byte by byte */
    bool absent; /* rank 1 never comes */
    bool late;   /* the first barrier ends together with the answer to the next name */
    bool stalls; /* the server does not answer get_maxes after a barrier has begun */
    bool waits;  /* a barrier has begun */
    bool no_names;
    struct fault fault;
    char key[PAIRS][128], value[PAIRS][1024];
    int pairs;
    char last[LINE]; /* the last command */
} server;

static void say(const char *text) {
    const size_t n = strlen(text), step = server.slowly ? 1 : n;
    for (size_t at = 0; at < n; at += step)
        if (send(server.fd, text + at, step, MSG_NOSIGNAL) < 0)
            return;
}

/* Values and names with one key are two things. */
static void keep(const char *line) {
    char *key = server.key[server.pairs], *value = server.value[server.pairs];
    if (server.pairs + 1 < PAIRS &&
        (sscanf(line, "cmd=put kvsname=job key=%126s value=%1023s", key + 1, value) == 2 ||
         sscanf(line, "cmd=publish_name service=job.%126s port=%1023s", key + 1, value) == 2)) {
        key[0] = line[6]; /* t of put, b of publish */
        server.pairs++;
    }
}

/* Rank 1 has given what rank 0 gave. */
static const char *find(const char *key) {
    char as_0[128];
    const char *one = NULL;
    for (const char *at = key; (at = strstr(at, ".1.")); at++)
        one = at;
    snprintf(as_0, sizeof as_0, "%s", key);
    if (one && !server.absent)
        as_0[one - key + 1] = '0';
    for (int i = server.pairs - 1; i >= 0; i--)
        if (strcmp(server.key[i], as_0) == 0)
            return server.value[i];
    return NULL;
}

static void answer(const char *line) {
    char key[128] = "", text[2048];
    const char *found = NULL;
    key[0] = strncmp(line, "cmd=get", 7) == 0 ? 't' : 'b';
    if (sscanf(line, "cmd=get kvsname=job key=%126s", key + 1) == 1 ||
        sscanf(line, "cmd=lookup_name service=job.%126s", key + 1) == 1)
        found = strcmp(key + 1, "PMI_process_mapping") == 0 ? "(vector,(0,2,1))" : find(key);
    if (strncmp(line, "cmd=init ", 9) == 0)
        say("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (strcmp(line, "cmd=get_maxes") == 0 && !(server.stalls && server.waits))
        say("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    else if (strcmp(line, "cmd=get_my_kvsname") == 0)
        say("cmd=my_kvsname kvsname=job\n");
    else if (strncmp(line, "cmd=put ", 8) == 0) {
        keep(line);
        say("cmd=put_result rc=0\n");
    } else if (strncmp(line, "cmd=publish_name ", 17) == 0 && !server.no_names) {
        keep(line);
        say(server.late && server.waits ? "cmd=publish_result info=ok\ncmd=barrier_out\n"
                                        : "cmd=publish_result info=ok rc=0\n");
        server.late = server.late && !server.waits;
    } else if (strncmp(line, "cmd=publish_name ", 17) == 0)
        say("cmd=publish_result rc=-1 msg=not_implemented\n");
    else if (strncmp(line, "cmd=get ", 8) == 0) {
        snprintf(text, sizeof text, "cmd=get_result rc=%d value=%s\n", found ? 0 : -1,
                 found ? found : "unknown");
        say(text);
    } else if (strncmp(line, "cmd=lookup_name ", 16) == 0) {
        snprintf(text, sizeof text,
                 found ? "cmd=lookup_result info=ok port=%s\n" : "cmd=lookup_result info=fail\n",
                 found);
        say(text);
    } else if (strcmp(line, "cmd=barrier_in") == 0) {
        server.waits = true;
        if (!server.absent && !server.late)
            say("cmd=barrier_out rc=0\n");
    } else if (strcmp(line, "cmd=finalize") == 0)
        say("cmd=finalize_ack rc=0\n");
}

static void *serve(void *arg) {
    char line[LINE];
    size_t n = 0;
    (void)arg;
    for (ssize_t more; (more = read(server.fd, line + n, 1)) == 1;) {
        if (line[n++] != '\n')
            continue;
        line[n - 1] = '\0';
        n = 0;
        memcpy(server.last, line, sizeof line);
        const struct fault *f = &server.fault;
        if (!f->command || !strstr(line, f->command))
            answer(line);
        else if (f->action == ANSWER)
            say(f->answer);
        else if (f->action == CLOSE)
            return close(server.fd), NULL;
    }
    return NULL;
}

/* ---- cases: each returns its status ---- */

static void set_environment(int fd) {
    char text[16];
    snprintf(text, sizeof text, "%d", fd);
    unsetenv("SLURM_JOB_ID");
    setenv("PMI_FD", text, 1);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "2", 1);
}

static enum chex_status right_answers(struct chex_launch *l, struct chex_error *err) {
    enum { MANY = 1024 };
    unsigned char mine[MANY], all[2 * MANY];
    bool came[2];
    char host[CHEX_HOST_BYTES];
    CHEX_TRY(chex_launch_exchange(l, "empty", NULL, 0, NULL, 2000, err));
    for (int i = 0; i < MANY; i++)
        mine[i] = (unsigned char)(i * 167 + i * i / 7);
    CHEX_TRY(chex_launch_exchange(l, "many", mine, MANY, all, 2000, err));
    if (memcmp(all, mine, MANY) != 0 || memcmp(all + MANY, mine, MANY) != 0)
        return chex_error_set(err, CHEX_E_FAIL, "exchange");
    memset(mine, 0, MANY);
    if (!server.no_names) /* rank 0 itself publishes nothing for a collect */
        CHEX_TRY(chex_launch_publish(l, "chexnet.2.zeros", mine, MANY, err));
    CHEX_TRY(chex_launch_collect(l, "zeros", mine, MANY, all, 2000, err));
    if (memcmp(all + MANY, mine, MANY) != 0)
        return chex_error_set(err, CHEX_E_FAIL, "collect");
    if (!server.no_names) {
        int word = 77, words[2] = {0};
        CHEX_TRY(chex_launch_publish(l, "word", &word, sizeof word, err));
        chex_launch_lookup(l, "word", 0, 2, sizeof word, words, came, 100);
        if (came[0] || !came[1] || words[1] != 77)
            return chex_error_set(err, CHEX_E_FAIL, "lookup");
        chex_launch_lookup(l, "none", 0, 2, 0, NULL, came, 10);
        if (came[0] || came[1])
            return chex_error_set(err, CHEX_E_FAIL, "lookup of nothing");
    }
    chex_launch_host(l, 1, host, sizeof host);
    if (strcmp(host, server.no_names ? "host unknown" : l->host) != 0)
        return chex_error_set(err, CHEX_E_FAIL, "host %s", host);
    return strcmp(l->method, "pmi2") == 0 && l->rank == 0 && l->size == 2 && l->nodes == 2 &&
                   l->local_size == 1 && l->node == 0
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_FAIL, "identity");
}

static enum chex_status exchange_3(struct chex_launch *l, struct chex_error *err) {
    char mine[3] = "ab", all[6];
    return chex_launch_exchange(l, "three", mine, sizeof mine, all, 300, err);
}

static enum chex_status wait_long(struct chex_launch *l, struct chex_error *err) {
    char mine = 'a', all[2];
    return chex_launch_exchange(l, "long", &mine, 1, all, 6000000, err);
}

static enum chex_status closed(struct chex_launch *l, struct chex_error *err) {
    const enum chex_status st = wait_long(l, err);
    return l->impl->gone() && !chex_launch_can_lookup(&(struct chex_launch){.size = 1}) ? st
                                                                                        : CHEX_OK;
}

static enum chex_status ask_to_end(struct chex_launch *l, struct chex_error *err) {
    kill(getpid(), SIGTERM);
    sleep((unsigned)tap_wait_s());
    (void)l;
    return chex_error_set(err, CHEX_E_FAIL, "SIGTERM has no effect");
}

static enum chex_status end_as_aborted(struct chex_launch *l, struct chex_error *err) {
    const int status = CHEX_E_NODE;
    CHEX_TRY(chex_launch_publish(l, "chexnet.abort", &status, sizeof status, err));
    return ask_to_end(l, err);
}

static enum chex_status abort_job(struct chex_launch *l, struct chex_error *err) {
    (void)err;
    chex_launch_abort(l, CHEX_E_DIVERGED);
    return CHEX_OK;
}

static enum chex_status none(struct chex_launch *l, struct chex_error *err) {
    (void)l, (void)err;
    return CHEX_OK;
}

struct running {
    pid_t process;
    int text; /* pipe */
};

typedef enum chex_status (*case_fn)(struct chex_launch *launch, struct chex_error *err);

static struct running start(const struct server *how, case_fn fn) {
    int ends[2], pair[2];
    BAIL_UNLESS(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "sockets");
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        struct chex_launch launch = {0};
        struct chex_error err = {0};
        sigset_t term, before;
        server = *how;
        server.fd = pair[1];
        set_environment(pair[0]);
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &term, &before);
        pthread_create(&thread, NULL, serve, NULL);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        enum chex_status st = chex_launch_init(&launch, &err);
        if (st == CHEX_OK) {
            st = fn(&launch, &err);
            chex_launch_finish(&launch);
            if (st == CHEX_OK && strcmp(server.last, "cmd=finalize") != 0)
                st = chex_error_set(&err, CHEX_E_FAIL, "the last command is %.40s", server.last);
        }
        if (write(ends[1], err.text, strlen(err.text)) < 0)
            _exit(99);
        _exit((int)st);
    }
    close(ends[1]);
    close(pair[0]);
    close(pair[1]);
    return (struct running){child, ends[0]};
}

/* The exit status, or minus the signal. */
static int finish(const struct running *r, char *text, size_t size) {
    int status = 0;
    const ssize_t n = read(r->text, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(r->text);
    waitpid(r->process, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static const char init[] = "cmd=init", maxes[] = "get_maxes", get[] = "cmd=get ",
                  barrier[] = "barrier_in";
static char endless[5000];

static const struct {
    const char *name;
    struct server how;
    case_fn fn;
    int status;
    const char *text;
} cases[] = {
    {"right answers", {0}, right_answers, CHEX_OK, ""},
    {"answers that come byte by byte", {.slowly = true}, right_answers, CHEX_OK, ""},
    {"a launcher without names", {.no_names = true}, right_answers, CHEX_OK, ""},
    {"a socket that is closed at the start",
     {.fault = {init, CLOSE}},
     none,
     CHEX_E_ENV,
     "start: the PMI server of this node is gone: "},
    {"another version",
     {.fault = {init, ANSWER, "cmd=response_to_init rc=-1\n"}},
     none,
     CHEX_E_ENV,
     "wrong answer ('cmd=response_to_init rc=-1')"},
    {"garbage at the start",
     {.fault = {init, ANSWER, "hello\n"}},
     none,
     CHEX_E_ENV,
     "wrong answer ('hello')"},
    {"no answer at the start", {.fault = {init, NOTHING}}, none, CHEX_E_ENV, "does not answer"},
    {"values that are too short",
     {.fault = {maxes, ANSWER, "cmd=maxes vallen_max=256\n"}},
     none,
     CHEX_E_ENV,
     "wrong answer ('cmd=maxes vallen_max=256')"},
    {"nodes that cannot be read",
     {.fault = {"PMI_process_mapping", ANSWER, "cmd=get_result rc=0 value=(vector,(0,0,1))\n"}},
     none,
     CHEX_E_ENV,
     "PMI_process_mapping: '(vector,(0,0,1))'"},
    {"a line without end",
     {.fault = {get, ANSWER, endless}},
     none,
     CHEX_E_LOST,
     "wrong answer ('a line without end')"},
    {"no answer to a value",
     {.fault = {"cmd=put", NOTHING}},
     exchange_3,
     CHEX_E_LOST,
     "three: the PMI server of this node does not answer"},
    {"a value that is refused",
     {.fault = {"cmd=put", ANSWER, "cmd=put_result rc=1\n"}},
     exchange_3,
     CHEX_E_LOST,
     "wrong answer ('cmd=put_result rc=1')"},
    {"a value of another length",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER,
                "cmd=get_result rc=0 value=2.10.789c4b4a02000126\n"}},
     exchange_3,
     CHEX_E_FAIL,
     "exchange three: rank 1 gave 2 bytes, expected 3"},
    {"a value without its length",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER, "cmd=get_result rc=0 value=abc\n"}},
     exchange_3,
     CHEX_E_LOST,
     "wrong answer"},
    {"a value that was cut",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER, "cmd=get_result rc=0 value=3.11.78014b\n"}},
     exchange_3,
     CHEX_E_LOST,
     "wrong answer"},
    {"a value with other letters",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER, "cmd=get_result rc=0 value=3.3.61zz63\n"}},
     exchange_3,
     CHEX_E_LOST,
     "wrong answer"},
    {"a value that does not unpack",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER, "cmd=get_result rc=0 value=3.3.616263\n"}},
     exchange_3,
     CHEX_E_LOST,
     "cannot be unpacked"},
    {"a barrier that ends early",
     {.fault = {"key=chexnet.0.three.1.0", ANSWER, "cmd=get_result rc=-1 msg=no value=unknown\n"},
      .absent = false},
     exchange_3,
     CHEX_E_LOST,
     "though every rank came to it"},
    {"a rank that does not come",
     {.absent = true},
     exchange_3,
     CHEX_E_LOST,
     "rank 1 (host unknown) of 2 did not come to exchange three within 0.3 s"},
    {"the same without names",
     {.absent = true, .no_names = true},
     exchange_3,
     CHEX_E_LOST,
     "exchange three of 2 ranks did not end within 0.3 s, and the launcher does not know who is "
     "missing"},
    {"a socket that is closed in a barrier",
     {.fault = {barrier, CLOSE}},
     closed,
     CHEX_E_LOST,
     "long: the PMI server of this node is gone: "},
    {"another answer in a barrier",
     {.fault = {barrier, ANSWER, "cmd=finalize_ack\n"}},
     wait_long,
     CHEX_E_LOST,
     "wrong answer ('cmd=finalize_ack')"},
    {"a server that stalls in a barrier",
     {.absent = true, .fault = {"cmd=publish_name service=job.chexnet.0", NOTHING}},
     wait_long,
     CHEX_E_LOST,
     "long: the PMI server of this node does not answer"},
    {"a server that stalls in a long wait",
     {.absent = true, .stalls = true},
     wait_long,
     CHEX_E_LOST,
     "long: the PMI server of this node does not answer"},
    {"a barrier that ends beside another answer",
     {.late = true, .stalls = true},
     wait_long,
     CHEX_OK,
     ""},
    {"SIGTERM", {0}, ask_to_end, -SIGTERM, ""},
    {"SIGTERM after an abort", {0}, end_as_aborted, CHEX_E_NODE, ""},
    {"an abort", {0}, abort_job, CHEX_E_DIVERGED, ""},
};

static void check_environment(void) {
    struct chex_launch launch = {0};
    struct chex_error err;
    int pair[2];
    BAIL_UNLESS(pipe(pair) == 0, "pipe");
    set_environment(pair[0]);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_E_ENV, err, "no open socket, so rank 0 of 2");
    setenv("PMI_RANK", "2", 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_E_ENV, err, "PMI_RANK=2, PMI_SIZE=2: expected");
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(strcmp(launch.method, "pmi2") == 0 && launch.size == 1, "one rank does not need the socket");
    OK(strcmp(launch.why, "PMI_FD is set; PMIX_NAMESPACE is not set") == 0, "why: %s", launch.why);
    chex_launch_finish(&launch);
    setenv("PMI_JOBID", "77.0", 1);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURM_STEP_ID", "1", 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(strcmp(launch.method, "single") == 0, "PMI of another step is not used");
    chex_launch_finish(&launch);
}

enum { CASES = sizeof cases / sizeof cases[0] };

int main(void) {
    char text[512];
    struct running running[CASES];
    memset(endless, 'x', sizeof endless - 1);
    unsetenv("PMIX_NAMESPACE");
    unsetenv("PMI_JOBID");
    check_environment();
    unsetenv("PMI_JOBID");
    unsetenv("SLURM_STEP_ID");
    for (size_t i = 0; i < CASES; i++)
        running[i] = start(&cases[i].how, cases[i].fn);
    for (size_t i = 0; i < CASES; i++) {
        const int status = finish(&running[i], text, sizeof text);
        OK(status == cases[i].status && strstr(text, cases[i].text), "%s: status %d%s%s",
           cases[i].name, status, text[0] ? ", " : "", text);
    }
    return tap_done();
}

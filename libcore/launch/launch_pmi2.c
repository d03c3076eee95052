/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank whose launcher serves PMI on the socket PMI_FD: srun --mpi=pmi2, mpiexec.hydra.
 *
 * The protocol is PMI 1.1: a rank sends a line, "cmd=get kvsname=5.0 key=a", and gets a line.
 * Slurm's plugin pmi2 and Hydra serve 1.1 and 2.0, Flux 1.1 alone, and 2.0 has nothing that is
 * needed here. No MPI library may use this socket.
 *
 * There are two stores. Values (put, get) are kept by the server of each node and become visible at
 * a barrier. Names (publish_name, lookup_name) are kept by srun or mpiexec and are visible at once;
 * each call is a connection to srun. slurmctld gets no message. Slurm reads 1,024 bytes of a line,
 * so data is compressed, written in hexadecimal digits and cut into pieces. No key is used twice:
 * launchers differ in which value they keep.
 *
 * Problem 1: the barrier counts ranks and does not know them. If a rank has died, the others wait
 * without limit and do not learn for whom. So an exchange waits until its own deadline, and it is
 * complete when the values of all ranks are here. A rank that has waited for a second publishes the
 * key as a name; after the deadline, the ranks without that name are missing.
 *
 * Problem 2: the server may end or stall. A closed socket is noticed at once, and each answer has a
 * limit. In a long wait for others a question every 30 s checks that the server answers. After a
 * late or wrong answer the connection is not used any more.
 *
 * Problem 3: Slurm aborts a step with SIGKILL or SIGTERM, and srun then returns the number of the
 * signal. So the rank that aborts publishes its status and lets scancel send SIGTERM. On SIGTERM a
 * thread of each rank looks for that name and ends the process with this status. Without that name
 * the signal means what it always means to the command. Slurm's abort is left for ranks that do not
 * end then. Hydra's abort returns the status.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/methods.h"
#include "launch/slurm_step.h"

enum {
    LINE_BYTES = 4096, /* an answer has 1,100 at most */
    PIECE_BYTES = 400, /* of data in one line */
    TEXT_BYTES = 2 * PIECE_BYTES + 48,
    SERVER_MS = 60000,    /* a server that does not answer within this time is lost */
    CHECK_MS = 30000,     /* pause between two checks that the server answers */
    CAME_MS = 1000,       /* a rank that waits for longer publishes that it has come */
    SLICE_MS = 200,       /* of a wait for others */
    NAMING_MS = 2500,     /* how long to look for the ranks that are missing */
    FIRST_MS = 3000,      /* head start of local rank 0 in looking for them */
    FINISH_MS = 600000,   /* the last exchange; another rank may still write its results */
    SPOKEN_MS = 1000,     /* before an abort: the launcher loses output on its way to it */
    ENDING_MS = 5000,     /* ranks must end within this time after SIGTERM */
    SAFE_BYTES = 100000,  /* that a barrier distributes; a socket's buffer holds twice as much */
    POLL_FIRST_US = 500,  /* pause between two requests for the same data: first ... */
    POLL_LAST_US = 50000, /* ... and longest */
};

/* Why the connection is not used any more; NULL: it is. */
static const char *_Atomic fault;
static const char gone_text[] =
    "is gone: mpiexec or Slurm's step daemon has ended, or an earlier command of this step has "
    "closed the connection (start each chexnet command with its own srun)";
static const char silent_text[] = "does not answer";
static atomic_int socket_fd = -1; /* of gone() */

static const size_t NOTHING = SIZE_MAX;

/* A kind of data, with the commands and answers of its store, and what is before the name of the
 * job, before the key, and the field of the data. */
struct store {
    const char *put, *put_answer, *get, *get_answer, *of, *key, *field;
};
static const struct store values = {.put = "put",
                                    .put_answer = "put_result",
                                    .get = "get",
                                    .get_answer = "get_result",
                                    .of = "kvsname",
                                    .key = " key=",
                                    .field = "value"};
static const struct store names = {.put = "publish_name",
                                   .put_answer = "publish_result",
                                   .get = "lookup_name",
                                   .get_answer = "lookup_result",
                                   .of = "service",
                                   .key = ".",
                                   .field = "port"};

struct pmi_self {
    int fd, rank;
    pthread_mutex_t lock; /* one command at a time; `in` */
    char in[LINE_BYTES];  /* received and not yet read */
    size_t in_bytes;
    atomic_bool in_barrier;
    bool nameless;      /* this launcher does not keep names */
    char space[256];    /* name of this job's values */
    int *node_of;       /* (size) */
    atomic_bool *ended; /* (size) ranks whose node has left the step */
    pthread_t terminator;
    atomic_bool ending;
    sigset_t term, before; /* SIGTERM; the signals that were blocked before the launch */
};

/* ---- lines ---- */

static bool fail(const char *why) {
    const char *none = NULL;
    atomic_compare_exchange_strong(&fault, &none, why);
    return false;
}

static bool wrong(const char *line) {
    static char text[128];
    if (!fault)
        snprintf(text, sizeof text, "gave a wrong answer ('%.80s')", line);
    return fail(text);
}

static enum chex_status server_error(struct chex_error *err, const char *what) {
    const char *why = fault;
    return chex_error_set(err, CHEX_E_LOST, "%s: the PMI server of this node %s", what,
                          why ? why : "refuses it");
}

/* Whether the line is "cmd=COMMAND ...". */
static bool is(const char *line, const char *command) {
    const size_t n = strlen(command);
    return strncmp(line, "cmd=", 4) == 0 && strncmp(line + 4, command, n) == 0 &&
           (line[4 + n] == ' ' || !line[4 + n]);
}

/* The value of NAME=VALUE in a line. False: it is not there, or too long. */
static bool field(const char *line, const char *name, char *out, size_t size) {
    const size_t n = strlen(name);
    while ((line = strchr(line, ' '))) {
        line++;
        if (strncmp(line, name, n) != 0 || line[n] != '=')
            continue;
        const size_t length = strcspn(line + n + 1, " ");
        snprintf(out, size, "%.*s", (int)length, line + n + 1);
        return length < size;
    }
    return false;
}

/* Launchers differ in which of the two they give. */
static bool succeeded(const char *line) {
    char rc[16] = "0", info[16] = "ok";
    (void)field(line, "rc", rc, sizeof rc);
    (void)field(line, "info", info, sizeof info);
    return strcmp(rc, "0") == 0 && strcmp(info, "ok") == 0;
}

/* Waits until the socket has something to read. */
static void wait_readable(const struct pmi_self *s, uint64_t deadline_ns) {
    struct pollfd ready = {.fd = s->fd, .events = POLLIN};
    const uint64_t now_ns = chex_clock_ns();
    poll(&ready, 1, now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / 1000000u) + 1 : 0);
}

/* The next line, without its end. False: it is not here before the deadline, or a fault. */
static bool next_line(struct pmi_self *s, char line[LINE_BYTES], uint64_t deadline_ns) {
    for (;;) {
        const char *end = memchr(s->in, '\n', s->in_bytes);
        if (end) {
            const size_t n = (size_t)(end - s->in);
            memcpy(line, s->in, n);
            line[n] = '\0';
            s->in_bytes -= n + 1;
            memmove(s->in, end + 1, s->in_bytes);
            return true;
        }
        if (s->in_bytes == sizeof s->in)
            return wrong("a line without end");
        wait_readable(s, deadline_ns);
        const ssize_t n =
            recv(s->fd, s->in + s->in_bytes, sizeof s->in - s->in_bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return fail(gone_text);
        if (n > 0)
            s->in_bytes += (size_t)n;
        else if (chex_clock_ns() >= deadline_ns)
            return false;
    }
}

/* A line that answers no question: the end of the barrier. */
static bool take_unasked(struct pmi_self *s, const char *line) {
    bool waits = true;
    return (is(line, "barrier_out") &&
            atomic_compare_exchange_strong(&s->in_barrier, &waits, false)) ||
           wrong(line);
}

/* Sends a command and reads its answer, "cmd=EXPECT ..."; EXPECT NULL: it has none. False: a fault.
 * Any thread. */
__attribute__((format(printf, 4, 5))) static bool
call(struct pmi_self *s, char answer[LINE_BYTES], const char *expect, const char *format, ...) {
    char line[LINE_BYTES] = "cmd=";
    va_list args;
    va_start(args, format);
    const int n = 4 + vsnprintf(line + 4, sizeof line - 5, format, args);
    va_end(args);
    line[n < LINE_BYTES ? n : 0] = '\n';
    pthread_mutex_lock(&s->lock);
    const uint64_t deadline_ns = chex_clock_in_ms(SERVER_MS);
    bool ok = !fault && n < LINE_BYTES - 1 &&
              (send(s->fd, line, (size_t)n + 1, MSG_NOSIGNAL) > n || fail(gone_text));
    /* Slurm takes what one read returns for one command, so the next one must wait. */
    for (int unread = 1; ok && !expect && unread > 0;)
        if (ioctl(s->fd, SIOCOUTQ, &unread) != 0 || chex_clock_ns() >= deadline_ns)
            ok = fail(silent_text);
        else if (unread > 0)
            usleep(POLL_FIRST_US);
    while (ok && expect) {
        ok = next_line(s, answer, deadline_ns) || fail(silent_text);
        if (ok && is(answer, expect))
            break;
        ok = ok && take_unasked(s, answer);
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- data in text ---- */

/* Stores data of this rank: "BYTES.PACKED." and the compressed data in hexadecimal digits. False: a
 * fault, or the launcher has no such store. */
static bool put(struct pmi_self *s, const struct store *in, const char *key, int rank,
                const void *data, size_t bytes) {
    char answer[LINE_BYTES], text[TEXT_BYTES];
    uLongf packed = compressBound(bytes);
    unsigned char *from = malloc(packed);
    bool ok = from && compress2(from, &packed, bytes ? data : "", bytes, Z_BEST_SPEED) == Z_OK;
    for (size_t piece = 0, done = 0; ok && done < packed; piece++) {
        const size_t end = packed - done < PIECE_BYTES ? packed : done + PIECE_BYTES;
        int at = 0;
        if (piece == 0)
            at = snprintf(text, sizeof text, "%zu.%zu.", bytes, (size_t)packed);
        while (done < end)
            at += snprintf(text + at, sizeof text - (size_t)at, "%02x", from[done++]);
        ok = call(s, answer, in->put_answer, "%s %s=%s%s%s.%d.%d %s=%s", in->put, in->of, s->space,
                  in->key, key, rank, (int)piece, in->field, text) &&
             (succeeded(answer) || (in == &values && wrong(answer)));
    }
    free(from);
    return ok;
}

static bool unpack_digits(const char *text, unsigned char *out, size_t n) {
    bool right = strlen(text) == 2 * n && strspn(text, "0123456789abcdef") == 2 * n;
    for (size_t i = 0; right && i < n; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1]};
        out[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return right || wrong(text);
}

/* Gets what a rank has stored. Returns how many bytes it has stored, or NOTHING; `out` has them if
 * these are `bytes`. */
static size_t get(struct pmi_self *s, const struct store *in, const char *key, int rank, void *out,
                  size_t bytes) {
    char answer[LINE_BYTES], text[TEXT_BYTES];
    unsigned char *packed = NULL;
    size_t stored = NOTHING, n = 1, done = 0, more = 0;
    for (int piece = 0; done < n; piece++, done += more) {
        int at = 0;
        if (!call(s, answer, in->get_answer, "%s %s=%s%s%s.%d.%d", in->get, in->of, s->space,
                  in->key, key, rank, piece) ||
            !succeeded(answer) || !field(answer, in->field, text, sizeof text))
            break;
        if (piece == 0 &&
            (sscanf(text, "%zu.%zu.%n", &stored, &n, &at) != 2 || !at || n > compressBound(stored)))
            wrong(answer);
        else if (piece == 0 && stored == bytes)
            packed = malloc(n);
        more = n - done < PIECE_BYTES ? n - done : PIECE_BYTES;
        if (fault || !packed || !unpack_digits(text + at, packed + done, more))
            break;
    }
    uLongf whole = bytes;
    unsigned char none;
    if (stored == bytes && (!packed || done < n))
        stored = NOTHING;
    else if (stored == bytes &&
             (uncompress(bytes ? out : &none, &whole, packed, n) != Z_OK || whole != bytes))
        wrong("data that cannot be unpacked");
    free(packed);
    return fault ? NOTHING : stored;
}

static void pause_longer(unsigned *pause_us) {
    usleep(*pause_us);
    *pause_us = *pause_us * 2 < POLL_LAST_US ? *pause_us * 2 : POLL_LAST_US;
}

static enum chex_status publish(struct chex_launch *launch, const char *key, const void *mine,
                                size_t bytes, struct chex_error *err) {
    return put(launch->self, &names, key, launch->rank, mine, bytes) ? CHEX_OK
                                                                     : server_error(err, key);
}

static void lookup(const struct chex_launch *launch, const char *key, int from, int to,
                   size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms) {
    const uint64_t deadline_ns = chex_clock_in_ms(wait_ms);
    unsigned pause_us = POLL_FIRST_US;
    memset(came_out, 0, (size_t)(to - from) * sizeof *came_out);
    for (bool whole = false; !fault;) {
        whole = true;
        for (int r = from; r < to; r++) {
            if (r == launch->rank || came_out[r - from])
                continue;
            char *out = bytes ? (char *)all_out + (size_t)(r - from) * bytes : NULL;
            const size_t found = get(launch->self, &names, key, r, out, bytes);
            came_out[r - from] = bytes ? found == bytes : found != NOTHING;
            whole = whole && came_out[r - from];
        }
        if (whole || chex_clock_ns() >= deadline_ns)
            return;
        pause_longer(&pause_us);
    }
}

static const char host_key[] = "chexnet.host";

/* The host that the rank has published, or else another rank of its node. */
static void host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    struct pmi_self *s = launch->self;
    char found[CHEX_HOST_BYTES] = "host unknown";
    const int *node_of = s->node_of;
    if (node_of[rank] == launch->node)
        memcpy(found, launch->host, sizeof found);
    for (int i = 0; node_of[rank] != launch->node && i < launch->size; i++) {
        const int r = (rank + i) % launch->size;
        if (node_of[r] == node_of[rank] &&
            get(s, &names, host_key, r, found, sizeof found) == sizeof found)
            break;
    }
    snprintf(buf, size, "%s", found);
}

static int ended(const struct chex_launch *launch, int from, int to, bool *ended_out) {
    struct pmi_self *s = launch->self;
    bool known;
    const int found = chex_slurm_step_find_ended(
        launch, getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"), from, to, s->ended, &known);
    for (int r = from; r < to; r++)
        ended_out[r - from] = s->ended[r];
    return known || found ? found : -1;
}

/* ---- exchange and collect ---- */

static void publish_came(const struct chex_launch *launch, const char *key) {
    (void)put(launch->self, &names, key, launch->rank, NULL, 0);
}

/* Waits until all ranks are in the barrier. False: a fault, or the deadline has passed. srun and
 * the server of a node wait for each other if srun distributes values that fill the socket's buffer
 * while this server asks it for a name. So with many bytes a rank publishes before the barrier. */
static bool barrier(const struct chex_launch *launch, const char *key, size_t bytes,
                    uint64_t deadline_ns) {
    struct pmi_self *s = launch->self;
    const bool early = (2 * bytes + 100) * (size_t)launch->size > SAFE_BYTES;
    uint64_t check_ns = chex_clock_in_ms(CHECK_MS),
             came_ns = early ? UINT64_MAX : chex_clock_in_ms(CAME_MS);
    char line[LINE_BYTES];
    if (early)
        publish_came(launch, key);
    s->in_barrier = true;
    if (!call(s, NULL, NULL, "barrier_in"))
        return false;
    for (uint64_t now_ns; s->in_barrier && !fault && (now_ns = chex_clock_ns()) < deadline_ns;) {
        if (now_ns >= came_ns) {
            publish_came(launch, key);
            came_ns = UINT64_MAX;
        }
        if (now_ns >= check_ns && call(s, line, "maxes", "get_maxes"))
            check_ns = chex_clock_in_ms(CHECK_MS);
        pthread_mutex_lock(&s->lock); /* call() may have received the line, in any thread */
        while (s->in_barrier && next_line(s, line, 0) && take_unasked(s, line))
            ;
        pthread_mutex_unlock(&s->lock);
        const uint64_t next_ns = chex_clock_in_ms(SLICE_MS);
        if (s->in_barrier)
            wait_readable(s, next_ns < deadline_ns ? next_ns : deadline_ns);
    }
    return !s->in_barrier && !fault;
}

/* After the deadline: the error with the ranks that have not published `key`. */
static enum chex_status lost(struct chex_launch *launch, const char *name, const char *key,
                             uint64_t timeout_ms, struct chex_error *err) {
    const struct pmi_self *s = launch->self;
    publish_came(launch, key);
    if (launch->local_rank > 0)
        chex_clock_sleep_ms(FIRST_MS); /* it ends the job, and srun is asked by fewer ranks */
    if (!s->nameless)
        launch->came = calloc((size_t)launch->size, sizeof *launch->came);
    if (launch->came) {
        lookup(launch, key, 0, launch->size, 0, NULL, launch->came, NAMING_MS);
        launch->came[launch->rank] = true;
    }
    return fault ? server_error(err, name)
                 : chex_launch_lost(launch, name, "and the launcher does not know who is missing",
                                    timeout_ms, err);
}

static enum chex_status gather(struct chex_launch *launch, const char *name, const char *key,
                               const void *mine, size_t bytes, unsigned char *all,
                               uint64_t timeout_ms, struct chex_error *err) {
    struct pmi_self *s = launch->self;
    const uint64_t deadline_ns = chex_clock_in_ms(timeout_ms);
    bool came =
        put(s, &values, key, launch->rank, mine, bytes) && barrier(launch, key, bytes, deadline_ns);
    for (int r = 0; came && r < launch->size; r++) {
        unsigned char *out = bytes ? all + (size_t)r * bytes : NULL;
        if (r == launch->rank) {
            if (bytes)
                memcpy(out, mine, bytes);
            continue;
        }
        unsigned pause_us = POLL_FIRST_US;
        size_t found;
        while ((found = get(s, &values, key, r, out, bytes)) == NOTHING && !fault &&
               chex_clock_ns() < deadline_ns)
            pause_longer(&pause_us);
        came = found != NOTHING;
        if (came && found != bytes)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "exchange %s: rank %d gave %zu bytes, expected %zu", name, r,
                                  found, bytes);
    }
    return came ? CHEX_OK : lost(launch, name, key, timeout_ms, err);
}

static enum chex_status gather_at_0(struct chex_launch *launch, const char *name, const char *key,
                                    const void *mine, size_t bytes, unsigned char *all,
                                    uint64_t timeout_ms, struct chex_error *err) {
    const struct pmi_self *s = launch->self;
    const size_t ranks = (size_t)launch->size;
    unsigned char *unused = NULL;
    if (s->nameless) {
        if (!all && !(unused = malloc(ranks * bytes)))
            return chex_error_memory(err, NULL);
        const enum chex_status st =
            gather(launch, name, key, mine, bytes, all ? all : unused, timeout_ms, err);
        free(unused);
        return st;
    }
    if (launch->rank != 0)
        return publish(launch, key, mine, bytes, err);
    memcpy(all, mine, bytes);
    bool *came = calloc(ranks, sizeof *came);
    if (!came)
        return chex_error_memory(err, NULL);
    lookup(launch, key, 1, launch->size, bytes, all + bytes, came + 1, timeout_ms);
    const bool whole = !memchr(came + 1, 0, ranks - 1);
    free(came);
    return whole ? CHEX_OK : lost(launch, name, key, timeout_ms, err);
}

/* ---- abort ---- */

static const char abort_key[] = "chexnet.abort", ending_key[] = "chexnet.ending";

/* The status of a job that is being aborted, or 0. */
static int aborted_with(struct pmi_self *s) {
    int status = 0;
    return get(s, &names, abort_key, 0, &status, sizeof status) == sizeof status ? status : 0;
}

static void *await_term(void *arg) {
    struct pmi_self *s = arg;
    for (int number; sigwait(&s->term, &number) == 0 && !s->ending;) {
        const int status = aborted_with(s);
        if (status && put(s, &names, ending_key, s->rank, NULL, 0))
            _exit(status);
        pthread_sigmask(SIG_UNBLOCK, &s->term, NULL);
        raise(SIGTERM);
        pthread_sigmask(SIG_BLOCK, &s->term, NULL);
    }
    return NULL;
}

/* Threads that start later have SIGTERM blocked too. */
static enum chex_status start_terminator(struct pmi_self *s, struct chex_error *err) {
    sigemptyset(&s->term);
    sigaddset(&s->term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &s->term, &s->before);
    if (pthread_create(&s->terminator, NULL, await_term, s) == 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_RESOURCE, "cannot start a thread for PMI");
}

static void stop_terminator(struct pmi_self *s) {
    if (atomic_exchange(&s->ending, true))
        return;
    pthread_kill(s->terminator, SIGTERM);
    pthread_join(s->terminator, NULL);
}

/* Lets Slurm send SIGTERM to all ranks; a stopped rank wakes up. True: all ranks end now. scancel
 * inherits that SIGTERM is blocked. */
static bool end_by_signal(const struct chex_launch *launch) {
    const int job = chex_launch_env_int("SLURM_JOB_ID", -1),
              step = chex_launch_env_int("SLURM_STEP_ID", -1);
    char command[128];
    bool *ending = calloc((size_t)launch->size, sizeof *ending), all = false;
    snprintf(command, sizeof command,
             "(for s in CONT TERM; do scancel -s $s %d.%d; done) >/dev/null 2>&1 &", job, step);
    if (ending && getenv("PMI_JOBID") && job >= 0 && step >= 0 && system(command) == 0) {
        lookup(launch, ending_key, 0, launch->size, 0, NULL, ending, ENDING_MS);
        ending[launch->rank] = true;
        all = !memchr(ending, 0, (size_t)launch->size);
    }
    free(ending);
    return all;
}

/* SIGTERM stays blocked: this rank ends with its own status. */
static void abort_all(struct chex_launch *launch, int status) {
    struct pmi_self *s = launch->self;
    launch->broken = true;
    stop_terminator(s);
    (void)put(s, &names, ending_key, launch->rank, NULL, 0);
    if (aborted_with(s)) /* by another rank */
        return;
    (void)put(s, &names, abort_key, 0, &status, sizeof status);
    chex_clock_sleep_ms(SPOKEN_MS);
    if (end_by_signal(launch))
        return;
    (void)call(s, NULL, NULL, "abort exitcode=%d", status);
    _exit(status); /* before Slurm kills this rank too */
}

/* ---- start and end ---- */

/* Slurm's PMI_JOBID is JOB.STEP. A step without PMI that was started inside a step with PMI
 * inherits the outer step's variables, which are not valid here. */
static bool present(void) {
    const char *of = getenv("PMI_JOBID"), *job = getenv("SLURM_JOB_ID"),
               *step = getenv("SLURM_STEP_ID");
    char own[64];
    snprintf(own, sizeof own, "%s.%s", job ? job : "", step ? step : "");
    return getenv("PMI_FD") && getenv("PMI_RANK") && getenv("PMI_SIZE") &&
           (!of || !job || !step || strcmp(of, own) == 0);
}

static void why(char *buf, size_t size) {
    snprintf(buf, size, "%s; PMIX_NAMESPACE is %s",
             getenv("PMI_JOBID") && getenv("SLURM_STEP_ID") ? "srun --mpi=pmi2" : "PMI_FD is set",
             getenv("PMIX_NAMESPACE") ? "of another step" : "not set");
}

static enum chex_status greet(struct pmi_self *s, struct chex_error *err) {
    char line[LINE_BYTES], most[16] = "0";
    if (call(s, line, "response_to_init", "init pmi_version=1 pmi_subversion=1") &&
        (succeeded(line) || wrong(line)) && call(s, line, "maxes", "get_maxes") &&
        ((field(line, "vallen_max", most, sizeof most) && atoi(most) >= TEXT_BYTES) ||
         wrong(line)) &&
        call(s, line, "my_kvsname", "get_my_kvsname") &&
        (field(line, "kvsname", s->space, sizeof s->space) || wrong(line)))
        return CHEX_OK;
    (void)server_error(err, "start");
    return err->status = CHEX_E_ENV;
}

/* "(vector,(0,2,4),(2,1,3))": ranks 0-3 on node 0, 4-7 on node 1, 8-10 on node 2; then again. */
static bool read_nodes(const char *text, int *node_of, int size) {
    int rank = 0, first, count, each, used;
    if (strncmp(text, "(vector,(", 9) != 0)
        return false;
    for (const char *at = text + 7; rank < size; at += used) {
        if (*at == ')')
            at = text + 7;
        if (sscanf(at, ",(%d,%d,%d)%n", &first, &count, &each, &used) != 3 || first < 0 ||
            count < 1 || each < 1)
            return false;
        for (int i = 0; i / each < count && rank < size; i++)
            node_of[rank++] = first + i / each;
    }
    return true;
}

static enum chex_status find_nodes(struct chex_launch *launch, struct chex_error *err) {
    struct pmi_self *s = launch->self;
    char line[LINE_BYTES], text[LINE_BYTES] = "";
    s->node_of = calloc((size_t)launch->size, sizeof *s->node_of);
    s->ended = calloc((size_t)launch->size, sizeof *s->ended);
    if (!s->node_of || !s->ended)
        return chex_error_memory(err, NULL);
    if (!call(s, line, "get_result", "get kvsname=%s key=PMI_process_mapping", s->space))
        return server_error(err, "start");
    if (!field(line, "value", text, sizeof text) || !read_nodes(text, s->node_of, launch->size))
        return chex_error_set(err, CHEX_E_ENV, "PMI server: PMI_process_mapping: '%.80s'", text);
    launch->nodes = launch->local_size = 0;
    launch->node = s->node_of[launch->rank];
    for (int r = 0; r < launch->size; r++) {
        const bool near = s->node_of[r] == launch->node;
        launch->nodes = s->node_of[r] < launch->nodes ? launch->nodes : s->node_of[r] + 1;
        launch->local_rank += near && r < launch->rank;
        launch->local_size += near;
    }
    s->nameless = !put(s, &names, host_key, launch->rank, launch->host, sizeof launch->host);
    return fault ? server_error(err, "start") : CHEX_OK;
}

static void release(struct chex_launch *launch) {
    struct pmi_self *s = launch->self;
    socket_fd = -1;
    close(s->fd);
    pthread_mutex_destroy(&s->lock);
    free(s->node_of);
    free(s->ended);
    free(s);
    launch->self = NULL;
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    const int fd = chex_launch_env_int("PMI_FD", -1);
    int type;
    launch->rank = chex_launch_env_int("PMI_RANK", -1);
    launch->size = chex_launch_env_int("PMI_SIZE", 0);
    launch->local_size = launch->nodes = 1;
    chex_launch_fill_names(launch);
    if (launch->rank < 0 || launch->rank >= launch->size)
        return chex_error_set(err, CHEX_E_ENV,
                              "PMI_RANK=%s, PMI_SIZE=%s: expected a rank below the number of ranks",
                              getenv("PMI_RANK"), getenv("PMI_SIZE"));
    if (launch->size == 1)
        return CHEX_OK;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) != 0)
        return chex_error_set(
            err, CHEX_E_ENV,
            "PMI_FD=%s: no open socket, so rank %d of %d cannot reach the others: "
            "start it with srun or mpiexec itself",
            getenv("PMI_FD"), launch->rank, launch->size);
    struct pmi_self *s = calloc(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, NULL);
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    launch->self = s;
    socket_fd = s->fd = fd;
    s->rank = launch->rank;
    enum chex_status st = greet(s, err);
    if (st == CHEX_OK)
        st = find_nodes(launch, err);
    if (st == CHEX_OK)
        st = start_terminator(s, err);
    if (st != CHEX_OK)
        release(launch);
    return st;
}

static void finish(struct chex_launch *launch) {
    struct pmi_self *s = launch->self;
    struct chex_error err = {0};
    char answer[LINE_BYTES];
    if (!s)
        return;
    /* A last exchange: srun --wait counts from the end of the first rank. */
    unsigned char none = 0, *all = malloc((size_t)launch->size);
    if (all && !launch->broken &&
        chex_launch_exchange(launch, "finish", &none, 1, all, FINISH_MS, &err) != CHEX_OK)
        chex_warn("%s", err.text);
    free(all);
    stop_terminator(s);
    (void)call(s, answer, "finalize_ack", "finalize");
    if (!launch->broken)
        pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    release(launch);
}

static bool gone(void) {
    struct pollfd peer = {.fd = socket_fd};
    if (poll(&peer, 1, 0) == 1 && peer.revents & (POLLHUP | POLLERR))
        fail(gone_text);
    return fault == gone_text;
}

const struct chex_launch_method chex_launch_pmi2 = {.name = "pmi2",
                                                    .rank_variable = "PMI_RANK",
                                                    .present = present,
                                                    .why = why,
                                                    .init = init,
                                                    .gather = gather,
                                                    .gather_at_0 = gather_at_0,
                                                    .publish = publish,
                                                    .lookup = lookup,
                                                    .host = host,
                                                    .ended = ended,
                                                    .abort = abort_all,
                                                    .finish = finish,
                                                    .gone = gone};

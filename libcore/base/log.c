/* SPDX-License-Identifier: Apache-2.0
 *
 * The log sink. Each line is built in a buffer and written by one write(2).
 */
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

struct chex_log_sink {
    pthread_mutex_t lock;
    enum chex_log_level level;
    int rank;
    char prefix[128];
    char command[32];
};

static struct chex_log_sink own = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .level = CHEX_LOG_INFO, .prefix = "chex"};
static struct chex_log_sink *sink = &own;

struct chex_log_sink *chex_log_current(void) {
    return sink;
}
void chex_log_adopt(struct chex_log_sink *other) { sink = other; }

/* If a standard stream is closed, the next file that is opened gets its number, and then the
 * stream's output. So closed streams are opened as /dev/null, read-only: writing to them still
 * fails, and lost results are an error. */
static void fill_standard_streams(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

void chex_log_init(const char *command, enum chex_log_level level) {
    fill_standard_streams();
    snprintf(sink->command, sizeof sink->command, "%s", command);
    snprintf(sink->prefix, sizeof sink->prefix, "%s", command);
    sink->level = level;
    sink->rank = 0;
}

void chex_log_set_rank(int rank, int size, const char *host) {
    pthread_mutex_lock(&sink->lock);
    sink->rank = rank;
    if (size > 1)
        snprintf(sink->prefix, sizeof sink->prefix, "%s[r%d/%d %.64s]", sink->command, rank, size,
                 host ? host : "?");
    pthread_mutex_unlock(&sink->lock);
}

enum chex_log_level chex_log_level(void) { return sink->level; }
void chex_log_set_level(enum chex_log_level level) { sink->level = level; }

__attribute__((format(printf, 2, 0))) static void emit(enum chex_log_level level, const char *fmt,
                                                       va_list ap) {
    static const char *const names[] = {"error: ", "warn: ", "", "debug: ", "trace: "};
    char text[2048], line[2048];
    vsnprintf(text, sizeof text, fmt, ap);
    pthread_mutex_lock(&sink->lock);
    /* The terminal's line may show a progress bar. */
    const char *clear = isatty(STDERR_FILENO) ? "\r\033[K" : "";
    int n = snprintf(line, sizeof line, "%s%s%s%s", clear, sink->prefix,
                     level == CHEX_LOG_INFO ? ": " : " ", names[level]);
    /* Messages contain file names, ids and other external text. */
    chex_text_printable(text, line + n, sizeof line - (size_t)n - 1);
    size_t len = strlen(line);
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len);
    (void)ignored;
    pthread_mutex_unlock(&sink->lock);
}

void chex_log(enum chex_log_level level, const char *fmt, ...) {
    if (level > sink->level || (level == CHEX_LOG_INFO && sink->rank != 0))
        return;
    va_list ap;
    va_start(ap, fmt);
    emit(level, fmt, ap);
    va_end(ap);
}

void chex_log_all(const char *fmt, ...) {
    if (sink->level < CHEX_LOG_INFO)
        return;
    va_list ap;
    va_start(ap, fmt);
    emit(CHEX_LOG_INFO, fmt, ap);
    va_end(ap);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The log sink: lines on stderr of the form `chex-train[r3/8 node12] warn: ...`.
 *
 * The sink is the one piece of global state of the library. Levels by volume: error, warn, info
 * (a few lines a run), debug (per object), trace (per step). Info comes from rank 0 alone, errors
 * and warnings from every rank. Text is lower case, values stand after a blank, no newline.
 */
#ifndef CHEX_BASE_LOG_H
#define CHEX_BASE_LOG_H

enum chex_log_level {
    CHEX_LOG_ERROR,
    CHEX_LOG_WARN,
    CHEX_LOG_INFO,
    CHEX_LOG_DEBUG,
    CHEX_LOG_TRACE,
};

/* Names the command ("chex-train") and sets the level. Before the first thread, and before the
 * first file: takes the numbers of standard streams that are closed. */
void chex_log_init(const char *command, enum chex_log_level level);

/* Adds rank, size and host to the prefix once they are known; size 1 leaves the prefix bare. */
void chex_log_set_rank(int rank, int size, const char *host);

enum chex_log_level chex_log_level(void);
void chex_log_set_level(enum chex_log_level level);

/* A module has a copy of this file and writes by the sink of who opened it (base/module.h). */
struct chex_log_sink;
struct chex_log_sink *chex_log_current(void);
void chex_log_adopt(struct chex_log_sink *sink);

/* Writes one line with a single write(2), so lines of many ranks do not mix. Thread-safe. */
void chex_log(enum chex_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* As chex_log(CHEX_LOG_INFO, ...), but from every rank: for the one line a rank at start-up. */
void chex_log_all(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define chex_err(...) chex_log(CHEX_LOG_ERROR, __VA_ARGS__)
#define chex_warn(...) chex_log(CHEX_LOG_WARN, __VA_ARGS__)
#define chex_info(...) chex_log(CHEX_LOG_INFO, __VA_ARGS__)
#define chex_debug(...) chex_log(CHEX_LOG_DEBUG, __VA_ARGS__)

#endif

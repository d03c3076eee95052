/* SPDX-License-Identifier: Apache-2.0
 *
 * The log sink: lines on stderr of the form `chex-train[r3/8 node12] warn: ...`.
 *
 * The sink is the only global state of the library. Levels by volume: error, warn, info (a few
 * lines per run), debug (per object), trace (per step). Rank 0 alone writes info; every rank writes
 * errors and warnings. Text is lower case, without newline. Control characters and bytes that are
 * not UTF-8 are written as \xNN (chex_text_printable).
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

/* Sets the command's name ("chex-train") and the level. Call it before any thread starts and before
 * any file is opened: it also opens closed standard streams, so that no file gets their numbers. */
void chex_log_init(const char *command, enum chex_log_level level);

/* Adds rank, size and host to the prefix. size 1 adds nothing. */
void chex_log_set_rank(int rank, int size, const char *host);

enum chex_log_level chex_log_level(void);
void chex_log_set_level(enum chex_log_level level);

/* A loadable module contains a copy of this file. It writes through the sink of the program that
 * opened it (base/module.h). */
struct chex_log_sink;
struct chex_log_sink *chex_log_current(void);
void chex_log_adopt(struct chex_log_sink *sink);

/* Writes one line with a single write(2), so lines of many ranks do not mix. Thread-safe. */
void chex_log(enum chex_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* As chex_log(CHEX_LOG_INFO, ...), but from every rank: for the one start-up line of each rank. */
void chex_log_all(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define chex_err(...) chex_log(CHEX_LOG_ERROR, __VA_ARGS__)
#define chex_warn(...) chex_log(CHEX_LOG_WARN, __VA_ARGS__)
#define chex_info(...) chex_log(CHEX_LOG_INFO, __VA_ARGS__)
#define chex_debug(...) chex_log(CHEX_LOG_DEBUG, __VA_ARGS__)

#endif

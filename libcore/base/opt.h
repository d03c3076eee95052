/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table per command, from which parsing, --help, --print-config, the completions and
 * the man-page check are made.
 *
 * Precedence: command line, then CHEX_* in the environment (CHEX_BATCH_SIZE for --batch-size),
 * then --config FILE (lines of `name = value`; `#` starts a comment where it begins the line or
 * follows white space; any option but --help, --version, --config, --print-config), then the
 * default. The whole value must parse; a value that does not, and an empty one, is CHEX_E_USAGE
 * with option, value and what was expected. Unknown CHEX_* variables warn.
 */
#ifndef CHEX_BASE_OPT_H
#define CHEX_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum chex_opt_type {
    CHEX_OPT_GROUP,    /* a heading in --help; only `help` is used */
    CHEX_OPT_FLAG,     /* bool; --no-NAME clears it */
    CHEX_OPT_INT,      /* int64_t, within [min, max] where max > min */
    CHEX_OPT_FLOAT,    /* double, within [min, max] where max > min */
    CHEX_OPT_BYTES,    /* uint64_t bytes */
    CHEX_OPT_DURATION, /* uint64_t milliseconds, within [min, max] where max > min */
    CHEX_OPT_STRING,   /* const char *, owned by struct chex_opt_set */
    CHEX_OPT_CHOICE,   /* int, an index into `choices` */
};

struct chex_opt {
    const char *name; /* long name without dashes */
    char letter;      /* or 0 */
    enum chex_opt_type type;
    size_t at;                  /* offset in the command's settings struct */
    const char *def;            /* default as it would be typed; NULL leaves the field zero */
    const char *metavar;        /* "N", "DIR"; NULL for flags */
    const char *help;           /* one sentence, no full stop */
    const char *const *choices; /* NULL-terminated, for CHEX_OPT_CHOICE */
    double min, max;            /* where max > min */
    bool required;
    bool typed_only; /* not in a --config file: it acts before one is read */
    bool of_rank;    /* a node's or a rank's own: ranks of one run may have different values */
};

enum chex_opt_origin { CHEX_FROM_DEFAULT, CHEX_FROM_FILE, CHEX_FROM_ENV, CHEX_FROM_COMMAND_LINE };
extern const char *const chex_opt_origin_names[]; /* "default", "file", ..., NULL */

/* Every settings struct starts with this: the options that all commands share. */
struct chex_opt_common {
    bool help, version, quiet, print_config;
    bool verbose;
    int log_level; /* enum chex_log_level */
    bool json;
    const char *config;
};

/* Put CHEX_OPT_COMMON first in each table; the settings struct must have a member
 * `struct chex_opt_common common` first. */
extern const char *const chex_log_level_names[];
#define CHEX_OPT_COMMON                                                                            \
    {.type = CHEX_OPT_GROUP, .help = "Shared options"},                                            \
        {"help",                                                                                   \
         'h',                                                                                      \
         CHEX_OPT_FLAG,                                                                            \
         offsetof(struct chex_opt_common, help),                                                   \
         .help = "show this help and exit",                                                        \
         .typed_only = true},                                                                      \
        {"version",                                                                                \
         'V',                                                                                      \
         CHEX_OPT_FLAG,                                                                            \
         offsetof(struct chex_opt_common, version),                                                \
         .help = "show the version and what it was built with, and exit",                          \
         .typed_only = true},                                                                      \
        {"quiet", 'q', CHEX_OPT_FLAG, offsetof(struct chex_opt_common, quiet),                     \
         .help = "only warnings and errors"},                                                      \
        {"verbose", 'v', CHEX_OPT_FLAG, offsetof(struct chex_opt_common, verbose),                 \
         .help = "debug messages too"},                                                            \
        {"log-level",                                                                              \
         0,                                                                                        \
         CHEX_OPT_CHOICE,                                                                          \
         offsetof(struct chex_opt_common, log_level),                                              \
         "info",                                                                                   \
         "LEVEL",                                                                                  \
         "how much to say on stderr",                                                              \
         chex_log_level_names},                                                                    \
        {"json", 0, CHEX_OPT_FLAG, offsetof(struct chex_opt_common, json),                         \
         .help = "print the result as one JSON object on stdout"},                                 \
        {"config",                                                                                 \
         0,                                                                                        \
         CHEX_OPT_STRING,                                                                          \
         offsetof(struct chex_opt_common, config),                                                 \
         NULL,                                                                                     \
         "FILE",                                                                                   \
         "read options from FILE, lines of name = value",                                          \
         .typed_only = true},                                                                      \
    {                                                                                              \
        "print-config", 0, CHEX_OPT_FLAG, offsetof(struct chex_opt_common, print_config),          \
            .help = "print every effective option with its origin, and exit", .typed_only = true   \
    }

/* What a command is called and how it is used, for --help. */
struct chex_opt_program {
    const char *name;    /* "chex-shard" */
    const char *summary; /* one line */
    const char *usage;   /* lines after "usage: ", newline-separated */
    const struct chex_opt *opts;
    size_t count;
    const char *epilog; /* or NULL: examples, subcommands */
};

struct chex_opt_set; /* where each value came from, and the strings it owns */

/* Fills `settings` (zeroed here, `settings_size` bytes) from defaults, file, environment and argv,
 * in that order of rising precedence. Words that are no options are collected in order and served
 * by chex_opt_word(). With --help, --version or --print-config nothing is required; the caller
 * looks at settings->common. On failure *set_out is NULL and settings holds nothing to free. */
enum chex_status chex_opt_parse(const struct chex_opt_program *program, int argc, char **argv,
                                void *settings, size_t settings_size, struct chex_opt_set **set_out,
                                struct chex_error *err);

void chex_opt_destroy(struct chex_opt_set *set); /* NULL allowed; strings in settings end here */

size_t chex_opt_word_count(const struct chex_opt_set *set);
const char *chex_opt_word(const struct chex_opt_set *set, size_t i); /* NULL past the end */

/* Where the option's value came from; `name` must be in the table. */
enum chex_opt_origin chex_opt_origin(const struct chex_opt_set *set, const char *name);

void chex_opt_print_help(const struct chex_opt_program *program, FILE *to);

/* Name and version, the libraries that it was built with (one line of text), the compiler: what
 * --version prints in every command. */
void chex_opt_print_version(const char *command, const char *libraries, FILE *to);

/* Lines `name = value   # origin`, which --config reads back. */
void chex_opt_print_config(const struct chex_opt_set *set, const void *settings, FILE *to);

/* Value of option i as text, as --print-config writes it; for config.json. buf is returned. */
const char *chex_opt_value_text(const struct chex_opt *opt, const void *settings, char *buf,
                                size_t size);

#endif

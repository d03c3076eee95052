/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table per command. Parsing, --help, --print-config, the shell completions and the
 * check of the man pages use it.
 *
 * Precedence, from high to low:
 * - command line
 * - CHEX_* in the environment (CHEX_BATCH_SIZE for --batch-size)
 * - --config FILE
 * - the default
 *
 * A config file has lines `name = value`. `#` starts a comment at the start of a line or after
 * white space. Every option is allowed there except --help, --version, --config and --print-config.
 *
 * The whole value must parse. An invalid or empty value is CHEX_E_USAGE; the text gives the option,
 * the value and what was expected. Unknown CHEX_* variables cause a warning.
 */
#ifndef CHEX_BASE_OPT_H
#define CHEX_BASE_OPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum chex_opt_type {
    CHEX_OPT_GROUP,    /* a heading in --help; only `help` is used */
    CHEX_OPT_FLAG,     /* bool; --no-NAME clears it */
    CHEX_OPT_INT,      /* int64_t; in [min, max] if max > min */
    CHEX_OPT_INT32,    /* int32_t; in [min, max], which an int32_t holds */
    CHEX_OPT_FLOAT,    /* double; in [min, max] if max > min */
    CHEX_OPT_BYTES,    /* uint64_t bytes */
    CHEX_OPT_DURATION, /* uint64_t milliseconds; in [min, max] if max > min */
    CHEX_OPT_STRING,   /* const char *, owned by struct chex_opt_set */
    CHEX_OPT_CHOICE,   /* int, an index into `choices` */
};

struct chex_opt {
    const char *name; /* long name without dashes */
    char letter;      /* or 0 */
    enum chex_opt_type type;
    size_t at;                  /* offset in the command's settings struct */
    const char *def;            /* default as typed on the command line; NULL: the field is zero */
    const char *metavar;        /* "N", "DIR"; NULL for flags */
    const char *help;           /* one sentence, no full stop */
    const char *const *choices; /* NULL-terminated, for CHEX_OPT_CHOICE; of text: shown in help */
    const size_t *listed;       /* help and messages name only the first *listed; NULL: all */
    double min, max;            /* used if max > min */
    bool required;
    bool typed_only; /* not allowed in a --config file, because it acts before the file is read */
    bool basic;      /* the short --help lists it (chex_opt_print_help) */
    bool of_rank;    /* belongs to a node or rank: ranks of one run may have different values */
    bool repeats;    /* text: each further value on the command line is one more word
                        (chex_opt_word) */
    bool of_run;     /* belongs to the run: a resumed run keeps the value unless it is given again
                        (chex_opt_take) */
    const char *elsewhere; /* its name in other programs, only for suggestions; or NULL */
};

/* In order of rising precedence. CHEX_FROM_RUN: chex_opt_take. */
enum chex_opt_origin {
    CHEX_FROM_DEFAULT,
    CHEX_FROM_RUN,
    CHEX_FROM_FILE,
    CHEX_FROM_ENV,
    CHEX_FROM_COMMAND_LINE
};
extern const char *const chex_opt_origin_names[]; /* "default", "file", ..., NULL */

/* The options that all commands share. It is the first member of every settings struct. */
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
#define CHEX_OPT_SHARED(long_name, member, kind, ...)                                              \
    {                                                                                              \
        .name = long_name, .type = CHEX_OPT_##kind,                                                \
        .at = offsetof(struct chex_opt_common, member), __VA_ARGS__                                \
    }
#define CHEX_OPT_COMMON                                                                            \
    {.type = CHEX_OPT_GROUP, .help = "Shared options"},                                            \
        CHEX_OPT_SHARED("help", help, FLAG, .letter = 'h', .typed_only = true, .basic = true,      \
                        .help = "show the help and exit; --help all: with every option"),          \
        CHEX_OPT_SHARED("version", version, FLAG, .letter = 'V', .typed_only = true,               \
                        .basic = true,                                                             \
                        .help = "show the version and what it was built with, and exit"),          \
        CHEX_OPT_SHARED("quiet", quiet, FLAG, .letter = 'q', .help = "only warnings and errors"),  \
        CHEX_OPT_SHARED("verbose", verbose, FLAG, .letter = 'v', .help = "debug messages too"),    \
        CHEX_OPT_SHARED("log-level", log_level, CHOICE, .def = "info", .metavar = "LEVEL",         \
                        .choices = chex_log_level_names, .help = "how much to say on stderr"),     \
        CHEX_OPT_SHARED("json", json, FLAG, .basic = true,                                         \
                        .help = "print the result as one JSON object on stdout"),                  \
        CHEX_OPT_SHARED("config", config, STRING, .metavar = "FILE", .typed_only = true,           \
                        .basic = true, .help = "read options from FILE, lines of name = value"),   \
        CHEX_OPT_SHARED("print-config", print_config, FLAG, .typed_only = true, .basic = true,     \
                        .help = "print every effective option with its origin, and exit")

struct chex_opt_set; /* the origin of each value, and the strings that the set owns */

/* A command or a subcommand: its --help, its options and its work. */
struct chex_opt_program {
    const char *name;    /* "chex-shard", "chex-shard info" */
    const char *summary; /* one line */
    const char *usage;   /* lines after "usage: ", newline-separated */
    const struct chex_opt *opts;
    size_t count;
    const char *epilog; /* or NULL: examples */
    const char *words;  /* the arguments besides options: "two sources"; NULL: none */
    size_t min_words, max_words;
    size_t settings_size; /* of the struct that begins with struct chex_opt_common */
    enum chex_status (*run)(struct chex_opt_set *set, void *settings, struct chex_error *err);
    bool alone;         /* runs in one process: of several ranks only rank 0 does the work */
    const char *word;   /* the name as a subcommand; or NULL */
    const char *listed; /* its line in the list of subcommands; NULL: the summary */
    const struct chex_opt_program *const *subcommands; /* ends in NULL; or NULL */
};

/* Returns `command`, or its subcommand if the first argument is not an option. NULL: there is no
 * such subcommand (CHEX_E_USAGE); the text lists all and names the closest. */
const struct chex_opt_program *chex_opt_choose(const struct chex_opt_program *command, int argc,
                                               char **argv, struct chex_error *err);

/* Fills `settings` (`settings_size` bytes, zeroed here) from all sources.
 * - The word of a subcommand at the start of argv is skipped.
 * - Words that are not options are collected in order; see chex_opt_word().
 * - With --help, --version or --print-config no option is required; the caller checks
 *   settings->common.
 * - On failure *set_out is NULL and settings holds nothing to free. */
enum chex_status chex_opt_parse(const struct chex_opt_program *program, int argc, char **argv,
                                void *settings, size_t settings_size, struct chex_opt_set **set_out,
                                struct chex_error *err);

void chex_opt_destroy(struct chex_opt_set *set); /* NULL allowed; frees the strings in settings */

size_t chex_opt_word_count(const struct chex_opt_set *set);
const char *chex_opt_word(const struct chex_opt_set *set, size_t i); /* NULL past the end */

/* CHEX_E_USAGE unless there are as many words as the program takes. */
enum chex_status chex_opt_check_words(const struct chex_opt_set *set, struct chex_error *err);

/* The origin of the option's value. `name` must be in the table. */
enum chex_opt_origin chex_opt_origin(const struct chex_opt_set *set, const char *name);

/* Sets the option to the value of an earlier start of the same run, unless file, environment or
 * command line gave a value. The value has the form of chex_opt_value_text. CHEX_E_DATA, with
 * `where` in front: the option does not accept the value. */
enum chex_status chex_opt_take(struct chex_opt_set *set, const struct chex_opt *opt, void *settings,
                               const char *value, const char *where, struct chex_error *err);

/* Prints --help; option lines have at most 100 columns. Of more than 30 options only the `basic`
 * ones are listed, unless `all` is set. */
void chex_opt_print_help(const struct chex_opt_program *program, bool all, FILE *to);

/* Prints lines `name = value   # origin`. A --config file can contain them. */
void chex_opt_print_config(const struct chex_opt_set *set, const void *settings, FILE *to);

/* The command line that gives the same settings anywhere, quoted for a POSIX shell, for the caller
 * to free: the program, its words, and every option whose value is not a default. NULL: out of
 * memory. */
char *chex_opt_command(const struct chex_opt_set *set, const void *settings);

/* The values that all ranks of a run must share: those of the options without of_rank, except the
 * shared ones such as --json. Name to text (chex_opt_value_text). The caller releases it; NULL: out
 * of memory. */
json_t *chex_opt_same(const struct chex_opt_set *set, const void *settings);

/* --help [all], --version and --print-config: prints to stdout. False if none of them was given.
 * libraries: writes the line of --version that lists libraries. */
bool chex_opt_inform(const struct chex_opt_set *set, const void *settings,
                     const char *(*libraries)(char *buf, size_t size));

/* The option's value as text, in the form of --print-config; also for config.json. Returns buf. */
const char *chex_opt_value_text(const struct chex_opt *opt, const void *settings, char *buf,
                                size_t size);

#endif

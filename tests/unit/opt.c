/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opt.h"

#include <unistd.h>

#include "base/fs.h"
#include "tap.h"

static const char *const colours[] = {"red", "green", NULL};
struct settings {
    struct chex_opt_common common;
    const char *name;
    int colour;
    int64_t count;
    double rate;
    uint64_t bytes, wait_ms;
    bool fast;
};
#define AT(m) offsetof(struct settings, m)
static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Own"},
    {"name", 'n', CHEX_OPT_STRING, AT(name), NULL, "TEXT", "a name"},
    {"colour", 0, CHEX_OPT_CHOICE, AT(colour), "red", "NAME", "a colour", colours},
    {"count", 'c', CHEX_OPT_INT, AT(count), "7", "N", "a count", .min = 1, .max = 9},
    {"rate", 0, CHEX_OPT_FLOAT, AT(rate), "0.5", "X", "a rate", .elsewhere = "frequency"},
    {"bytes", 0, CHEX_OPT_BYTES, AT(bytes), "4K", "SIZE", "a size"},
    {"wait", 0, CHEX_OPT_DURATION, AT(wait_ms), "2s", "TIME", "a time", .min = 1000, .max = 3600e3},
    {"fast", 'f', CHEX_OPT_FLAG, AT(fast), .help = "a flag"},
};
static const struct chex_opt_program program = {
    "chex-test", "test", "chex-test [options]", options, sizeof options / sizeof options[0], NULL};

static enum chex_status parse(struct settings *s, struct chex_opt_set **set, struct chex_error *err,
                              const char **argv) {
    int argc = 0;
    while (argv[argc])
        argc++;
    return chex_opt_parse(&program, argc, (char **)argv, s, sizeof *s, set, err);
}
#define ARGS(...)                                                                                  \
    (const char *[]) { "chex-test", __VA_ARGS__, NULL }

static void precedence(const char *config) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    setenv("CHEX_COUNT", "3", 1);
    setenv("CHEX_RATE", "0.25", 1);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", config, "-c", "9", "word")), CHEX_OK, err,
              NULL);
    OK(s.count == 9 && chex_opt_origin(set, "count") == CHEX_FROM_COMMAND_LINE,
       "the command line wins");
    OK(s.rate == 0.25 && chex_opt_origin(set, "rate") == CHEX_FROM_ENV,
       "then the environment, over the file");
    OK(s.colour == 1 && s.bytes == 2048 && chex_opt_origin(set, "bytes") == CHEX_FROM_FILE,
       "then the file");
    OK(s.wait_ms == 2000 && chex_opt_origin(set, "wait") == CHEX_FROM_DEFAULT, "then the default");
    OK(chex_opt_word_count(set) == 1 && strcmp(chex_opt_word(set, 0), "word") == 0,
       "words are collected");
    chex_opt_destroy(set);
    unsetenv("CHEX_COUNT");
    unsetenv("CHEX_RATE");
}

static void faults(void) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    OK_STATUS(parse(&s, &set, &err, ARGS("--count", "10")), CHEX_E_USAGE, err, "1 to 9");
    OK_STATUS(parse(&s, &set, &err, ARGS("--count=2x")), CHEX_E_USAGE, err, "'2x'");
    OK_STATUS(parse(&s, &set, &err, ARGS("--colour", "blue")), CHEX_E_USAGE, err, "red, green");
    OK_STATUS(parse(&s, &set, &err, ARGS("--wait", "5")), CHEX_E_USAGE, err, "unit");
    OK_STATUS(parse(&s, &set, &err, ARGS("--wait", "10ms")), CHEX_E_USAGE, err, "from 1s to 3600s");
    OK_STATUS(parse(&s, &set, &err, ARGS("--colours", "red")), CHEX_E_USAGE, err, "--colours");
    OK_STATUS(parse(&s, &set, &err, ARGS("--name")), CHEX_E_USAGE, err, "needs a value");
    OK_STATUS(parse(&s, &set, &err, ARGS("--no-fast=1")), CHEX_E_USAGE, err, "no value");
    OK_STATUS(parse(&s, &set, &err, ARGS("-x")), CHEX_E_USAGE, err, "-x");
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", "/nonexistent/file")), CHEX_E_USAGE, err,
              "/nonexistent/file");
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", "/tmp")), CHEX_E_USAGE, err,
              "config file: /tmp: not a regular file (a folder; expected a file)");
}

/* No option means anything by an empty value, wherever it comes from. */
static void empty_values(void) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    OK_STATUS(parse(&s, &set, &err, ARGS("--name=")), CHEX_E_USAGE, err,
              "--name: the value is empty: expected TEXT");
    OK_STATUS(parse(&s, &set, &err, ARGS("--name", "")), CHEX_E_USAGE, err, "--name: the value is");
    OK_STATUS(parse(&s, &set, &err, ARGS("-n", "")), CHEX_E_USAGE, err, "-n: the value is empty");
    OK_STATUS(parse(&s, &set, &err, ARGS("--count=")), CHEX_E_USAGE, err, "an integer from 1 to 9");
    OK_STATUS(parse(&s, &set, &err, ARGS("--colour=")), CHEX_E_USAGE, err, "one of red, green");
    OK_STATUS(parse(&s, &set, &err, ARGS("--fast=")), CHEX_E_USAGE, err, "yes or no");
    OK_STATUS(parse(&s, &set, &err, ARGS("")), CHEX_E_USAGE, err, "an argument is empty");
    setenv("CHEX_NAME", "", 1);
    OK_STATUS(parse(&s, &set, &err, ARGS("-f")), CHEX_E_USAGE, err, "CHEX_NAME: the value is");
    OK_STATUS(parse(&s, &set, &err, ARGS("--name", "x")), CHEX_OK, err, NULL);
    OK(strcmp(s.name, "x") == 0, "what is overridden may be empty");
    chex_opt_destroy(set);
    unsetenv("CHEX_NAME");
}

static void loudness(void) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("-q")) == CHEX_OK, "%s", err.text);
    OK(s.common.log_level == 1 && chex_opt_origin(set, "log-level") == CHEX_FROM_COMMAND_LINE,
       "-q is where the level comes from");
    chex_opt_destroy(set);
    setenv("CHEX_QUIET", "yes", 1);
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("--log-level", "trace")) == CHEX_OK, "%s", err.text);
    OK(s.common.log_level == 4, "CHEX_QUIET yields to a level that was typed");
    chex_opt_destroy(set);
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("-c", "2")) == CHEX_OK, "%s", err.text);
    OK(s.common.log_level == 1 && chex_opt_origin(set, "log-level") == CHEX_FROM_ENV,
       "and not to the default");
    chex_opt_destroy(set);
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("-v")) == CHEX_OK, "%s", err.text);
    OK(s.common.log_level == 3 && chex_opt_origin(set, "log-level") == CHEX_FROM_COMMAND_LINE,
       "but to -v");
    chex_opt_destroy(set);
    unsetenv("CHEX_QUIET");
}

static void misspelt(void) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    OK_STATUS(parse(&s, &set, &err, ARGS("--cuont", "3")), CHEX_E_USAGE, err,
              "unknown option '--cuont'; did you mean --count?; try '");
    OK_STATUS(parse(&s, &set, &err, ARGS("--no-fsat")), CHEX_E_USAGE, err,
              "unknown option '--no-fsat'; did you mean --no-fast?; try '");
    OK_STATUS(parse(&s, &set, &err, ARGS("--log=info")), CHEX_E_USAGE, err,
              "unknown option '--log'; did you mean --log-level?; try '");
    OK_STATUS(parse(&s, &set, &err, ARGS("--frequancy", "2")), CHEX_E_USAGE, err,
              "unknown option '--frequancy'; did you mean --rate?; try '");
    OK_STATUS(parse(&s, &set, &err, ARGS("--gradient")), CHEX_E_USAGE, err,
              "unknown option '--gradient'; try '");
    OK_STATUS(parse(&s, &set, &err, ARGS("--log-level", "eror")), CHEX_E_USAGE, err,
              "--log-level: 'eror' is not valid: expected one of error, warn, info, debug, trace; "
              "did you mean error?");
    OK_STATUS(parse(&s, &set, &err, ARGS("--log-level", "silent")), CHEX_E_USAGE, err, "trace");
    OK(!strstr(err.text, "did you mean"), "a value that is like no other has no suggestion");
}

/* Durations read as defaults are written, and help speaks of units that its options have. */
static void texts(void) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err;
    char text[4096] = "", value[64];
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("--wait", "1500ms")) == CHEX_OK, "%s", err.text);
    const struct chex_opt *wait = &options[sizeof options / sizeof options[0] - 2];
    OK(strcmp(chex_opt_value_text(wait, &s, value, sizeof value), "1500ms") == 0, "%s", value);
    s.wait_ms = 600000;
    OK(strcmp(chex_opt_value_text(wait, &s, value, sizeof value), "600s") == 0, "%s", value);
    chex_opt_destroy(set);
    FILE *f = fmemopen(text, sizeof text, "w");
    chex_opt_print_help(&program, false, f);
    fclose(f);
    OK(strstr(text, "Sizes take K M G") && strstr(text, "Durations need a unit"),
       "help explains sizes and durations");
    struct chex_opt_program without = program;
    without.count -= 3; /* from the size on */
    f = fmemopen(text, sizeof text, "w");
    chex_opt_print_help(&without, false, f);
    fclose(f);
    OK(!strstr(text, "Sizes") && !strstr(text, "Durations"), "where there are such options");
}

static char *help_of(const struct chex_opt_program *p, bool all) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    chex_opt_print_help(p, all, f);
    fclose(f);
    return text;
}

/* Of more than 30 options only the basic ones are listed. */
static void short_help(void) {
    enum { OWN = sizeof options / sizeof options[0], ALL = OWN + 20 };
    struct chex_opt many[ALL];
    memcpy(many, options, sizeof options);
    for (int i = OWN; i < ALL; i++)
        many[i] = (struct chex_opt){
            .name = "special",
            .type = CHEX_OPT_CHOICE,
            .choices = colours,
            .help = "a text that goes on after the end of a line of one hundred columns"};
    many[OWN - 1].basic = true;
    struct chex_opt_program p = program;
    p.opts = many;
    p.count = ALL;
    char *brief = help_of(&p, false), *whole = help_of(&p, true), *few = help_of(&program, false);
    OK(strstr(brief, "--fast") && strstr(brief, "--help") && !strstr(brief, "--special") &&
           strstr(brief, "29 more options for special cases: chex-test --help all\n"),
       "the short help lists basic options and names the long one");
    OK(strstr(whole, "--special") && !strstr(whole, "more options"),
       "--help all lists every option");
    OK(strstr(few, "--count") && !strstr(few, "more options"), "a short table is listed whole");
    OK(strstr(whole,
              "      --special                    a text that goes on after the end of a line of "
              "one hundred\n                                   columns (red, green)\n"),
       "a line that is too long goes on below its text");
    free(brief);
    free(whole);
    free(few);
}

static void round_trip(void) {
    struct settings s, again;
    struct chex_opt_set *set;
    struct chex_error err;
    char path[] = "/tmp/chex-opt-XXXXXX";
    int fd = mkstemp(path);
    BAIL_UNLESS(fd >= 0, "mkstemp");
    BAIL_UNLESS(parse(&s, &set, &err, ARGS("-fc4", "--name", "/a b/#1#", "--wait=90s", "--json")) ==
                    CHEX_OK,
                "%s", err.text);
    FILE *f = fdopen(fd, "w");
    chex_opt_print_config(set, &s, f);
    fclose(f);
    chex_opt_destroy(set);
    OK_STATUS(parse(&again, &set, &err, ARGS("--config", path)), CHEX_OK, err, NULL);
    OK(again.count == 4 && again.fast && again.wait_ms == 90000 && again.common.json,
       "--config reads what --print-config wrote");
    OK(strcmp(again.name, "/a b/#1#") == 0, "with the signs of comments in a name: %s", again.name);
    chex_opt_destroy(set);
    unlink(path);
}

/* How loud, and whether JSON, may stand in a file; what takes the command's place may not. */
static void shared_in_file(const char *path) {
    struct settings s;
    struct chex_opt_set *set;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_write(path, "json = yes\nquiet = yes\n", 23, &err) == CHEX_OK, "%s",
                err.text);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_OK, err, NULL);
    OK(s.common.json && s.common.log_level == 1 &&
           chex_opt_origin(set, "log-level") == CHEX_FROM_FILE,
       "json and quiet in a file");
    chex_opt_destroy(set);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path, "--no-json", "-v")), CHEX_OK, err, NULL);
    OK(!s.common.json && s.common.log_level == 3, "yield to what was typed");
    chex_opt_destroy(set);
    BAIL_UNLESS(chex_fs_write(path, "\nhelp = yes\n", 12, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_E_USAGE, err,
              "line 2: 'help' is allowed on the command line only");
}

/* ---- subcommands ---- */

static const struct chex_opt_program *const subs[3];
static const struct chex_opt_program whole = {.name = "chex-test",
                                              .summary = "whole",
                                              .usage = "chex-test",
                                              .opts = options,
                                              .count = sizeof options / sizeof options[0],
                                              .epilog = "Examples\n",
                                              .subcommands = subs};
static const struct chex_opt_program inspect = {.name = "chex-test inspect",
                                                .summary = "what is in it",
                                                .usage = "chex-test inspect FILE",
                                                .opts = options,
                                                .count = sizeof options / sizeof options[0],
                                                .words = "one file",
                                                .min_words = 1,
                                                .max_words = 1,
                                                .word = "inspect"};
static const struct chex_opt_program verify_all = {.name = "chex-test verify-all",
                                                   .summary = "long",
                                                   .opts = options,
                                                   .count = sizeof options / sizeof options[0],
                                                   .word = "verify-all",
                                                   .listed = "short"};
static const struct chex_opt_program *const subs[3] = {&inspect, &verify_all, NULL};

/* The program that the arguments choose; then they are parsed and the words are checked. */
static enum chex_status choose(const struct chex_opt_program **out, struct chex_error *err,
                               const char **argv) {
    struct settings s;
    struct chex_opt_set *set = NULL;
    int argc = 0;
    while (argv[argc])
        argc++;
    *out = chex_opt_choose(&whole, argc, (char **)argv, err);
    if (!*out)
        return err->status;
    enum chex_status st = chex_opt_parse(*out, argc, (char **)argv, &s, sizeof s, &set, err);
    if (st == CHEX_OK)
        st = chex_opt_check_words(set, err);
    chex_opt_destroy(set);
    return st;
}

static void subcommands(void) {
    const struct chex_opt_program *p;
    struct chex_error err;
    OK_STATUS(choose(&p, &err, ARGS("--fast")), CHEX_OK, err, NULL);
    OK(p == &whole, "without a word the command itself runs");
    OK_STATUS(choose(&p, &err, ARGS("inspect", "file", "--fast")), CHEX_OK, err, NULL);
    OK(p == &inspect, "the first word chooses the subcommand, and is not one of its words");
    OK_STATUS(choose(&p, &err, ARGS("inspct")), CHEX_E_USAGE, err,
              "unknown subcommand 'inspct': expected inspect or verify-all, or none; did you mean "
              "inspect?");
    OK(!p, "an unknown word chooses nothing");
    OK_STATUS(choose(&p, &err, ARGS("inspect")), CHEX_E_USAGE, err,
              "chex-test inspect takes one file; try 'chex-test inspect --help'");
    OK_STATUS(choose(&p, &err, ARGS("inspect", "a", "b")), CHEX_E_USAGE, err, "takes one file");
    OK_STATUS(choose(&p, &err, ARGS("verify-all", "a")), CHEX_E_USAGE, err,
              "unexpected word 'a': chex-test verify-all takes options only; try 'chex-test "
              "verify-all --help'");
    OK_STATUS(choose(&p, &err, ARGS("--fast", "inspect")), CHEX_E_USAGE, err,
              "'inspect' comes first: chex-test inspect, then its options");
    char *help = help_of(&whole, false);
    OK(strstr(help, "\n\nSubcommands\n  inspect     what is in it\n  verify-all  short\n"
                    "A subcommand comes first and has options of its own: chex-test inspect "
                    "--help.\n\nExamples\n"),
       "--help lists the subcommands");
    free(help);
}

int main(void) {
    char path[] = "/tmp/chex-opt-XXXXXX";
    int fd = mkstemp(path);
    BAIL_UNLESS(fd >= 0, "mkstemp");
    static const char text[] =
        "# a comment\ncount = 5\nrate=0.75\n colour = green \nbytes = 2K # two\n";
    BAIL_UNLESS(write(fd, text, sizeof text - 1) == sizeof text - 1, "write");
    close(fd);
    precedence(path);
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_write(path, "nonsense = 1\n", 13, &err) == CHEX_OK, "%s", err.text);
    struct settings s;
    struct chex_opt_set *set;
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_E_USAGE, err, "line 1");
    BAIL_UNLESS(chex_fs_write(path, "colur = red\n", 12, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_E_USAGE, err,
              "line 1: unknown option 'colur' for chex-test; did you mean colour?");
    BAIL_UNLESS(chex_fs_write(path, "name =  # none\n", 15, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_E_USAGE, err,
              "line 1: name: the value is empty");
    BAIL_UNLESS(chex_fs_write(path, "count = 1\n\0rate = 2\n", 20, &err) == CHEX_OK, "%s",
                err.text);
    OK_STATUS(parse(&s, &set, &err, ARGS("--config", path)), CHEX_E_USAGE, err,
              "line 2: a NUL byte (expected text)");
    shared_in_file(path);
    unlink(path);
    faults();
    empty_values();
    loudness();
    misspelt();
    texts();
    short_help();
    round_trip();
    subcommands();
    return tap_done();
}

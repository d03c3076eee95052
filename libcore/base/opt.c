/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the options of a command from its table and prints --help and --print-config.
 *
 * The command line is read right after the defaults, because it names the --config file;
 * environment and file follow. Each option keeps the origin of its value. A source never replaces a
 * value from a source of higher precedence (command line, environment, file, default).
 */
#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"

extern char **environ;

const char *const chex_log_level_names[] = {"error", "warn", "info", "debug", "trace", NULL};

struct chex_opt_set {
    const struct chex_opt_program *program;
    enum chex_opt_origin *origin; /* (count) */
    char **owned;                 /* strings stored in settings */
    size_t owned_count;
    const char **words;
    size_t word_count;
};

const char *const chex_opt_origin_names[] = {"default",     "run",          "file",
                                             "environment", "command line", NULL};

static void *field(const struct chex_opt *o, void *settings) { return (char *)settings + o->at; }
static const void *cfield(const struct chex_opt *o, const void *settings) {
    return (const char *)settings + o->at;
}

static const struct chex_opt *find(const struct chex_opt_program *p, const char *name, size_t n) {
    for (size_t i = 0; i < p->count; i++)
        if (p->opts[i].type != CHEX_OPT_GROUP && strlen(p->opts[i].name) == n &&
            memcmp(p->opts[i].name, name, n) == 0)
            return &p->opts[i];
    return NULL;
}

/* `name` is in the table. */
static enum chex_opt_origin *origin_of(const struct chex_opt_set *set, const char *name) {
    return &set->origin[find(set->program, name, strlen(name)) - set->program->opts];
}

/* "; did you mean --NAME?"; "" if no word is close. */
static const char *meant_word(const struct chex_text_nearest *nearest, const char *dashes,
                              char *buf, size_t size) {
    buf[0] = '\0';
    if (nearest->best)
        snprintf(buf, size, "; did you mean %s%s?", dashes, nearest->best);
    return buf;
}

/* The same for an unknown option name. */
static const char *meant_option(const struct chex_opt_program *p, const char *name, size_t n,
                                const char *dashes, char *buf, size_t size) {
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
    struct chex_text_nearest nearest = {.word = word};
    for (size_t i = 0; i < p->count; i++) {
        if (p->opts[i].type == CHEX_OPT_GROUP)
            continue;
        chex_text_offer(&nearest, p->opts[i].name);
        if (p->opts[i].elsewhere && chex_text_offer(&nearest, p->opts[i].elsewhere))
            nearest.best = p->opts[i].name;
    }
    return meant_word(&nearest, dashes, buf, size);
}

/* The name of choice i; NULL after the last one that help lists. */
static const char *listed_choice(const struct chex_opt *o, size_t i) {
    return o->listed && i >= *o->listed ? NULL : o->choices[i];
}

/* The same for a value that is not one of the choices. */
static const char *meant_choice(const struct chex_opt *o, const char *value, char *buf,
                                size_t size) {
    struct chex_text_nearest nearest = {.word = value};
    for (size_t i = 0; o->type == CHEX_OPT_CHOICE && listed_choice(o, i); i++)
        chex_text_offer(&nearest, o->choices[i]);
    return meant_word(&nearest, "", buf, size);
}

static const struct chex_opt *find_letter(const struct chex_opt_program *p, char letter) {
    for (size_t i = 0; i < p->count; i++)
        if (p->opts[i].letter && p->opts[i].letter == letter)
            return &p->opts[i];
    return NULL;
}

/* In seconds if that is exact, as defaults are written. */
static void duration_text(uint64_t ms, char *buf, size_t size) {
    bool whole = ms % 1000 == 0;
    snprintf(buf, size, "%llu%s", (unsigned long long)(whole ? ms / 1000 : ms), whole ? "s" : "ms");
}

static void limit_text(const struct chex_opt *o, double limit, char *buf, size_t size) {
    if (o->type == CHEX_OPT_DURATION)
        duration_text((uint64_t)limit, buf, size);
    else
        snprintf(buf, size, "%.15g", limit);
}

/* "one of a, b, c" / "an integer from 1 to 9" for the error text. */
static void expectation(const struct chex_opt *o, char *buf, size_t size) {
    const char *what[] = {[CHEX_OPT_FLAG] = "yes or no",
                          [CHEX_OPT_INT] = "an integer",
                          [CHEX_OPT_INT32] = "an integer",
                          [CHEX_OPT_FLOAT] = "a number",
                          [CHEX_OPT_BYTES] = "a size such as 4096, 64K or 2G",
                          [CHEX_OPT_DURATION] =
                              "a duration with its unit, such as 500ms, 60s or 2h",
                          [CHEX_OPT_STRING] = o->metavar ? o->metavar : "text",
                          [CHEX_OPT_CHOICE] = "one of"};
    int n = snprintf(buf, size, "%s", what[o->type]);
    if (o->type == CHEX_OPT_CHOICE)
        for (size_t i = 0; listed_choice(o, i) && n < (int)size; i++)
            n += snprintf(buf + n, size - (size_t)n, "%s %s", i ? "," : "", o->choices[i]);
    else if (o->max > o->min && n < (int)size) {
        char lowest[32], highest[32];
        limit_text(o, o->min, lowest, sizeof lowest);
        limit_text(o, o->max, highest, sizeof highest);
        snprintf(buf + n, size - (size_t)n, "%s from %s to %s",
                 o->type == CHEX_OPT_DURATION ? "," : "", lowest, highest);
    }
}

static bool in_range(const struct chex_opt *o, double v) {
    return !(o->max > o->min) || (v >= o->min && v <= o->max);
}

static bool store_flag(const char *value, bool *out) {
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(value, yes[i]) == 0)
            return *out = true;
        if (strcmp(value, no[i]) == 0) {
            *out = false;
            return true;
        }
    }
    return false;
}

static bool store_choice(const struct chex_opt *o, const char *value, int *out) {
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(o->choices[i], value) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static bool store_string(struct chex_opt_set *set, const char *value, const char **out) {
    char *copy = strdup(value);
    char **grown = realloc(set->owned, (set->owned_count + 1) * sizeof *grown);
    if (grown)
        set->owned = grown;
    if (!copy || !grown) {
        free(copy);
        return false;
    }
    set->owned[set->owned_count++] = copy;
    *out = copy;
    return true;
}

static bool store(struct chex_opt_set *set, const struct chex_opt *o, void *settings,
                  const char *value) {
    int64_t i;
    uint64_t ms;
    double f;
    switch (o->type) {
    case CHEX_OPT_FLAG: return store_flag(value, field(o, settings));
    case CHEX_OPT_INT:
    case CHEX_OPT_INT32:
        if (!chex_parse_i64(value, &i) || !in_range(o, (double)i))
            return false;
        if (o->type == CHEX_OPT_INT)
            *(int64_t *)field(o, settings) = i;
        else
            *(int32_t *)field(o, settings) = (int32_t)i;
        return true;
    case CHEX_OPT_FLOAT:
        if (!chex_parse_f64(value, &f) || !in_range(o, f))
            return false;
        *(double *)field(o, settings) = f;
        return true;
    case CHEX_OPT_BYTES: return chex_parse_bytes(value, field(o, settings));
    case CHEX_OPT_DURATION:
        if (!chex_parse_duration(value, &ms) || !in_range(o, (double)ms))
            return false;
        *(uint64_t *)field(o, settings) = ms;
        return true;
    case CHEX_OPT_STRING: return store_string(set, value, field(o, settings));
    case CHEX_OPT_CHOICE: return store_choice(o, value, field(o, settings));
    case CHEX_OPT_GROUP: break;
    }
    return false;
}

/* `where` names the source in the error: "--lr", "CHEX_LR", "FILE line 3: lr". */
static enum chex_status set_value(struct chex_opt_set *set, const struct chex_opt *o,
                                  void *settings, const char *where, const char *value,
                                  enum chex_opt_origin origin, struct chex_error *err) {
    size_t i = (size_t)(o - set->program->opts);
    if (set->origin[i] > origin)
        return CHEX_OK;
    if (o->repeats && set->origin[i] == CHEX_FROM_COMMAND_LINE && *value) {
        set->words[set->word_count++] = value;
        return CHEX_OK;
    }
    char want[256], meant[80];
    expectation(o, want, sizeof want);
    /* No option accepts an empty value. The usual cause is an unset variable in a script. */
    if (!*value)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "%s: the value is empty: expected %s (omit the option to use its default)", where,
            want);
    if (!store(set, o, settings, value))
        return chex_error_set(err, CHEX_E_USAGE, "%s: '%.200s' is not valid: expected %s%s", where,
                              value, want, meant_choice(o, value, meant, sizeof meant));
    set->origin[i] = origin;
    return CHEX_OK;
}

static enum chex_status apply_defaults(struct chex_opt_set *set, void *settings,
                                       struct chex_error *err) {
    for (size_t i = 0; i < set->program->count; i++) {
        const struct chex_opt *o = &set->program->opts[i];
        if (o->type != CHEX_OPT_GROUP && o->def)
            CHEX_TRY(set_value(set, o, settings, o->name, o->def, CHEX_FROM_DEFAULT, err));
    }
    return CHEX_OK;
}

static void env_name(const struct chex_opt *o, char *buf, size_t size) {
    int n = snprintf(buf, size, "CHEX_%s", o->name);
    for (int i = 5; i < n && i < (int)size; i++)
        buf[i] = buf[i] == '-' ? '_' : (char)toupper((unsigned char)buf[i]);
}

/* CHEX_* variables that are not options of a command. */
static bool known_variable(const char *name, size_t n) {
    static const char *const known[] = {
        "CHEX_LIBDIR",      "CHEX_CPU",          "CHEX_NVML",
        "CHEX_NCCL",        "CHEX_CUDA_GRAPHS",  "CHEX_CUDA_DEPENDENT",
        "CHEX_CUDA_SIDE",   "CHEX_CUDA_MEASURE", "CHEX_CACHE_DIR",
        "CHEX_STATUS_FILE", "CHEX_STEP_DIR",     "CHEX_MPI"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0)
            return true;
    return n > 10 && memcmp(name, "CHEX_TEST_", 10) == 0;
}

/* The option name of CHEX_BATCH_SIZ is batch-siz. */
static void warn_unknown_variable(const struct chex_opt_program *p, const char *name, size_t n) {
    char word[64], meant[96];
    size_t length = 0;
    for (size_t i = 5; i < n && length + 1 < sizeof word; i++)
        word[length++] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    chex_warn("environment variable %.*s: ignored, because %s has no such option%s", (int)n, name,
              p->name, meant_option(p, word, length, "--", meant, sizeof meant));
}

static enum chex_status apply_environment(struct chex_opt_set *set, void *settings,
                                          struct chex_error *err) {
    CHEX_TRY(chex_cpu_check(err));
    for (char **e = environ; *e; e++) {
        const char *eq = strchr(*e, '=');
        if (strncmp(*e, "CHEX_", 5) != 0 || !eq)
            continue;
        size_t n = (size_t)(eq - *e);
        bool found = known_variable(*e, n);
        for (size_t i = 0; i < set->program->count; i++) {
            const struct chex_opt *o = &set->program->opts[i];
            char name[96];
            if (o->type == CHEX_OPT_GROUP)
                continue;
            env_name(o, name, sizeof name);
            if (strlen(name) != n || memcmp(name, *e, n) != 0)
                continue;
            found = true;
            CHEX_TRY(set_value(set, o, settings, name, eq + 1, CHEX_FROM_ENV, err));
        }
        if (!found)
            warn_unknown_variable(set->program, *e, n);
    }
    return CHEX_OK;
}

static char *trim(char *s) {
    while (isspace((unsigned char)*s))
        s++;
    char *end = s + strlen(s);
    while (end > s && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return s;
}

/* A comment starts at the start of a line or after white space, because file names may contain '#'.
 */
static void cut_comment(char *line) {
    for (char *hash = strchr(line, '#'); hash; hash = strchr(hash + 1, '#'))
        if (hash == line || isspace((unsigned char)hash[-1])) {
            *hash = '\0';
            return;
        }
}

static enum chex_status config_line(struct chex_opt_set *set, void *settings, const char *path,
                                    int number, char *line, struct chex_error *err) {
    cut_comment(line);
    char *name = trim(line);
    if (!*name)
        return CHEX_OK;
    char *eq = strchr(name, '=');
    if (!eq)
        return chex_error_set(err, CHEX_E_USAGE, "%s line %d: '%s': expected name = value", path,
                              number, name);
    *eq = '\0';
    char *value = trim(eq + 1), where[400], meant[96];
    name = trim(name);
    const struct chex_opt *o = find(set->program, name, strlen(name));
    if (!o)
        return chex_error_set(
            err, CHEX_E_USAGE, "%s line %d: unknown option '%s' for %s%s", path, number, name,
            set->program->name,
            meant_option(set->program, name, strlen(name), "", meant, sizeof meant));
    if (o->typed_only)
        return chex_error_set(err, CHEX_E_USAGE,
                              "%s line %d: '%s' is allowed on the command line only: remove it "
                              "from the file",
                              path, number, name);
    snprintf(where, sizeof where, "%s line %d: %s", path, number, name);
    return set_value(set, o, settings, where, value, CHEX_FROM_FILE, err);
}

static enum chex_status open_config(const char *path, FILE **out, struct chex_error *err) {
    int fd = -1;
    enum chex_status st = chex_fs_open(path, &fd, NULL, err);
    if (st != CHEX_OK) /* CHEX_E_DATA is for input files; a bad config file is a usage error */
        return chex_error_prefix(err, st == CHEX_E_DATA ? CHEX_E_USAGE : st, "config file");
    if (!(*out = fdopen(fd, "r"))) {
        close(fd);
        return chex_error_memory(err, "config file %s", path);
    }
    return CHEX_OK;
}

static enum chex_status apply_file(struct chex_opt_set *set, void *settings, const char *path,
                                   struct chex_error *err) {
    FILE *f = NULL;
    CHEX_TRY(open_config(path, &f, err));
    char *line = NULL;
    size_t cap = 0;
    enum chex_status st = CHEX_OK;
    ssize_t bytes;
    for (int number = 1; st == CHEX_OK && (bytes = getline(&line, &cap, f)) >= 0; number++)
        st = memchr(line, '\0', (size_t)bytes)
                 ? chex_error_set(err, CHEX_E_USAGE, "%s line %d: a NUL byte (expected text)", path,
                                  number)
                 : config_line(set, settings, path, number, line, err);
    if (st == CHEX_OK && !feof(f))
        st = chex_error_errno(err, CHEX_E_USAGE, errno, "config file %s", path);
    free(line);
    fclose(f);
    return st;
}

static enum chex_status long_option(struct chex_opt_set *set, void *settings, const char *arg,
                                    const char *next, int *used, struct chex_error *err) {
    const char *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    const struct chex_opt *o = find(set->program, arg, n);
    bool negated = false;
    if (!o && n > 3 && memcmp(arg, "no-", 3) == 0) {
        o = find(set->program, arg + 3, n - 3);
        if (o && o->type == CHEX_OPT_FLAG)
            negated = true;
        else
            o = NULL;
    }
    char where[96], meant[96];
    const size_t no = n > 3 && memcmp(arg, "no-", 3) == 0 ? 3 : 0;
    if (!o)
        return chex_error_set(
            err, CHEX_E_USAGE, "unknown option '--%.*s'%s; try '%s --help'",
            (int)(n < 200 ? n : 200), arg,
            meant_option(set->program, arg + no, n - no, no ? "--no-" : "--", meant, sizeof meant),
            set->program->name);
    snprintf(where, sizeof where, "--%s", o->name);
    if (o->type == CHEX_OPT_FLAG) {
        if (eq && negated)
            return chex_error_set(err, CHEX_E_USAGE, "--%.*s takes no value", (int)n, arg);
        const char *value = eq ? eq + 1 : negated ? "no" : "yes";
        return set_value(set, o, settings, where, value, CHEX_FROM_COMMAND_LINE, err);
    }
    if (!eq && !next)
        return chex_error_set(err, CHEX_E_USAGE, "--%s needs a value (%s)", o->name,
                              o->metavar ? o->metavar : "VALUE");
    if (!eq)
        *used = 1;
    return set_value(set, o, settings, where, eq ? eq + 1 : next, CHEX_FROM_COMMAND_LINE, err);
}

static enum chex_status short_options(struct chex_opt_set *set, void *settings, const char *arg,
                                      const char *next, int *used, struct chex_error *err) {
    for (const char *p = arg; *p; p++) {
        const struct chex_opt *o = find_letter(set->program, *p);
        if (!o)
            return chex_error_set(err, CHEX_E_USAGE, "unknown option '-%c'; try '%s --help'", *p,
                                  set->program->name);
        char where[96];
        snprintf(where, sizeof where, "-%c", *p);
        if (o->type == CHEX_OPT_FLAG) {
            CHEX_TRY(set_value(set, o, settings, where, "yes", CHEX_FROM_COMMAND_LINE, err));
            continue;
        }
        const char *value = p[1] ? p + 1 : next;
        if (!value)
            return chex_error_set(err, CHEX_E_USAGE, "-%c needs a value (%s)", *p, o->metavar);
        *used = !p[1];
        return set_value(set, o, settings, where, value, CHEX_FROM_COMMAND_LINE, err);
    }
    return CHEX_OK;
}

static enum chex_status apply_arguments(struct chex_opt_set *set, int argc, char **argv,
                                        void *settings, struct chex_error *err) {
    bool words_only = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int used = 0;
        if (!*arg)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "an argument is empty: expected a word or an option; is a "
                                  "variable of the script not set?");
        if (words_only || arg[0] != '-' || !arg[1])
            set->words[set->word_count++] = arg;
        else if (strcmp(arg, "--") == 0)
            words_only = true;
        else if (arg[1] == '-')
            CHEX_TRY(long_option(set, settings, arg + 2, next, &used, err));
        else
            CHEX_TRY(short_options(set, settings, arg + 1, next, &used, err));
        i += used;
    }
    return CHEX_OK;
}

static enum chex_status check_required(const struct chex_opt_set *set, const void *settings,
                                       struct chex_error *err) {
    const struct chex_opt_common *common = settings;
    if (common->help || common->version || common->print_config)
        return CHEX_OK;
    for (size_t i = 0; i < set->program->count; i++)
        if (set->program->opts[i].required && set->origin[i] == CHEX_FROM_DEFAULT)
            return chex_error_set(err, CHEX_E_USAGE, "--%s %s is required; try '%s --help'",
                                  set->program->opts[i].name, set->program->opts[i].metavar,
                                  set->program->name);
    return CHEX_OK;
}

/* --quiet and --verbose are short forms of --log-level. The option with the source of highest
 * precedence decides; from one source, quiet has precedence over verbose. */
static void apply_verbosity(struct chex_opt_set *set, struct chex_opt_common *common) {
    enum chex_opt_origin *level = origin_of(set, "log-level");
    const enum chex_opt_origin quiet = *origin_of(set, "quiet"),
                               verbose = *origin_of(set, "verbose");
    const bool outdone = common->verbose && verbose > quiet;
    if (common->quiet && quiet >= *level && !outdone) {
        common->log_level = CHEX_LOG_WARN;
        *level = quiet;
    } else if (common->verbose && verbose >= *level && common->log_level < CHEX_LOG_DEBUG) {
        common->log_level = CHEX_LOG_DEBUG;
        *level = verbose;
    }
}

const struct chex_opt_program *chex_opt_choose(const struct chex_opt_program *command, int argc,
                                               char **argv, struct chex_error *err) {
    const struct chex_opt_program *const *sub = command->subcommands;
    if (argc < 2 || argv[1][0] == '-' || !sub)
        return command;
    char known[256] = "", meant[80];
    struct chex_text_nearest nearest = {.word = argv[1]};
    for (size_t used = 0; *sub && used < sizeof known; sub++) {
        if (strcmp(argv[1], (*sub)->word) == 0)
            return *sub;
        const char *gap = used == 0 ? "" : sub[1] ? ", " : " or ";
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", gap, (*sub)->word);
        chex_text_offer(&nearest, (*sub)->word);
    }
    chex_error_set(err, CHEX_E_USAGE, "unknown subcommand '%s': expected %s%s%s", argv[1], known,
                   command->word ? "" : ", or none", meant_word(&nearest, "", meant, sizeof meant));
    return NULL;
}

/* The words follow the options, so a subcommand among them was not recognised. */
enum chex_status chex_opt_check_words(const struct chex_opt_set *set, struct chex_error *err) {
    const struct chex_opt_program *p = set->program;
    if (set->word_count >= p->min_words && set->word_count <= p->max_words)
        return CHEX_OK;
    if (p->words)
        return chex_error_set(err, CHEX_E_USAGE, "%s takes %s; try '%s --help'", p->name, p->words,
                              p->name);
    const char *word = set->words[0];
    for (const struct chex_opt_program *const *sub = p->subcommands; sub && *sub; sub++)
        if (strcmp(word, (*sub)->word) == 0)
            return chex_error_set(err, CHEX_E_USAGE, "'%s' comes first: %s %s, then its options",
                                  word, p->name, word);
    return chex_error_set(err, CHEX_E_USAGE,
                          "unexpected word '%s': %s takes options only; try '%s --help'", word,
                          p->name, p->name);
}

enum chex_status chex_opt_parse(const struct chex_opt_program *program, int argc, char **argv,
                                void *settings, size_t settings_size, struct chex_opt_set **set_out,
                                struct chex_error *err) {
    memset(settings, 0, settings_size);
    *set_out = NULL;
    const bool named = argc > 1 && program->word && strcmp(argv[1], program->word) == 0;
    struct chex_opt_set *set = calloc(1, sizeof *set);
    if (set) {
        set->program = program;
        set->origin = calloc(program->count, sizeof *set->origin);
        set->words = calloc((size_t)argc + 1, sizeof *set->words);
    }
    if (!set || !set->origin || !set->words) {
        chex_opt_destroy(set);
        return chex_error_memory(err, "the options");
    }
    /* The command line is applied before environment and file, because it names the file. set_value
     * keeps values from sources of higher precedence. */
    enum chex_status st = apply_defaults(set, settings, err);
    if (st == CHEX_OK)
        st = apply_arguments(set, argc - named, argv + named, settings, err);
    struct chex_opt_common *common = settings;
    bool informs_only = st == CHEX_OK && (common->help || common->version);
    if (st == CHEX_OK && !informs_only)
        st = apply_environment(set, settings, err);
    if (st == CHEX_OK && !informs_only && common->config)
        st = apply_file(set, settings, common->config, err);
    if (st == CHEX_OK)
        st = check_required(set, settings, err);
    if (st != CHEX_OK) {
        chex_opt_destroy(set);
        return st;
    }
    apply_verbosity(set, common);
    *set_out = set;
    return CHEX_OK;
}

void chex_opt_destroy(struct chex_opt_set *set) {
    if (!set)
        return;
    for (size_t i = 0; i < set->owned_count; i++)
        free(set->owned[i]);
    free(set->owned);
    free(set->origin);
    free(set->words);
    free(set);
}

size_t chex_opt_word_count(const struct chex_opt_set *set) { return set->word_count; }

const char *chex_opt_word(const struct chex_opt_set *set, size_t i) {
    return i < set->word_count ? set->words[i] : NULL;
}

enum chex_status chex_opt_take(struct chex_opt_set *set, const struct chex_opt *o, void *settings,
                               const char *value, const char *where, struct chex_error *err) {
    char place[300];
    snprintf(place, sizeof place, "%.200s: %s", where, o->name);
    const enum chex_status st = set_value(set, o, settings, place, value, CHEX_FROM_RUN, err);
    return st == CHEX_E_USAGE ? chex_error_prefix(err, CHEX_E_DATA, "recorded options") : st;
}

enum chex_opt_origin chex_opt_origin(const struct chex_opt_set *set, const char *name) {
    const struct chex_opt *o = find(set->program, name, strlen(name));
    return o ? set->origin[o - set->program->opts] : CHEX_FROM_DEFAULT;
}

enum { HELP_COLUMN = 35, HELP_WIDTH = 100, HELP_OPTIONS = 30 };

/* Prints the words of `text`, from HELP_COLUMN on in every line. */
static void put_wrapped(const char *text, FILE *to) {
    size_t at = HELP_COLUMN;
    while (*text) {
        const size_t length = strcspn(text, " ");
        const bool first = at == HELP_COLUMN, fits = first || at + 1 + length <= HELP_WIDTH;
        fprintf(to, fits ? "%*s%.*s" : "\n%*s%.*s", fits ? !first : HELP_COLUMN, "", (int)length,
                text);
        at = (fits ? at + !first : HELP_COLUMN) + length;
        text += length + (text[length] == ' ');
    }
    fputc('\n', to);
}

static void print_option(const struct chex_opt *o, FILE *to) {
    char letter[8] = "    ", text[1024];
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    const int left = fprintf(to, "  %s--%s%s%s", letter, o->name, o->metavar ? " " : "",
                             o->metavar ? o->metavar : "");
    const bool beside = left < HELP_COLUMN;
    fprintf(to, beside ? "%*s" : "\n%*s", HELP_COLUMN - (beside ? left : 0), "");
    size_t n = (size_t)snprintf(text, sizeof text, "%s", o->help);
    for (size_t i = 0; o->choices && listed_choice(o, i) && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s", i ? ", " : " (", o->choices[i],
                              listed_choice(o, i + 1) ? "" : ")");
    if (o->def && n < sizeof text)
        n += (size_t)snprintf(text + n, sizeof text - n, " [%s]", o->def);
    if (o->required && n < sizeof text)
        snprintf(text + n, sizeof text - n, " (required)");
    put_wrapped(text, to);
}

/* A heading is printed only if an option follows it. Returns the number of options left out. */
static size_t print_options(const struct chex_opt_program *program, bool all, FILE *to) {
    const char *heading = NULL;
    size_t options = 0, left_out = 0;
    for (size_t i = 0; i < program->count; i++)
        options += program->opts[i].type != CHEX_OPT_GROUP;
    for (size_t i = 0; i < program->count; i++) {
        const struct chex_opt *o = &program->opts[i];
        if (o->type == CHEX_OPT_GROUP) {
            heading = o->help;
        } else if (all || o->basic || options <= HELP_OPTIONS) {
            if (heading)
                fprintf(to, "\n%s\n", heading);
            heading = NULL;
            print_option(o, to);
        } else {
            left_out++;
        }
    }
    return left_out;
}

static bool has_type(const struct chex_opt_program *program, enum chex_opt_type type) {
    for (size_t i = 0; i < program->count; i++)
        if (program->opts[i].type == type)
            return true;
    return false;
}

static void print_subcommands(const struct chex_opt_program *command, FILE *to) {
    const struct chex_opt_program *const *list = command->subcommands;
    int width = 7;
    for (const struct chex_opt_program *const *sub = list; *sub; sub++)
        width = (int)strlen((*sub)->word) > width ? (int)strlen((*sub)->word) : width;
    fputs("\nSubcommands\n", to);
    for (const struct chex_opt_program *const *sub = list; *sub; sub++)
        fprintf(to, "  %-*s  %s\n", width, (*sub)->word,
                (*sub)->listed ? (*sub)->listed : (*sub)->summary);
    if (!command->word)
        fprintf(to, "A subcommand comes first and has options of its own: %s %s --help.\n",
                command->name, list[0]->word);
}

void chex_opt_print_help(const struct chex_opt_program *program, bool all, FILE *to) {
    fprintf(to, "%s: %s\n\n", program->name, program->summary);
    const char *line = program->usage;
    for (bool first = true; line && *line; first = false) {
        size_t n = strcspn(line, "\n");
        fprintf(to, "%s %.*s\n", first ? "usage:" : "      ", (int)n, line);
        line += n + (line[n] == '\n');
    }
    const size_t left_out = print_options(program, all, to);
    fputc('\n', to);
    if (left_out)
        fprintf(to, "%zu more options for special cases: %s --help all\n", left_out, program->name);
    if (has_type(program, CHEX_OPT_BYTES))
        fputs("Sizes take K M G (powers of 1024).\n", to);
    if (has_type(program, CHEX_OPT_DURATION))
        fputs("Durations need a unit (ms s m h d).\n", to);
    fputs("Each option can be given as CHEX_NAME in the environment or in a --config file.\n", to);
    if (program->subcommands)
        print_subcommands(program, to);
    if (program->epilog)
        fprintf(to, "\n%s", program->epilog);
}

/* 12 digits if they give the same number when read, else 17. */
static void float_text(double value, char *buf, size_t size) {
    double again;
    snprintf(buf, size, "%.12g", value);
    if (!chex_parse_f64(buf, &again) || again != value)
        snprintf(buf, size, "%.17g", value);
}

const char *chex_opt_value_text(const struct chex_opt *o, const void *settings, char *buf,
                                size_t size) {
    const void *p = cfield(o, settings);
    const char *s = NULL;
    switch (o->type) {
    case CHEX_OPT_FLAG: s = *(const bool *)p ? "yes" : "no"; break;
    case CHEX_OPT_CHOICE: s = o->choices[*(const int *)p]; break;
    case CHEX_OPT_STRING: s = *(const char *const *)p ? *(const char *const *)p : ""; break;
    case CHEX_OPT_INT: snprintf(buf, size, "%lld", (long long)*(const int64_t *)p); break;
    case CHEX_OPT_INT32: snprintf(buf, size, "%d", *(const int32_t *)p); break;
    case CHEX_OPT_FLOAT: float_text(*(const double *)p, buf, size); break;
    case CHEX_OPT_BYTES:
        snprintf(buf, size, "%llu", (unsigned long long)*(const uint64_t *)p);
        break;
    case CHEX_OPT_DURATION: duration_text(*(const uint64_t *)p, buf, size); break;
    case CHEX_OPT_GROUP: s = ""; break;
    }
    if (s)
        snprintf(buf, size, "%s", s);
    return buf;
}

/* Whether --print-config prints the option. log-level includes the effect of --quiet and --verbose.
 */
static bool printed(const struct chex_opt *o) {
    if (o->type == CHEX_OPT_GROUP || o->at >= sizeof(struct chex_opt_common))
        return o->type != CHEX_OPT_GROUP;
    return strcmp(o->name, "log-level") == 0 || strcmp(o->name, "json") == 0;
}

void chex_opt_print_config(const struct chex_opt_set *set, const void *settings, FILE *to) {
    for (size_t i = 0; i < set->program->count; i++) {
        const struct chex_opt *o = &set->program->opts[i];
        if (!printed(o))
            continue;
        char value[4096];
        chex_opt_value_text(o, settings, value, sizeof value);
        if (o->type == CHEX_OPT_STRING && !*value)
            fprintf(to, "# %s =   # not set\n", o->name);
        else
            fprintf(to, "%s = %s   # %s\n", o->name, value, chex_opt_origin_names[set->origin[i]]);
    }
}

/* Quoted unless every character is harmless. */
static void put_quoted(FILE *to, const char *text) {
    static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "_-./=:,+@%";
    if (*text && !text[strspn(text, harmless)]) {
        fputs(text, to);
        return;
    }
    putc('\'', to);
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", to);
        else
            putc(*text, to);
    putc('\'', to);
}

static void put_option(FILE *to, const struct chex_opt *o, const void *settings) {
    char value[4096];
    if (o->type == CHEX_OPT_FLAG) {
        fprintf(to, " --%s%s", *(const bool *)cfield(o, settings) ? "" : "no-", o->name);
        return;
    }
    fprintf(to, " --%s ", o->name);
    put_quoted(to, o->type == CHEX_OPT_STRING
                       ? *(const char *const *)cfield(o, settings)
                       : chex_opt_value_text(o, settings, value, sizeof value));
}

json_t *chex_opt_same(const struct chex_opt_set *set, const void *settings) {
    json_t *same = json_object();
    for (size_t i = 0; i < set->program->count; i++) {
        const struct chex_opt *o = &set->program->opts[i];
        char value[4096];
        if (o->type == CHEX_OPT_GROUP || o->at < sizeof(struct chex_opt_common) || o->of_rank)
            continue;
        chex_opt_value_text(o, settings, value, sizeof value);
        json_object_set_new(same, o->name, json_string(value));
    }
    return same;
}

char *chex_opt_command(const struct chex_opt_set *set, const void *settings) {
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return NULL;
    fputs(set->program->name, to);
    for (size_t i = 0; i < chex_opt_word_count(set); i++) {
        putc(' ', to);
        put_quoted(to, chex_opt_word(set, i));
    }
    for (size_t i = 0; i < set->program->count; i++)
        if (set->origin[i] != CHEX_FROM_DEFAULT && printed(&set->program->opts[i]))
            put_option(to, &set->program->opts[i], settings);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

bool chex_opt_inform(const struct chex_opt_set *set, const void *settings,
                     const char *(*libraries)(char *buf, size_t size)) {
    const struct chex_opt_common *common = settings;
    const char *name = set->program->name;
    char buf[256];
    const char *word = chex_opt_word(set, 0);
    if (common->help)
        chex_opt_print_help(set->program, word && strcmp(word, "all") == 0, stdout);
    else if (common->version)
        printf("%.*s %s\n%s\ncompiler %s\n", (int)strcspn(name, " "), name, CHEXNET_VERSION,
               libraries(buf, sizeof buf), CHEXNET_COMPILER);
    else if (common->print_config)
        chex_opt_print_config(set, settings, stdout);
    return common->help || common->version || common->print_config;
}

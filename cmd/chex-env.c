/* SPDX-License-Identifier: Apache-2.0
 *
 * Is this allocation fit to train? Level 1 asks: versions, launch, binding, GPU visibility, limits,
 * file systems, environment. Level 2 measures each rank, level 3 what lies between them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/opt.h"
#include "check/check.h"
#include "data/versions.h"

struct settings {
    struct chex_opt_common common;
    int64_t level;
    int mode;
    uint64_t timeout_ms;
    const char *expect, *record, *data, *output;
};

static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Checks"},
    {"level", 0, CHEX_OPT_INT, offsetof(struct settings, level), "1", "1|2|3",
     "how deep to look: 1 asks (in a second), 2 measures each node too (in some 20 s), 3 measures "
     "between the ranks too",
     NULL, 1, 3},
    {"mode", 0, CHEX_OPT_CHOICE, offsetof(struct settings, mode), "job", "MODE",
     "where it runs: a job step, Slurm's prolog (only the node's faults count), a login node",
     chex_check_mode_names},
    {"timeout", 0, CHEX_OPT_DURATION, offsetof(struct settings, timeout_ms), "30s", "TIME",
     "a check that has not answered by then fails, and the node is at fault; at least 1s; 2m by "
     "default from level 2 on, but in the prolog",
     NULL, 1000, 86400e3},
    {"expect", 0, CHEX_OPT_STRING, offsetof(struct settings, expect), NULL, "FILE",
     "JSON object of check names and the found values they must have, or the limits of their "
     "figures"},
    {"record", 0, CHEX_OPT_STRING, offsetof(struct settings, record), NULL, "FILE",
     "write the figures of levels 2 and 3, a tenth worse, as limits for --expect"},
    {"data", 0, CHEX_OPT_STRING, offsetof(struct settings, data), NULL, "DIR",
     "folder of shards that level 2 reads for some seconds"},
    {"output", 0, CHEX_OPT_STRING, offsetof(struct settings, output), NULL, "DIR",
     "folder of results, where level 2 writes for some seconds and leaves nothing; the current one "
     "by default"},
};

static const struct chex_opt_program program = {
    .name = "chex-env",
    .summary = "Is this allocation fit to train?",
    .usage = "chex-env [OPTION...]\nsrun chex-env [OPTION...]",
    .opts = options,
    .count = sizeof options / sizeof options[0],
    .epilog = "Exit status: 0 all checks pass or warn, 4 a fault of the user, 5 of the node;\n"
              "in the prolog a user's fault and a wrong option, file or variable are 0, because\n"
              "any other status drains the node.\n"
              "Example: srun -N2 --gpus-per-task=1 chex-env\n",
};

static const char *colour(enum chex_verdict v, bool tty) {
    static const char *const codes[] = {"\033[32m", "\033[2m", "\033[33m", "\033[31m"};
    return tty ? codes[v] : "";
}

static void print_detail(const char *label, const char *text, int indent) {
    if (text[0])
        printf("%*s%s: %s\n", indent, "", label, text);
}

static void print_table(const struct chex_check_report *report) {
    const bool tty = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    int width = 5, counts[4] = {0};
    for (size_t i = 0; i < report->count; i++)
        if ((int)strlen(report->checks[i]->name) > width)
            width = (int)strlen(report->checks[i]->name);
    printf("%-*s  %-7s  %s\n", width, "check", "verdict", "found");
    for (size_t i = 0; i < report->count; i++) {
        const struct chex_check_result *r = &report->merged[i];
        counts[r->verdict]++;
        printf("%-*s  %s%-7s%s  %s\n", width, report->checks[i]->name, colour(r->verdict, tty),
               chex_verdict_names[r->verdict], tty ? "\033[0m" : "", r->found);
        if (r->verdict < CHEX_WARN)
            continue;
        print_detail("question", report->checks[i]->question, width + 11);
        print_detail("expected", r->expected, width + 11);
        print_detail("fault", chex_fault_names[r->fault], width + 11);
        print_detail("remedy", r->remedy, width + 11);
    }
    if (report->mode == CHEX_MODE_JOB)
        printf("\n");
    for (int k = 0; k < report->ranks; k++)
        if (report->cards[k].line[0])
            printf("%s\n", report->cards[k].line);
    printf("\n%d passed, %d warned, %d failed, %d skipped\n", counts[CHEX_PASS], counts[CHEX_WARN],
           counts[CHEX_FAIL], counts[CHEX_SKIP]);
}

static enum chex_status print_json(const struct chex_check_report *report, struct chex_error *err) {
    char *text = chex_check_json(report);
    if (!text)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    fputs(text, stdout);
    free(text);
    return CHEX_OK;
}

/* In the prolog and on a login node nobody else is asked: one process, whatever variables say. */
static void alone(struct chex_launch *launch) {
    *launch = (struct chex_launch){
        .method = "single", .size = 1, .local_size = 1, .nodes = 1, .impl = NULL};
    const char *node = getenv("SLURMD_NODENAME");
    if (node && *node)
        snprintf(launch->host, sizeof launch->host, "%s", node);
    else if (gethostname(launch->host, sizeof launch->host - 1) != 0)
        snprintf(launch->host, sizeof launch->host, "unknown");
}

/* Rank 0 of the job speaks. Without a working launch layer each rank is alone, and Slurm's number
 * says who speaks. */
static bool speaks(const struct chex_launch *launch, bool launched) {
    const char *task = getenv("SLURM_PROCID");
    return launch->rank == 0 && (launched || !task || strcmp(task, "0") == 0);
}

static enum chex_status print_report(const struct settings *s,
                                     const struct chex_check_report *report,
                                     struct chex_error *err) {
    if (s->common.json)
        CHEX_TRY(print_json(report, err));
    else
        print_table(report);
    return chex_fs_flush_stdout(err);
}

static enum chex_status record(const struct settings *s, const struct chex_check_report *report,
                               struct chex_error *err) {
    const double slack = 0.1;
    CHEX_TRY(chex_fs_make_folder_of(s->record, err));
    return chex_check_expected_write(s->record, report, slack, err);
}

/* In the prolog a table or a file that cannot be written (its log is on a full disk, its stdout is
 * closed) is a site's mistake, like those of after_usage: what was found of the node stands. */
static enum chex_status after_writing(const struct settings *s, enum chex_status st,
                                      struct chex_error *err) {
    if (st == CHEX_OK || s->mode != CHEX_MODE_PROLOG)
        return st;
    chex_warn("%s", err->text);
    *err = (struct chex_error){0};
    return CHEX_OK;
}

/* What would make all measuring vain. */
static enum chex_status check_record(const struct settings *s, struct chex_error *err) {
    struct chex_check_expected *before = NULL;
    if (s->level == 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--record %s: level 1 measures nothing: say --level 2 or 3",
                              s->record);
    CHEX_TRY(chex_fs_check_create(s->record, err));
    if (chex_fs_exists(s->record) &&
        chex_check_expected_read(s->record, &before, NULL) == CHEX_E_USAGE)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--record %s: a file of that name is there and holds no "
                              "expectations: name another one",
                              s->record);
    chex_check_expected_destroy(before);
    return CHEX_OK;
}

/* What one rank needs before it can begin. */
static enum chex_status prepare(const struct settings *s, const struct chex_launch *launch,
                                bool spokesman, struct chex_check_context *context,
                                struct chex_binding *binding, struct chex_check_expected **expected,
                                struct chex_error *err) {
    if (s->expect)
        CHEX_TRY(chex_check_expected_read(s->expect, expected, err));
    if (s->record && spokesman && s->mode != CHEX_MODE_PROLOG)
        CHEX_TRY(check_record(s, err));
    if (context->mode == CHEX_MODE_JOB) {
        CHEX_TRY(chex_bind(launch, binding, err));
        context->binding = binding;
    }
    return CHEX_OK;
}

/* Where one rank cannot begin none does, and the first of them says why: the others return its
 * status without a text. */
static enum chex_status begin_together(struct chex_launch *launch, enum chex_status mine,
                                       uint64_t timeout_ms, struct chex_error *err) {
    struct chex_error lost = {0};
    const int32_t status = mine;
    int32_t *all = calloc((size_t)launch->size, sizeof *all);
    if (!all)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    const enum chex_status st =
        chex_launch_exchange(launch, "check-begin", &status, sizeof status, all, timeout_ms, &lost);
    int first = 0;
    while (st == CHEX_OK && first < launch->size && all[first] == CHEX_OK)
        first++;
    const enum chex_status theirs =
        st == CHEX_OK && first < launch->size ? (enum chex_status)all[first] : CHEX_OK;
    free(all);
    if (st != CHEX_OK) {
        *err = mine == CHEX_OK ? lost : *err;
        return mine == CHEX_OK ? st : mine;
    }
    if (theirs != CHEX_OK && first != launch->rank)
        *err = (struct chex_error){.status = theirs};
    return theirs;
}

static void warn_of_unused(const struct settings *s) {
    if (s->level == 1 && (s->data || s->output))
        chex_warn("--%s: level 1 reads and writes nothing: say --level 2",
                  s->data ? "data" : "output");
}

static void warn_of_left_out(const struct settings *s, const struct chex_check_expected *expected,
                             const struct chex_check_report *report) {
    char names[512], more[48] = "";
    const int level = chex_check_expected_left_out(expected, report, names, sizeof names);
    if (level > s->level)
        snprintf(more, sizeof more, "; --level %d measures them", level);
    if (names[0])
        chex_warn("expectations %s: not measured, so not compared: %s%s", s->expect, names, more);
}

static enum chex_status check_all(const struct settings *s, struct chex_launch *launch,
                                  struct chex_check_context *context, bool launched, bool *hung_out,
                                  struct chex_error *err) {
    struct chex_check_expected *expected = NULL;
    struct chex_check_report result = {0};
    struct chex_binding binding;
    const bool spokesman = speaks(launch, launched);
    enum chex_status st = prepare(s, launch, spokesman, context, &binding, &expected, err);
    /* Others may have come later, as to any exchange. */
    st = begin_together(launch, st, s->timeout_ms + 10000, err);
    if (st == CHEX_OK && spokesman)
        warn_of_unused(s);
    if (st == CHEX_OK)
        st = chex_check_run(NULL, context, expected, s->timeout_ms, launch, &result, err);
    if (st == CHEX_OK && spokesman && expected)
        warn_of_left_out(s, expected, &result);
    if (st == CHEX_OK && spokesman)
        st = after_writing(s, print_report(s, &result, err), err);
    if (st == CHEX_OK && s->record && spokesman)
        st = after_writing(s, record(s, &result, err), err);
    if (st == CHEX_OK)
        st = chex_check_status(&result);
    if (st != CHEX_OK && err->status == CHEX_OK && err->text[0] == '\0' && !s->common.json &&
        spokesman)
        chex_info("%s", chex_status_text(st));
    *hung_out = result.hung;
    chex_check_report_release(&result);
    chex_check_expected_destroy(expected);
    return st;
}

/* Threads of the ranks hang in collective calls, so none can leave in good order: once rank 0 has
 * said what it has to say, all are ended. */
static void end_hung(struct chex_launch *launch, enum chex_status st) {
    enum { MS = 10000 };
    struct chex_error err = {0};
    char mine = 0, *all = malloc((size_t)launch->size);
    if (all)
        (void)chex_launch_exchange(launch, "check-end", &mine, 1, all, MS, &err);
    free(all);
    chex_launch_abort(launch, st);
}

static enum chex_status run(const struct settings *s, struct chex_error *err) {
    struct chex_launch launch;
    struct chex_error launch_error = {0};
    struct chex_check_context context = {.mode = s->mode,
                                         .launch = &launch,
                                         .level = (int)s->level,
                                         .data = s->data,
                                         .output = s->output};
    bool launched = false;
    if (s->mode == CHEX_MODE_JOB) {
        launched = chex_launch_init(&launch, &launch_error) == CHEX_OK;
        if (!launched)
            context.launch_error = &launch_error;
    }
    if (!launched)
        alone(&launch);
    chex_log_set_level((enum chex_log_level)s->common.log_level);
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    context.show_progress =
        s->level > 1 && speaks(&launch, launched) && s->common.log_level >= CHEX_LOG_INFO;
    chex_gpu_view(&context.gpu);
    bool hung = false;
    enum chex_status st = check_all(s, &launch, &context, launched, &hung, err);
    if (err->text[0]) {
        chex_err("%s", err->text);
        err->text[0] = '\0';
        /* The others would wait for this rank. After a lost one no exchange works any more. */
        if (st != CHEX_E_USAGE)
            chex_launch_abort(&launch, st);
    }
    if (hung)
        end_hung(&launch, st);
    if (launched)
        chex_launch_finish(&launch);
    return st;
}

/* Whether --mode or CHEX_MODE says prolog, for when the options as a whole could not be read. */
static bool asked_for_prolog(int argc, char **argv) {
    const char *mode = getenv("CHEX_MODE");
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--mode=", 7) == 0)
            mode = argv[i] + 7;
        else if (strcmp(argv[i], "--mode") == 0 && i + 1 < argc)
            mode = argv[++i];
    return mode && strcmp(mode, chex_check_mode_names[CHEX_MODE_PROLOG]) == 0;
}

/* A site's mistake in the prolog's own line or files must not drain every node that starts a job.
 */
static enum chex_status after_usage(enum chex_status st, bool prolog) {
    if (st != CHEX_E_USAGE || !prolog)
        return st;
    chex_warn("nothing was checked; the exit status is 0, because another would drain this node");
    return CHEX_OK;
}

static enum chex_status carry_out(const struct settings *s, const struct chex_opt_set *set,
                                  struct chex_error *err) {
    char libraries[256];
    if (s->common.help)
        chex_opt_print_help(&program, stdout);
    else if (s->common.version)
        chex_opt_print_version(program.name, chex_data_libraries(libraries, sizeof libraries),
                               stdout);
    else if (s->common.print_config)
        chex_opt_print_config(set, s, stdout);
    else if (chex_opt_word_count(set) > 0)
        return chex_error_set(err, CHEX_E_USAGE, "unexpected argument '%s'; try chex-env --help",
                              chex_opt_word(set, 0));
    else
        return run(s, err);
    return chex_fs_flush_stdout(err);
}

/* A GPU's libraries alone take longer to start than a prolog has. */
static const uint64_t measuring_ms = 120000;

int main(int argc, char **argv) {
    struct settings s;
    struct chex_opt_set *set = NULL;
    struct chex_error err = {0};
    chex_log_init("chex-env", CHEX_LOG_INFO);
    enum chex_status st = chex_opt_parse(&program, argc, argv, &s, sizeof s, &set, &err);
    const bool prolog = st == CHEX_OK ? s.mode == CHEX_MODE_PROLOG : asked_for_prolog(argc, argv);
    if (st == CHEX_OK && s.level > 1 && !prolog &&
        chex_opt_origin(set, "timeout") == CHEX_FROM_DEFAULT)
        s.timeout_ms = measuring_ms;
    if (st == CHEX_OK)
        st = carry_out(&s, set, &err);
    if (err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return after_usage(st, prolog);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-env: checks whether an allocation is fit to train. Level 1 queries versions, launch,
 * binding, GPU visibility, limits, file systems and environment. Level 2 also measures each node,
 * level 3 also measures between the ranks.
 *
 * Rank 0 prints for all. In Slurm's prolog a mistake of the site or the user must not drain the
 * node: only faults of the node give a non-zero status there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "check/check.h"
#include "command.h"
#include "option_rows.h"
#include "preempt.h"
#include "shard/versions.h"

struct settings {
    struct chex_opt_common common;
    int64_t level;
    int mode;
    uint64_t timeout_ms;
    const char *expect, *record, *data, *output, *metrics, *history, *root;
};

#define AT(member) offsetof(struct settings, member)
static const struct chex_opt options[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Checks"),
    OPTION("level", INT, AT(level), .def = "1", .metavar = "1|2|3", .min = 1, .max = 3,
           .help = "how deep to look: 1 asks (in a second), 2 measures each node too (in some 20 "
                   "s), 3 measures between the ranks too"),
    OPTION(
        "mode", CHOICE, AT(mode), .def = "job", .metavar = "MODE", .choices = chex_check_mode_names,
        .help = "where it runs: a job step; Slurm's prolog, where only the node's faults count; a "
                "login node; a health check: as the prolog, for all GPUs of the node"),
    OPTION("timeout", DURATION, AT(timeout_ms), .def = "30s", .metavar = "TIME", .min = 1000,
           .max = 86400e3,
           .help = "a check that has not answered by then fails, and the node is at fault; at "
                   "least 1s; 2m by default from level 2 on, but in the prolog"),
    OPTION("expect", STRING, AT(expect), .metavar = "FILE",
           .help = "JSON object of check names and the found values they must have, or the limits "
                   "of their figures; or of these for each type of node"),
    OPTION("record", STRING, AT(record), .metavar = "FILE",
           .help = "write ports, counts of errors, and the figures of levels 2 and 3 with a margin "
                   "for their noise, for --expect"),
    OPTION("root", STRING, AT(root), .metavar = "DIR",
           .help = "read /sys and /proc in this recording of a node (record_node.sh); checks that "
                   "need the node itself are skipped"),
    OPTION("data", STRING, AT(data), .metavar = "DIR",
           .help = "folder of shards that level 2 reads for some seconds"),
    OPTION("output", STRING, AT(output), .metavar = "DIR",
           .help = "folder of results, where level 2 writes for some seconds and leaves nothing; "
                   "the current one by default"),
    OPTION("metrics", STRING, AT(metrics), .metavar = "FILE",
           .help = "replace FILE by verdicts and figures for Prometheus, to be read by the "
                   "textfile collector of node_exporter"),
    OPTION("history", STRING, AT(history), .metavar = "FILE",
           .help = "append verdicts and figures to FILE, as one line of JSON"),
};

static const struct chex_opt_program program = {
    .name = "chex-env",
    .summary = "Is this allocation fit to train?",
    .usage = "chex-env [OPTION...]\nsrun chex-env [OPTION...]",
    .opts = options,
    .count = COUNT(options),
    .epilog = "Exit status: 0 all checks pass or warn, 4 a fault of the user, 5 of the node;\n"
              "in the modes prolog and health a user's fault and a wrong option, file or\n"
              "variable are 0, because any other status drains the node.\n"
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

static void print_check(const struct chex_check *check, const struct chex_check_result *r,
                        int width, bool tty) {
    printf("%-*s  %s%-7s%s  %s\n", width, check->name, colour(r->verdict, tty),
           chex_verdict_names[r->verdict], tty ? "\033[0m" : "", r->found);
    if (r->verdict < CHEX_WARN)
        return;
    print_detail("question", check->question, width + 11);
    print_detail("expected", r->expected, width + 11);
    print_detail("disturbed", check->figures[0].key ? r->disturbed : "", width + 11);
    print_detail("fault", chex_fault_names[r->fault], width + 11);
    print_detail("remedy", r->remedy, width + 11);
}

/* One line per rank: where it runs. */
static void print_ranks(const struct chex_check_report *report) {
    char line[2 * sizeof report->records->line];
    if (report->mode == CHEX_MODE_JOB)
        printf("\n");
    for (int k = 0; k < report->ranks; k++)
        if (report->records[k].line[0])
            printf("%s\n", chex_text_printable(report->records[k].line, line, sizeof line));
    printf("\n");
}

static void print_sum(const struct chex_check_report *report, const int counts[4], bool whole) {
    const int ranks = report->records[0].size, nodes = report->records[0].nodes;
    printf("%s: %d passed, %d warned, %d failed, %d skipped; %d rank%s on %d node%s%s\n",
           counts[CHEX_FAIL] ? "not fit to train" : "fit to train", counts[CHEX_PASS],
           counts[CHEX_WARN], counts[CHEX_FAIL], counts[CHEX_SKIP], ranks, ranks == 1 ? "" : "s",
           nodes, nodes == 1 ? "" : "s", whole ? "" : " (-v shows each check)");
}

/* whole: prints every check and every rank; else only checks that warn or fail. */
static void print_table(const struct chex_check_report *report, bool whole) {
    const bool tty = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    const enum chex_verdict min = whole ? CHEX_PASS : CHEX_WARN;
    int width = 5, counts[4] = {0};
    for (size_t i = 0; i < report->count; i++) {
        counts[report->merged[i].verdict]++;
        if (report->merged[i].verdict >= min && (int)strlen(report->checks[i]->name) > width)
            width = (int)strlen(report->checks[i]->name);
    }
    if (whole || counts[CHEX_WARN] + counts[CHEX_FAIL] > 0)
        printf("%-*s  %-7s  %s\n", width, "check", "verdict", "found");
    for (size_t i = 0; i < report->count; i++)
        if (report->merged[i].verdict >= min)
            print_check(report->checks[i], &report->merged[i], width, tty);
    if (whole)
        print_ranks(report);
    print_sum(report, counts, whole);
}

static enum chex_status print_json(const struct chex_check_report *report, struct chex_error *err) {
    char *text = chex_check_json(report);
    if (!text)
        return chex_error_memory(err, NULL);
    fputs(text, stdout);
    free(text);
    return CHEX_OK;
}

/* True on the process that prints: rank 0. If the launch failed, each process has rank 0, so the
 * rank in the environment decides. */
static bool is_reporter(const struct chex_launch *launch, bool launched) {
    return launch->rank == 0 && (launched || chex_launch_env_rank() == 0);
}

static enum chex_status print_report(const struct settings *s,
                                     const struct chex_check_report *report,
                                     struct chex_error *err) {
    if (s->common.json)
        CHEX_TRY(print_json(report, err));
    else
        print_table(report, s->common.log_level >= CHEX_LOG_DEBUG);
    return chex_fs_flush_stdout(err);
}

/* --metrics and --history. */
static enum chex_status publish(const struct settings *s, const char *host,
                                const struct chex_check_report *report, struct chex_error *err) {
    if (s->metrics)
        CHEX_TRY(chex_check_metrics_write(s->metrics, report, host, err));
    return s->history ? chex_check_history_append(s->history, report, host, err) : CHEX_OK;
}

static enum chex_status record(const struct settings *s, const struct chex_check_report *report,
                               const struct chex_check_context *context, struct chex_error *err) {
    char names[512];
    CHEX_TRY(chex_fs_make_folder_of(s->record, err));
    CHEX_TRY(chex_check_expected_write(s->record, report, context, err));
    chex_check_disturbed(report, names, sizeof names);
    if (names[0])
        chex_warn("--record %s: others used the node while %s were measured: the limits are marked "
                  "as disturbed and are too weak; record them again on an idle node",
                  s->record, names);
    return CHEX_OK;
}

/* In the prolog a failed write of the table or file (full disk, closed stdout) is a mistake of the
 * site, as in after_usage. It becomes a warning, and the status of the checks stays. */
static enum chex_status after_writing(const struct settings *s, enum chex_status st,
                                      struct chex_error *err) {
    if (st == CHEX_OK || !chex_check_of_node(s->mode))
        return st;
    chex_warn("%s", err->text);
    *err = (struct chex_error){0};
    return CHEX_OK;
}

/* Errors of --record that must be found before the measurements. */
static enum chex_status check_record(const struct settings *s, struct chex_error *err) {
    struct chex_check_expected *before = NULL;
    CHEX_TRY(chex_fs_check_create(s->record, err));
    if (chex_fs_exists(s->record) &&
        chex_check_expected_read(s->record, NULL, &before, NULL) == CHEX_E_USAGE)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--record %s: a file of that name is there and holds no "
                              "expectations: name another one",
                              s->record);
    chex_check_expected_destroy(before);
    return CHEX_OK;
}

/* Prepares one rank; not collective. reporter: is_reporter() of this process. */
static enum chex_status prepare(const struct settings *s, const struct chex_launch *launch,
                                bool reporter, struct chex_check_context *context,
                                struct chex_binding *binding, struct chex_check_expected **expected,
                                struct chex_error *err) {
    if (s->root && !chex_fs_is_dir(chex_path(s->root, "proc").text))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--root %s: no recording of a node (no folder proc in it)", s->root);
    if (s->expect)
        CHEX_TRY(chex_check_expected_read(s->expect, s->root ? s->root : "", expected, err));
    context->expected = *expected;
    if (s->record && reporter && !chex_check_of_node(s->mode))
        CHEX_TRY(check_record(s, err));
    const char *const files[] = {s->metrics, s->history};
    for (int i = 0; i < 2 && reporter && !chex_check_of_node(s->mode); i++)
        if (files[i]) {
            CHEX_TRY(chex_fs_check_create(files[i], err));
            CHEX_TRY(chex_fs_make_folder_of(files[i], err));
        }
    if (context->mode == CHEX_MODE_JOB) {
        CHEX_TRY(chex_bind(launch, binding, err));
        context->binding = binding;
    }
    return CHEX_OK;
}

static void warn_of_unused(const struct settings *s) {
    if (s->level == 1 && s->data)
        chex_warn("--data: level 1 reads and writes nothing: say --level 2");
    else if (s->level == 1 && s->output)
        chex_warn("--output: level 1 compares the folder between nodes and writes nothing: say "
                  "--level 2");
}

static void warn_of_left_out(const struct settings *s, const struct chex_check_expected *expected,
                             const struct chex_check_report *report) {
    char names[512], more[48] = "";
    const int level = chex_check_expected_left_out(expected, report, names, sizeof names);
    if (level > s->level)
        snprintf(more, sizeof more, "; --level %d measures them", level);
    if (names[0])
        chex_warn("expectations %s: not measured, so not compared: %s%s", s->expect, names, more);
    chex_check_expected_weak(expected, names, sizeof names);
    if (names[0])
        chex_warn("expectations %s: recorded while others used the node, so the limits are weak: "
                  "%s",
                  s->expect, names);
}

/* After ranks were lost: the table names their nodes, and the fault is the nodes', or it is unknown
 * (CHEX_E_LOST). The other ranks wait for the rank that prints, because an abort of one ends all.
 */
static enum chex_status blame_lost(const struct settings *s, const struct chex_launch *launch,
                                   struct chex_check_report *report, struct chex_error *err) {
    bool speaks;
    struct chex_error ignored = {0};
    if (chex_check_lost(launch, err->text, report, &speaks, &ignored) != CHEX_OK)
        return CHEX_E_LOST;
    if (speaks) {
        chex_err("%s", err->text);
        (void)print_report(s, report, &ignored);
        if (publish(s, launch->host, report, &ignored) != CHEX_OK)
            chex_warn("%s", ignored.text);
    } else {
        sleep(10);
    }
    *err = (struct chex_error){0};
    return chex_check_status(report);
}

static enum chex_status check_all(const struct settings *s, struct chex_group *group,
                                  struct chex_check_context *context, bool reporter, bool *hung_out,
                                  struct chex_error *err) {
    static struct chex_check_expected *expected; /* never freed: a hanging probe may read it */
    struct chex_check_report result = {0};
    struct chex_binding binding;
    enum chex_status st = prepare(s, context->launch, reporter, context, &binding, &expected, err);
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK && reporter)
        warn_of_unused(s);
    if (st == CHEX_OK)
        st = chex_check_run(NULL, context, s->timeout_ms, group, &result, err);
    if (st == CHEX_E_LOST)
        st = blame_lost(s, context->launch, &result, err);
    if (st == CHEX_OK && reporter && expected)
        warn_of_left_out(s, expected, &result);
    if (st == CHEX_OK && reporter)
        st = after_writing(s, print_report(s, &result, err), err);
    if (st == CHEX_OK && reporter)
        st = after_writing(s, publish(s, context->launch->host, &result, err), err);
    if (st == CHEX_OK && s->record && reporter)
        st = after_writing(s, record(s, &result, context, err), err);
    if (st == CHEX_OK)
        st = chex_check_status(&result);
    if (st != CHEX_OK && err->text[0] == '\0' && !s->common.json && reporter)
        chex_info("%s", chex_status_text(st));
    *hung_out = result.hung;
    chex_check_report_release(&result);
    return st;
}

/* After a check has hung: threads hang in collective calls, so the ranks cannot end normally. Waits
 * until rank 0 has printed, then aborts the job. */
static void end_hung(struct chex_launch *launch, struct chex_group *group, enum chex_status st) {
    struct chex_error err = {0};
    const char mine = 0;
    group->wait_ms = 10000;
    (void)chex_group_exchange(group, "check-end", &mine, 1, &err);
    chex_launch_abort(launch, st);
}

/* Checks, prints and ends the launch. An error that all ranks have is printed once. */
static enum chex_status run_group(const struct settings *s, struct chex_launch *launch,
                                  struct chex_check_context *context, bool reporter,
                                  struct chex_error *err) {
    struct chex_group *group = NULL;
    bool hung = false;
    /* A rank with a hanging check comes up to the time-out late, and ranks may start late. */
    enum chex_status st = chex_group_of_launch(launch, s->timeout_ms + 10000, &group, err);
    if (st == CHEX_OK)
        st = check_all(s, group, context, reporter, &hung, err);
    const bool alone = !group || group->broken; /* other ranks may wait for this one */
    if (err->text[0] && (reporter || alone || group->size == 1))
        chex_err("%s", err->text);
    err->text[0] = '\0';
    if (alone)
        chex_launch_abort(launch, st);
    if (hung)
        end_hung(launch, group, st);
    chex_group_destroy(group);
    return st;
}

static enum chex_status run(const struct settings *s, struct chex_error *err) {
    struct chex_launch launch;
    struct chex_error launch_error = {0};
    struct chex_check_context context = {.mode = s->mode,
                                         .launch = &launch,
                                         .level = (int)s->level,
                                         .root = s->root,
                                         .data = s->data,
                                         .output = s->output};
    bool launched = false;
    if (s->mode == CHEX_MODE_JOB) {
        launched = chex_launch_init(&launch, &launch_error) == CHEX_OK;
        if (!launched)
            context.launch_error = &launch_error;
    }
    if (!launched)
        (void)chex_launch_init_alone(&launch, NULL); /* never fails */
    chex_log_set_level((enum chex_log_level)s->common.log_level);
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    const bool reporter = is_reporter(&launch, launched);
    context.show_progress = s->level > 1 && reporter && s->common.log_level >= CHEX_LOG_INFO;
    chex_gpu_view(&context.gpu);
    char host[sizeof launch.host];
    if (s->root && chex_fs_line(s->root, "proc/sys/kernel/hostname", "", host, sizeof host))
        memcpy(launch.host, host, sizeof host);
    const enum chex_status st = run_group(s, &launch, &context, reporter, err);
    if (launched)
        chex_launch_finish(&launch);
    return st;
}

/* True if --mode or CHEX_MODE is prolog or health. Looks before the options are parsed, because
 * parsing reads CHEX_* variables. */
static bool asked_for_prolog(int argc, char **argv) {
    const char *mode = getenv("CHEX_MODE");
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--mode=", 7) == 0)
            mode = argv[i] + 7;
        else if (strcmp(argv[i], "--mode") == 0 && i + 1 < argc)
            mode = argv[++i];
    return mode && (strcmp(mode, chex_check_mode_names[CHEX_MODE_PROLOG]) == 0 ||
                    strcmp(mode, chex_check_mode_names[CHEX_MODE_HEALTH]) == 0);
}

/* Slurm names the script that it runs: prolog_slurmd, epilog_slurmd and others. */
static bool is_root_in_prolog(void) {
    const char *script = getenv("SLURM_SCRIPT_CONTEXT");
    return geteuid() == 0 && script &&
           (strncmp(script, "prolog_", 7) == 0 || strncmp(script, "epilog_", 7) == 0);
}

/* Removes all CHEX_* variables: a user may have set them, and they choose options, files and
 * libraries. Keeps CHEX_MODE=prolog and health, which only restrict. `names` gets the removed
 * names. */
static void drop_variables(bool prolog, char *names, size_t size) {
    static const char prefix[] = "CHEX_";
    char name[128];
    struct chex_text_line line = {names, size, 0};
    names[0] = '\0';
    for (char **e = environ; *e;) {
        const size_t n = strcspn(*e, "=");
        if (strncmp(*e, prefix, sizeof prefix - 1) != 0 || n >= sizeof name ||
            (prolog &&
             (strcmp(*e, "CHEX_MODE=prolog") == 0 || strcmp(*e, "CHEX_MODE=health") == 0))) {
            e++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)n, *e);
        chex_text_append(&line, "%s%s", names[0] ? ", " : "", name);
        unsetenv(name);
        e = environ; /* unsetenv moves the others */
    }
}

/* Parses the options. As root in a prolog no environment variable may choose what is read, written
 * or loaded. If a --config file sets mode = prolog, the variables are dropped and the options are
 * parsed again. */
static enum chex_status parse(int argc, char **argv, struct settings *s, struct chex_opt_set **set,
                              bool *prolog, struct chex_error *err) {
    char dropped[512] = "";
    *prolog = asked_for_prolog(argc, argv);
    bool locked = *prolog || is_root_in_prolog();
    if (locked)
        drop_variables(*prolog, dropped, sizeof dropped);
    enum chex_status st = chex_opt_parse(&program, argc, argv, s, sizeof *s, set, err);
    if (st == CHEX_OK && !locked && chex_check_of_node(s->mode)) {
        drop_variables(true, dropped, sizeof dropped);
        chex_opt_destroy(*set);
        *set = NULL;
        st = chex_opt_parse(&program, argc, argv, s, sizeof *s, set, err);
    }
    if (st != CHEX_OK)
        return st;
    *prolog = chex_check_of_node(s->mode);
    chex_log_set_level((enum chex_log_level)s->common.log_level);
    if (dropped[0])
        chex_debug("prolog: ignored from the environment: %s", dropped);
    return CHEX_OK;
}

/* A wrong option or file in the prolog's command line must not drain every node that starts a job.
 */
static enum chex_status after_usage(enum chex_status st, bool prolog) {
    if (st != CHEX_E_USAGE || !prolog)
        return st;
    chex_warn("nothing was checked; the exit status is 0, because another would drain this node");
    return CHEX_OK;
}

static enum chex_status carry_out(const struct settings *s, const struct chex_opt_set *set,
                                  struct chex_error *err) {
    if (chex_opt_inform(set, s, chex_data_libraries))
        return chex_fs_flush_stdout(err);
    CHEX_TRY(chex_opt_check_words(set, err));
    return run(s, err);
}

/* Default --timeout from level 2 on, except in the prolog: GPU libraries start slowly. */
static const uint64_t measuring_ms = 120000;

int main(int argc, char **argv) {
    preempt_ignore();
    struct settings s;
    struct chex_opt_set *set = NULL;
    struct chex_error err = {0};
    bool prolog;
    chex_log_init("chex-env", CHEX_LOG_INFO);
    enum chex_status st = parse(argc, argv, &s, &set, &prolog, &err);
    if (st == CHEX_OK && s.level > 1 && !prolog &&
        chex_opt_origin(set, "timeout") == CHEX_FROM_DEFAULT)
        s.timeout_ms = measuring_ms;
    if (st == CHEX_OK)
        st = carry_out(&s, set, &err);
    if (err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return (int)command_report_end(after_usage(st, prolog));
}

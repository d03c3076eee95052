/* SPDX-License-Identifier: Apache-2.0
 *
 * Files for Prometheus, read back by the rules of the text exposition format, and histories that
 * several processes write.
 */
#include <ctype.h>
#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/text.h"
#include "check/check.h"
#include "dir.h"
#include "report/prometheus.h"
#include "tap.h"

static struct chex_error err;

static const char *skip_name(const char *c) {
    if (isalpha((unsigned char)*c) || *c == '_')
        while (isalnum((unsigned char)*c) || *c == '_' || *c == ':')
            c++;
    return c;
}

/* Past NAME="VALUE". NULL: it is none. */
static const char *skip_label(const char *c) {
    const char *end = skip_name(c);
    if (end == c || end[0] != '=' || end[1] != '"')
        return NULL;
    for (c = end + 2; *c && *c != '"'; c++)
        if (*c == '\\' && !strchr("\\\"n", *++c))
            return NULL;
    return *c == '"' ? c + 1 : NULL;
}

/* Whether the line is NAME{LABELS} VALUE, without a time after it. */
static bool is_sample(const char *line, const char *name) {
    const size_t n = strlen(name);
    char *end;
    if (strncmp(line, name, n) != 0 || line[n] != '{')
        return false;
    const char *c = line + n + 1;
    while (*c != '}') {
        if (!(c = skip_label(c)))
            return false;
        c += *c == ',';
    }
    if (c[1] != ' ')
        return false;
    (void)strtod(c + 2, &end);
    return end > c + 2 && *end == '\0';
}

/* Checks a file: HELP and TYPE once before the samples of a metric, no sample twice, names with the
 * prefix, counters that end in _total. Returns the number of samples; -1: a fault, which is
 * printed.
 */
static int samples_of(const char *path) {
    enum { MOST = 4096 };
    static char *seen[MOST];
    char *text = NULL, *rest, name[128] = "", type[16] = "";
    size_t bytes = 0;
    int count = 0, samples = 0;
    const char *fault = NULL, *line = "";
    BAIL_UNLESS(chex_fs_read(path, 1 << 20, &text, &bytes, &err) == CHEX_OK, "%s", err.text);
    fault = bytes == 0 || text[bytes - 1] != '\n' ? "no line feed at the end" : NULL;
    for (rest = text; !fault && (line = strsep(&rest, "\n")) && rest;) {
        const bool help = strncmp(line, "# HELP ", 7) == 0;
        for (int i = 0; i < count && !fault; i++)
            fault = strncmp(seen[i], line, strlen(seen[i])) == 0 ? "twice" : NULL;
        if (help) {
            snprintf(name, sizeof name, "%.*s", (int)strcspn(line + 7, " "), line + 7);
            type[0] = '\0';
            seen[count++] = chex_fs_format("# HELP %s ", name);
            fault = fault                               ? fault
                    : *skip_name(name)                  ? "a bad name"
                    : strncmp(name, "chexnet_", 8) != 0 ? "no prefix"
                                                        : NULL;
        } else if (line[0] == '#') {
            if (sscanf(line, "# TYPE %*s %15s", type) != 1 || !strstr(line, name))
                fault = "no TYPE of the same metric";
            else if ((strcmp(type, "counter") == 0) != chex_text_ends_with(name, "_total"))
                fault = "only counters end in _total";
        } else if (!type[0] || !is_sample(line, name)) {
            fault = "no sample of the metric before it";
        } else {
            seen[count++] = chex_fs_format("%.*s ", (int)(strrchr(line, '}') + 1 - line), line);
            samples++;
        }
    }
    if (fault)
        printf("# %s: %s: %s\n", path, fault, line);
    while (count)
        free(seen[--count]);
    free(text);
    return fault ? -1 : samples;
}

static void test_file(void) {
    const char *path = dir_path("a.prom");
    struct chex_prometheus p;
    struct stat info;
    char *text = NULL;
    setenv("SLURM_JOB_ID", "17", 1);
    chex_prometheus_begin(&p, "n\"1\\\n\xff", "a folder {of} runs, \xc3\xa4");
    chex_prometheus_add(&p, "gauge", "chexnet_a", "One.", NULL, 1.5);
    chex_prometheus_add(&p, "counter", "chexnet_b_total", "Two.", "0", 1e300);
    chex_prometheus_add(&p, NULL, "chexnet_b_total", NULL, "1", NAN);
    unsetenv("SLURM_JOB_ID");
    const mode_t before = umask(077);
    OK_CALL(chex_prometheus_write(&p, path, &err));
    umask(before);
    OK(samples_of(path) == 3, "three samples are read back");
    OK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0644, "all users can read the file");
    OK_CALL(chex_fs_read(path, 1 << 20, &text, NULL, &err));
    OK(strstr(text, "chexnet_a{host=\"n\\\"1\\\\\\\\x0A\\\\xFF\",slurm_job=\"17\","
                    "run=\"a folder {of} runs, \xc3\xa4\"} 1.5\n"),
       "labels are escaped");
    free(text);
    chex_prometheus_begin(&p, "n1", NULL);
    OK_STATUS(chex_prometheus_write(&p, dir_path("none/a.prom"), &err), CHEX_E_ENV, err,
              "none/a.prom");
}

/* All checks of chex-env with all of their figures. */
static struct chex_check_result merged[128];
static struct chex_check_record record = {.size = 2, .nodes = 1};
static struct chex_check_report report = {
    .checks = chex_checks, .merged = merged, .records = &record};

static void test_checks(void) {
    const char *path = dir_path("env.prom");
    int figures = 0;
    for (; chex_checks[report.count]; report.count++)
        for (int k = 0; chex_checks[report.count]->figures[k].key; k++, figures++)
            merged[report.count].figures[k] = 2;
    OK_CALL(chex_check_metrics_write(path, &report, "n1", &err));
    OK(samples_of(path) == 2 + (int)report.count + figures,
       "each check has a verdict, and each of %d figures a metric in base units", figures);
    const struct chex_check *lost[] = {chex_checks[0], chex_checks[0]};
    struct chex_check_report two = report;
    two.checks = lost;
    two.count = 2;
    OK_CALL(chex_check_metrics_write(path, &two, "n1", &err));
    OK(samples_of(path) == 3, "rows of the same check are one sample");
}

static void test_history(void) {
    enum { WRITERS = 6, LINES = 100 };
    const char *path = dir_path("history.jsonl");
    char *all = NULL, *line, *rest;
    int whole = 0, status = 0, failed = 0;
    for (int w = 0; w < WRITERS; w++)
        if (fork() == 0) {
            for (int i = 0; i < LINES; i++, report.count = 1 + (report.count * 7) % 50)
                if (chex_check_history_append(path, &report, "n1", &err) != CHEX_OK)
                    _exit(1);
            _exit(0);
        }
    while (wait(&status) > 0)
        failed += status != 0;
    OK_CALL(chex_fs_read(path, 1 << 24, &all, NULL, &err));
    for (rest = all; (line = strsep(&rest, "\n")) && rest;) {
        json_t *o = json_loads(line, 0, NULL);
        whole += json_is_array(json_object_get(o, "checks"));
        json_decref(o);
    }
    free(all);
    OK(!failed && whole == WRITERS * LINES, "lines of several writers stay whole: %d", whole);
    struct stat before, after;
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    stat(path, &before);
    const struct rlimit full = {(rlim_t)before.st_size + 5, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &full);
    const enum chex_status st = chex_check_history_append(path, &report, "n1", &err);
    setrlimit(RLIMIT_FSIZE, &none);
    stat(path, &after);
    OK(st == CHEX_E_RESOURCE && before.st_size == after.st_size,
       "a line that does not fit leaves no part of it: %s", err.text);
}

int main(void) {
    dir_make();
    test_file();
    test_checks();
    test_history();
    dir_remove();
    return tap_done();
}

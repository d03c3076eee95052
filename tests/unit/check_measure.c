/* SPDX-License-Identifier: Apache-2.0
 *
 * What levels 2 and 3 of the preflight are made of: the rule that names a slow node, figures across
 * ranks that are only pretended, limits of figures, the kernel's counts, and the measurements, of
 * which only that they give a positive figure is asked.
 */
#include <fcntl.h>
#include <jansson.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "check/checks.h"
#include "check/compare.h"
#include "check/disturb.h"
#include "check/load.h"
#include "check/measure.h"
#include "check/outlier.h"
#include "check/prober.h"
#include "check/step.h"
#include "check/storage.h"
#include "check/throttling.h"
#include "tap.h"

static char scratch[] = "/tmp/chex-measure-XXXXXX";

/* ---- the rule ---- */

static struct chex_outlier found;
static bool find(const double *values, int n, bool lower_is_better) {
    found = (struct chex_outlier){.worst = -1};
    return chex_outlier_find(values, n, lower_is_better, &found);
}

static void test_rule(void) {
    const double even[] = {100, 98, 103, 101, 99}, slow[] = {100, 98, 60, 101, 99},
                 slightly[] = {100, 101, 85, 99, 100}, wide[] = {100, 70, 130, 85, 115},
                 times[] = {1, 1.02, 2, 0.99}, pair[] = {100, 60}, near[] = {100, 95},
                 three[] = {100, 95, 60}, halves[] = {100, 100, 60, 60}, equal[] = {5, 5, 5},
                 several[] = {100, 100, 100, 100, 100, 50, 40};
    OK(!find(even, 5, false), "a few per cent are noise");
    OK(find(slow, 5, false) && found.worst == 2 && found.count == 1 && found.far, "a slow one");
    OK(fabs(found.median - 99) < 1e-9 && fabs(found.percent - 100 * 39 / 99.0) < 1e-9,
       "how far: %.1f %% below %.1f", found.percent, found.median);
    OK(find(slightly, 5, false) && found.worst == 2 && !found.far,
       "15 %% are slow, not much slower");
    OK(!find(wide, 5, false), "if all scatter, no rank is named");
    OK(find(times, 4, true) && found.worst == 2 && found.far, "of times the long one");
    OK(fabs(found.median - 1.01) < 0.01, "held against a time: %.3f", found.median);
    OK(find(pair, 2, false) && found.worst == 1 && !found.far && found.median == 100,
       "of two the slower, never far");
    OK(!find(near, 2, false), "two that are near");
    OK(find(three, 3, false) && found.worst == 2 && found.far, "of three");
    OK(!find(halves, 4, false), "no majority, no outlier");
    OK(!find(equal, 3, false), "equal ones");
    OK(find(several, 7, false) && found.worst == 6 && found.count == 2, "the worst of two");
    OK(!find(slow, 1, false) && !find(slow, 0, false), "one alone is not slow");
}

/* ---- figures across ranks ---- */

enum { RANKS = 8 };
static struct chex_check_record records[RANKS];
static struct chex_check_result answers[RANKS];
static const struct chex_check_result *all[RANKS];

static const struct chex_check rated = {
    .name = "rated",
    .question = "?",
    .modes = CHEX_IN_ALL,
    .fault = CHEX_FAULT_NODE,
    .figures = {{.key = "gb_per_s", .unit = "GB/s", .compared = true},
                {.key = "wait_ms",
                 .unit = "ms",
                 .lower_is_better = true,
                 .compared = true,
                 .warn_only = true}}};

static void fill(int per_node, const double *values) {
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < RANKS; i++) {
        records[i] = (struct chex_check_record){.rank = i,
                                                .size = RANKS,
                                                .local_rank = i % per_node,
                                                .local_size = per_node,
                                                .node = i / per_node,
                                                .nodes = RANKS / per_node};
        snprintf(records[i].host, sizeof records[i].host, "n%d", i / per_node);
        snprintf(records[i].cpus, sizeof records[i].cpus, "%d", i % per_node);
        answers[i].fault = CHEX_FAULT_NODE;
        answers[i].figures[0] = values[i];
        snprintf(answers[i].found, sizeof answers[i].found, "rank 0's");
        all[i] = &answers[i];
    }
}

static struct chex_check_result compare(void) {
    struct chex_check_result merged = answers[0];
    chex_check_compare(&rated, records, all, RANKS, &merged);
    return merged;
}

static void test_compare(void) {
    const double even[] = {50, 51, 49, 50, 52, 50, 49, 50},
                 slow[] = {50, 51, 49, 50, 20, 50, 49, 50};
    fill(2, even);
    struct chex_check_result r = compare();
    OK(r.verdict == CHEX_PASS && strstr(r.found, "of all ranks 49 to 52 GB/s, worst rank 2 (n1)"),
       "even ranks pass: %s", r.found);
    fill(2, slow);
    r = compare();
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE &&
           strstr(r.found, "rank 4 (n2): 20 GB/s, 59 % slower than the median of 4 nodes, 49"),
       "the node of a slow rank is named: %s", r.found);
    OK(strstr(r.remedy, "--exclude=n2") &&
           strstr(r.remedy, "scontrol update nodename=n2 state=drain reason=\"chex-env rated\""),
       "with the words for an administrator: %s", r.remedy);
    snprintf(records[4].cpus, sizeof records[4].cpus, "1-3");
    r = compare();
    OK(r.verdict == CHEX_WARN && r.fault == CHEX_FAULT_USER && strstr(r.remedy, "--cpu-bind"),
       "a rank that shares its CPUs is no fault of its node: %s", r.remedy);
    fill(2, slow);
    snprintf(answers[4].disturbed, sizeof answers[4].disturbed, "others took half");
    r = compare();
    OK(r.verdict == CHEX_WARN && r.fault == CHEX_FAULT_USER &&
           strstr(r.remedy, "others took half meanwhile"),
       "nor is a rank that others disturbed: %s", r.remedy);
    fill(8, slow);
    r = compare();
    OK(r.verdict == CHEX_FAIL && strstr(r.found, "median of 8 ranks"), "on one node, ranks: %s",
       r.found);
    fill(4, slow);
    r = compare();
    OK(r.verdict == CHEX_WARN && strstr(r.found, "slower than the better of 2 nodes"),
       "of two nodes the slower is a warning: %s", r.found);
    fill(2, slow);
    answers[4].kind = answers[5].kind = 7;
    r = compare();
    OK(r.verdict == CHEX_PASS, "another kind of node is not held against the rest: %s", r.found);
    fill(2, even);
    for (int i = 0; i < RANKS; i++)
        answers[i].figures[1] = i == 6 ? 9 : 1;
    r = compare();
    OK(r.verdict == CHEX_WARN && strstr(r.found, "rank 6 (n3): 9 ms"),
       "a warn_only figure never fails: %s", r.found);
    fill(2, even);
    answers[3].figures[0] = 0;
    r = compare();
    OK(r.verdict == CHEX_PASS, "what was not measured is not slow");
    int who = -1;
    OK(chex_check_worst(&rated.figures[0], 0, all, RANKS, &who) == 49 && who == 2,
       "the worst rate");
}

/* ---- limits ---- */

static void write_text(const char *path, const char *text) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_write(path, text, strlen(text), &err) == CHEX_OK, "%s", err.text);
}

/* An answer of memory-rate, compared with the values of a file. */
static struct chex_check_result limited(const char *text, double value, double spread,
                                        const char *disturbed) {
    struct chex_check_expected *e = NULL;
    struct chex_error err = {0};
    struct chex_check_result r = {.fault = CHEX_FAULT_NODE, .figures = {value}, .spread = {spread}};
    char *path = chex_fs_join(scratch, "limits.json");
    snprintf(r.disturbed, sizeof r.disturbed, "%s", disturbed);
    write_text(path, text);
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_OK, err, NULL);
    chex_check_expected_apply(e, &chex_check_memory_rate, &r);
    chex_check_expected_destroy(e);
    free(path);
    return r;
}

static void test_limits(void) {
    char *path = chex_fs_join(scratch, "want.json");
    struct chex_check_expected *e = NULL;
    struct chex_error err = {0};
    struct chex_check_result r = limited("{\"memory-rate\": {\"gb_per_s\": 40}}", 41, 0, "");
    OK(r.verdict == CHEX_PASS, "above the least");
    r = limited("{\"memory-rate\": {\"gb_per_s\": 40.5}}", 39, 0, "");
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE &&
           strstr(r.expected, "gb_per_s 40.5 GB/s or more (from "),
       "below it: %s", r.expected);
    r = limited("{\"memory-rate\": {\"gb_per_s\": 40}}", 0, 0, "");
    OK(r.verdict == CHEX_PASS, "not measured, not judged");
    write_text(path, "{\"memory-rate\": {\"gb_per_h\": 40}}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err,
              "'gb_per_h' is not a figure of 'memory-rate'");
    write_text(path, "{\"memory-rate\": {\"gb_per_s\": \"40\"}}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err, "a number above 0");
    write_text(path, "{\"hdf5\": {\"gb_per_s\": 40}}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err,
              "value of 'hdf5': expected a text");

    free(path);
}

static double number_of(const json_t *limits, const char *figure, const char *key) {
    return json_number_value(json_object_get(json_object_get(limits, figure), key));
}

/* A margin is the figure's own, or four spreads of its measurement. */
static void test_margin(void) {
    const struct chex_check *checks[] = {&chex_check_memory_rate, &chex_check_step_rate,
                                         &chex_check_tmpdir_rate};
    struct chex_check_result merged[] = {{.figures = {100}, .spread = {0.01}},
                                         {.figures = {100}, .spread = {0.06}},
                                         {.figures = {100, 1}, .spread = {5, 0.16}}};
    struct chex_check_report report = {
        .checks = checks, .count = 3, .merged = merged, .all = merged};
    const struct chex_launch launch = {.host = "n0"};
    const struct chex_check_context c = {.launch = &launch};
    struct chex_error err = {0};
    struct chex_check_expected *e = NULL;
    char names[64], *path = chex_fs_join(scratch, "margin.json");
    snprintf(merged[1].disturbed, sizeof merged[1].disturbed, "others");
    OK_STATUS(chex_check_expected_write(path, &report, &c, &err), CHEX_OK, err, NULL);
    json_t *top = json_load_file(path, 0, NULL), *steady = json_object_get(top, "memory-rate"),
           *noisy = json_object_get(top, "step-rate"), *wild = json_object_get(top, "tmpdir-rate");
    OK(number_of(steady, "gb_per_s", "limit") == 90, "a steady rate has a margin of a tenth");
    OK(number_of(noisy, "images_per_s", "limit") == 76, "a noisy one of four spreads");
    OK(number_of(noisy, "images_per_s", "spread") == 0.06, "which the file keeps");
    OK(number_of(wild, "mb_per_s", "limit") == 20, "but a fifth is always expected");
    OK(number_of(wild, "fsync_ms", "limit") == 2.78, "a noisy time has a margin of four spreads");
    OK(json_is_true(json_object_get(json_object_get(noisy, "images_per_s"), "disturbed")) &&
           !json_object_get(json_object_get(steady, "gb_per_s"), "disturbed"),
       "a disturbed figure is marked");
    json_decref(top);
    chex_check_disturbed(&report, names, sizeof names);
    OK(strcmp(names, "step-rate") == 0, "and named: %s", names);
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_OK, err, NULL);
    chex_check_expected_weak(e, names, sizeof names);
    OK(strcmp(names, "step-rate") == 0, "also when the file is read: %s", names);
    chex_check_expected_destroy(e);
    free(path);
}

/* One figure below its limit, on a rank that others disturbed or whose measurement scatters. */
static struct chex_check_result below(const char *disturbed, double value, double spread) {
    return limited("{\"memory-rate\": {\"gb_per_s\": {\"limit\": 40, \"spread\": 0.01}}}", value,
                   spread, disturbed);
}

static void test_blame(void) {
    struct chex_check_result r = below("", 20, 0.01);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE, "a node that is slow by itself fails");
    r = below("other processes used 1.9 of the node's 2 CPUs", 20, 0.01);
    OK(r.verdict == CHEX_WARN && r.fault == CHEX_FAULT_USER &&
           strstr(r.remedy, "used 1.9 of the node's 2 CPUs meanwhile: measure again"),
       "one that was used by others is not blamed: %s", r.remedy);
    r = below("", 38, 0.02);
    OK(r.verdict == CHEX_WARN && strstr(r.remedy, "varies by 2 %"),
       "nor one whose figure is within the noise: %s", r.remedy);
    r = below("", 30, 0.02);
    OK(r.verdict == CHEX_FAIL, "noise excuses no more than its size");
}

static void test_record(void) {
    const struct chex_check *checks[] = {&chex_check_hdf5, &chex_check_tmpdir_rate,
                                         &chex_check_memory_rate};
    struct chex_check_result merged[] = {
        {0}, {.figures = {200, 2}}, {.verdict = CHEX_FAIL, .figures = {1}}};
    struct chex_check_report report = {
        .checks = checks, .count = 3, .merged = merged, .all = merged};
    const struct chex_launch launch = {.host = "n0"};
    const struct chex_check_context c = {.launch = &launch};
    struct chex_error err = {0};
    struct chex_check_expected *e = NULL;
    char *path = chex_fs_join(scratch, "record.json");
    OK_STATUS(chex_check_expected_write(path, &report, &c, &err), CHEX_OK, err, NULL);
    json_t *top = json_load_file(path, 0, NULL), *limits = json_object_get(top, "tmpdir-rate");
    OK(json_object_size(top) == 1, "what was measured and did not fail is recorded");
    OK(number_of(limits, "mb_per_s", "limit") == 140 &&
           number_of(limits, "mb_per_s", "measured") == 200,
       "a rate of a file system by three tenths worse");
    OK(number_of(limits, "fsync_ms", "limit") == 4, "a time that does not vary by a factor of two");
    json_decref(top);
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_OK, err, NULL);
    struct chex_check_result r = merged[1];
    chex_check_expected_apply(e, &chex_check_tmpdir_rate, &r);
    OK(r.verdict == CHEX_PASS, "the same node passes");
    r.figures[1] = 3;
    chex_check_expected_apply(e, &chex_check_tmpdir_rate, &r);
    OK(r.verdict == CHEX_PASS, "a time varies more than a rate");
    r.figures[1] = 5;
    chex_check_expected_apply(e, &chex_check_tmpdir_rate, &r);
    OK(r.verdict == CHEX_FAIL && strstr(r.expected, "fsync_ms 4 ms or less"), "a time too long: %s",
       r.expected);
    chex_check_expected_destroy(e);
    report.count = 1;
    unlink(path);
    OK_STATUS(chex_check_expected_write(path, &report, &c, &err), CHEX_E_USAGE, err,
              "nothing was measured");
    OK(!chex_fs_exists(path), "and nothing is written");
    free(path);
}

/* ---- bits ---- */

static struct chex_check_result bits(const char *const *texts) {
    struct chex_check_result merged = {.fault = CHEX_FAULT_NODE};
    memset(answers, 0, sizeof answers);
    for (int i = 0; i < 4; i++) {
        snprintf(answers[i].found, sizeof answers[i].found, "%s", texts[i]);
        all[i] = &answers[i];
    }
    merged = answers[0];
    chex_check_step_bits.across(records, all, 4, &merged);
    return merged;
}

static void test_bits(void) {
    const double any[RANKS] = {0};
    fill(2, any);
    const char *const same[] = {"cpu a, fp32: 1", "cpu a, fp32: 1", "cpu a, fp32: 1",
                                "cpu a, fp32: 1"},
                      *const mixed[] = {"cpu a, fp32: 1", "cpu b, fp32: 2", "cpu a, fp32: 1",
                                        "cpu b, fp32: 2"},
                      *const odd[] = {"cpu a, fp32: 3", "cpu a, fp32: 1", "cpu a, fp32: 1",
                                      "cpu a, fp32: 1"},
                      *const late[] = {"cpu a, fp32: 1", "cpu b, fp32: 2", "cpu a, fp32: 4",
                                       "cpu a, fp32: 1"};
    struct chex_check_result r = bits(same);
    OK(r.verdict == CHEX_PASS, "the same bits everywhere");
    r = bits(mixed);
    OK(r.verdict == CHEX_PASS, "two kinds of processor may differ");
    r = bits(odd);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE &&
           strncmp(r.found, "rank 0 (n0): cpu a, fp32: 3,", 28) == 0,
       "the odd rank is named, though it is the first: %s", r.found);
    r = bits(late);
    OK(r.verdict == CHEX_FAIL && strncmp(r.found, "rank 2 (n1): cpu a, fp32: 4,", 28) == 0,
       "among another kind, too: %s", r.found);
}

/* The answer of the check to steps with this digest. */
static struct chex_check_result bits_of(const char *how, uint64_t digest) {
    struct chex_measure m = {.cpu_steps = {.repeats = 2, .digest = digest}};
    const struct chex_launch here = {.host = "n7"};
    const struct chex_check_context c = {.launch = &here, .measure = &m};
    struct chex_check_result r = {0};
    snprintf(m.cpu_steps.how, sizeof m.cpu_steps.how, "%s", how);
    chex_check_step_bits.probe(&c, &r);
    return r;
}

static struct chex_check_result expected_bits(const char *want, const char *text) {
    struct chex_check_result r = {.fault = CHEX_FAULT_NODE};
    struct chex_check_expected *e = NULL;
    struct chex_error err = {0};
    char *path = chex_fs_join(scratch, "bits.json");
    write_text(path, want);
    snprintf(r.found, sizeof r.found, "%s", text);
    OK_CALL(chex_check_expected_read(path, "", &e, &err));
    chex_check_expected_apply(e, &chex_check_step_bits, &r);
    chex_check_expected_destroy(e);
    free(path);
    return r;
}

static void test_known_bits(void) {
    static const char how[] = "cpu avx2, fp32";
    uint64_t known = 0;
    if (!chex_step_known_digest(how, &known)) {
        OK(strcmp(CHEX_STEP_ARCH, "x86-64 ") != 0, "this architecture has no digests");
        return;
    }
    OK(!chex_step_known_digest("cpu gener", &known) && !chex_step_known_digest("", &known) &&
           !chex_step_known_digest("#", &known),
       "other texts have none");
    OK(bits_of(how, known).verdict == CHEX_PASS, "a machine alone passes with that digest");
    struct chex_check_result r = bits_of(how, known + 1);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE &&
           strtoull(strrchr(r.found, ':') + 1, NULL, 16) == known + 1 &&
           strtoull(r.expected, NULL, 16) == known && strstr(r.remedy, "--exclude=n7"),
       "another one fails the node, with both digests: %s; %s", r.found, r.expected);
    r = bits_of("cpu new, fp32", 7);
    OK(r.verdict == CHEX_PASS &&
           strcmp(r.found, "cpu new, fp32, none on record: 0000000000000007") == 0,
       "a variant without a digest is stated: %s", r.found);
    struct chex_check_report report = {
        .checks = (const struct chex_check *[]){&chex_check_step_bits}, .count = 1, .merged = &r};
    struct chex_error err = {0};
    char *path = chex_fs_join(scratch, "digest.json"), *text = NULL;
    const struct chex_launch here = {0};
    const struct chex_check_context c = {.launch = &here};
    report.all = &r;
    OK_CALL(chex_check_expected_write(path, &report, &c, &err));
    OK_CALL(chex_fs_read(path, 1000, &text, NULL, &err));
    OK(strstr(text,
              "\"chexnet " CHEXNET_VERSION ", cpu new, fp32, none on record: 0000000000000007\""),
       "the digest is recorded with version and kind");
    OK(expected_bits(text, r.found).verdict == CHEX_PASS, "the same digest passes");
    OK(expected_bits(text, "cpu new, fp32, none on record: 8").verdict == CHEX_FAIL,
       "another digest of the same kind fails");
    OK(expected_bits(text, "cpu avx2, fp32: 8").verdict == CHEX_PASS &&
           expected_bits("{\"step-bits\": \"chexnet 0.0.1, cpu avx2, fp32: 7\"}",
                         "cpu avx2, fp32: 8")
                   .verdict == CHEX_PASS,
       "a record of another kind or version is not compared");
    OK(expected_bits("{\"step-bits\": \"cpu avx2, fp32: 7\"}", "cpu avx2, fp32: 8").verdict ==
           CHEX_FAIL,
       "a text without a version must be the same");
    free(text);
    free(path);
}

/* ---- the kernel's counts ---- */

static void put(const char *name, const char *text) {
    char *path = chex_fs_join(scratch, name), *slash = strrchr(path, '/');
    struct chex_error err = {0};
    *slash = '\0';
    BAIL_UNLESS(chex_fs_mkdirs(path, &err) == CHEX_OK, "%s", err.text);
    *slash = '/';
    write_text(path, text);
    free(path);
}

/* A machine of 8 CPUs, two of them this process's, in a window of one second. */
static const struct chex_throttling idle = {
    .wall_s = 1, .own_s = 1.9, .busy_s = 1.92, .cpus = 2, .node_busy_s = 2, .node_cpus = 8};

static const char *during(const struct chex_throttling *s, enum chex_disturb_kind kind) {
    static char why[CHEX_DISTURBED_BYTES];
    why[0] = '\0';
    return chex_disturb_during(s, kind, why, sizeof why) ? why : "";
}
static const char *quiet(const struct chex_throttling *s, enum chex_disturb_kind kind) {
    static char why[CHEX_DISTURBED_BYTES];
    why[0] = '\0';
    return chex_disturb_quiet(s, kind, why, sizeof why) ? why : "";
}

static void test_disturb(void) {
    struct chex_throttling s = idle;
    OK(!*during(&s, CHEX_DISTURB_CPU) && !*quiet(&s, CHEX_DISTURB_CPU) &&
           !*quiet(&s, CHEX_DISTURB_DISK),
       "own load disturbs nothing");
    s.own_s = 1;
    OK(strcmp(during(&s, CHEX_DISTURB_CPU), "other processes took 46 % of the time of its CPUs") ==
           0,
       "others on the same CPUs: %s", during(&s, CHEX_DISTURB_CPU));
    OK(!*during(&s, CHEX_DISTURB_DISK), "which is not held against a disk");
    s = idle;
    s.node_busy_s = 5;
    OK(!*during(&s, CHEX_DISTURB_CPU), "other ranks of the node measure at the same time");
    s.own_s = 0;
    OK(strcmp(quiet(&s, CHEX_DISTURB_CPU), "other processes used 5.0 of the node's 8 CPUs") == 0,
       "but before the measurement all load is of others: %s", quiet(&s, CHEX_DISTURB_CPU));
    s.node_cpus = 256;
    OK(!*quiet(&s, CHEX_DISTURB_CPU), "five of 256 CPUs are not much");
    s = idle;
    s.throttled_count = 3;
    s.throttled_s = 0.5;
    OK(strstr(during(&s, CHEX_DISTURB_CPU), "quota of its control group stopped it 3 times"),
       "a quota: %s", during(&s, CHEX_DISTURB_CPU));
    s = idle;
    s.steal_s = 0.8;
    OK(strstr(during(&s, CHEX_DISTURB_CPU), "other virtual machines took 10.0 %"),
       "other virtual machines: %s", during(&s, CHEX_DISTURB_CPU));
    s = idle;
    s.io_stall_s = 0.5;
    OK(strstr(quiet(&s, CHEX_DISTURB_DISK), "waited for disks 50 %") &&
           !*quiet(&s, CHEX_DISTURB_CPU),
       "others at the disk: %s", quiet(&s, CHEX_DISTURB_DISK));
    s = idle;
    s.paged_bytes = 50000000;
    OK(strstr(quiet(&s, CHEX_DISTURB_DISK), "moved 50 MB/s from or to disks"),
       "also where the kernel counts no stalls: %s", quiet(&s, CHEX_DISTURB_DISK));
    s = idle;
    s.memory_stall_s = 0.2;
    OK(strstr(quiet(&s, CHEX_DISTURB_CPU), "waited for memory"), "others short of memory");
    s = (struct chex_throttling){0};
    OK(!*quiet(&s, CHEX_DISTURB_CPU) && !*during(&s, CHEX_DISTURB_CPU),
       "a system that counts nothing says nothing");
}

static void test_strain(void) {
    struct chex_throttling s, later;
    put("proc/self/cgroup", "4:cpu,cpuacct:/job/step\n3:cpuset:/other\n0::/v2/job\n");
    put("proc/stat",
        "cpu  100 200 300 4 5 60 70 250 9 10\ncpu0 1 1 1 1 1 1 1 9 1 1\ncpu7 1 1 1 1 1 1 1 9 1 1\n"
        "intr 5\n");
    put("proc/pressure/io", "some avg10=0.10 avg60=1.0 avg300=0.00 total=2500000\nfull avg10=0\n");
    put("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=500000\n");
    put("proc/vmstat", "nr_free_pages 5\npgpgin 100\npgpgout 200\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/step/cpu.stat",
        "nr_periods 9\nnr_throttled 2\nthrottled_time 500000000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.stat", "nr_throttled 1\nthrottled_time 250000000\n");
    put("sys/fs/cgroup/v2/job/cpu.stat", "usage_usec 8\nnr_throttled 4\nthrottled_usec 1000000\n");
    put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n");
    put("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "5\n");
    chex_throttling_read(scratch, &s);
    OK(s.throttled_count == 7, "throttled periods of the group and those above it: %llu",
       (unsigned long long)s.throttled_count);
    OK(fabs(s.throttled_s - 1.75) < 1e-9, "nanoseconds and microseconds: %.3f s", s.throttled_s);
    OK(fabs(s.steal_s * (double)sysconf(_SC_CLK_TCK) - 250) < 1e-6, "stolen time");
    OK(s.heat_count == 8, "slowdowns by heat");
    OK(fabs(s.node_busy_s * (double)sysconf(_SC_CLK_TCK) - 730) < 1e-6 && s.node_cpus == 2,
       "busy time of the node");
    OK(s.own_s > 0 && s.cpus <= 2, "and of this process");
    OK(s.io_stall_s == 2.5 && s.memory_stall_s == 0.5, "waits for disks and memory");
    OK(s.paged_bytes == 300 * 1024, "bytes from and to disks");
    put("proc/stat", "cpu  1 2 3 4 5 6 7 350 9 10\n");
    put("sys/fs/cgroup/v2/job/cpu.stat", "nr_throttled 1\n");
    chex_throttling_read(scratch, &later);
    struct chex_throttling d = chex_throttling_between(&s, &later);
    OK(d.steal_s > 0 && d.throttled_count == 0 && d.heat_count == 0 && d.wall_s >= 0,
       "what has grown since, and nothing below 0");
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.stat", "nr_throttled 4\n");
    chex_throttling_read(scratch, &s);
    OK(s.throttled_count == 4, "the group of a container, which has no parent, counts once: %llu",
       (unsigned long long)s.throttled_count);
    chex_throttling_read("/nonexistent", &s);
    OK(s.throttled_count == 0 && s.steal_s == 0 && s.heat_count == 0 && s.wall_s > 0,
       "a system that counts nothing");
}

/* ---- the measurements ---- */

static void test_load(void) {
    struct chex_load load;
    struct chex_error err = {0};
    OK_STATUS(chex_load_memory(2, 0.05, UINT64_C(64) << 20, &load, &err), CHEX_OK, err, NULL);
    OK(load.bytes_per_s > 0 && load.cpu_share > 0 && load.cpu_share < 1.1, "a rate and a share");
    OK_STATUS(chex_load_memory(2, 0.05, 1 << 20, &load, &err), CHEX_E_RESOURCE, err,
              "too little memory");
}

static int entries(const char *dir) {
    char *command = chex_fs_format("ls -A %s | wc -l", dir);
    FILE *f = popen(command, "r");
    int n = -1;
    BAIL_UNLESS(f && fscanf(f, "%d", &n) == 1, "no ls");
    pclose(f);
    free(command);
    return n;
}

static void test_storage(void) {
    struct chex_write_rate w;
    struct chex_read_rate r;
    struct chex_error err = {0};
    char *path = chex_fs_join(scratch, "file"), *dir = chex_fs_join(scratch, "empty");
    mkdir(dir, 0700);
    OK_STATUS(chex_storage_write(dir, 3 << 20, 5, &w, &err), CHEX_OK, err, NULL);
    OK(w.bytes_per_s > 0 && w.sync_s > 0, "writing has a rate");
    OK(entries(dir) == 0, "and leaves nothing");
    OK_STATUS(chex_storage_write("/nonexistent", 1, 1, &w, &err), CHEX_E_ENV, err,
              "/nonexistent: cannot write: No such");
    OK_STATUS(chex_storage_write("/proc", 1, 1, &w, &err), CHEX_E_ENV, err, "/proc: cannot write");
    char *big = malloc(9 << 20);
    memset(big, 7, 9 << 20);
    BAIL_UNLESS(chex_fs_write(path, big, 9 << 20, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_storage_read(path, 5, &r, &err), CHEX_OK, err, NULL);
    OK(r.bytes == 9 << 20 && r.bytes_per_s > 0, "the whole file is read%s",
       r.cached ? ", through the page cache" : "");
    OK_STATUS(chex_storage_read(dir, 5, &r, &err), CHEX_E_ENV, err, "cannot read");
    free(big);
    free(path);
    free(dir);
}

static void test_step(void) {
    struct chex_step *a = NULL, *b = NULL;
    struct chex_step_result ra, rb;
    struct chex_error err = {0};
    OK_STATUS(chex_step_create("cpu", 1, NULL, &a, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_step_run(a, 0, 1e9, &ra, &err), CHEX_OK, err, NULL);
    chex_step_destroy(a);
    OK(ra.repeats == 2 && ra.odd == 0 && ra.images_per_s > 0, "two equal steps of %s", ra.how);
    OK_STATUS(chex_step_create("cpu", 2, NULL, &b, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_step_run(b, 0, 0, &rb, &err), CHEX_OK, err, NULL);
    chex_step_destroy(b);
    OK(rb.repeats == 1 && rb.images_per_s == 0, "one step where there is no time");
    OK(ra.digest == rb.digest && strcmp(ra.how, rb.how) == 0,
       "the digest is that of any number of threads");
    OK_STATUS(chex_step_create("nosuch", 1, NULL, &a, &err), CHEX_E_USAGE, err, "nosuch");
}

static const char *const variants[] = {"generic", "avx2", "avx512", "avx512bf16", "amx"};

/* One step of a variant. False: this processor has it not. */
static bool step_of(const char *variant, struct chex_step_result *r) {
    struct chex_step *step = NULL;
    struct chex_error err = {0};
    char spec[32];
    snprintf(spec, sizeof spec, "cpu:%s", variant);
    if (chex_step_create(spec, 2, NULL, &step, &err) != CHEX_OK)
        return false;
    BAIL_UNLESS(chex_step_run(step, 0, 0, r, &err) == CHEX_OK, "%s", err.text);
    chex_step_destroy(step);
    return true;
}

static void test_step_bits(void) {
    for (size_t i = 0; i < CHEX_COUNT(variants); i++) {
        struct chex_step_result r;
        uint64_t known = 0;
        const bool may_lack =
            strcmp(variants[i], "amx") == 0 || strcmp(CHEX_STEP_ARCH, "x86-64 ") != 0;
        if (!step_of(variants[i], &r) || (may_lack && !chex_step_known_digest(r.how, &known)))
            continue;
        OK(chex_step_known_digest(r.how, &known) && r.digest == known,
           "share/step-bits.txt has the digest of a step (%s: %016llx; its head says how to renew)",
           r.how, (unsigned long long)r.digest);
    }
}

/* share/step-bits.txt, with the digests of this processor's variants computed anew. If one has
 * changed, lines of other variants and architectures are left out: they may be wrong now. */
static int print_step_bits(void) {
    struct chex_step_result r[CHEX_COUNT(variants)];
    bool usable[CHEX_COUNT(variants)], changed = false;
    char line[256], start[64];
    FILE *f = fopen(SOURCE_DIR "/share/step-bits.txt", "r");
    for (size_t i = 0; i < CHEX_COUNT(variants); i++) {
        uint64_t known = 0;
        usable[i] = step_of(variants[i], &r[i]);
        changed = changed || (usable[i] &&
                              !(chex_step_known_digest(r[i].how, &known) && known == r[i].digest));
    }
    while (f && fgets(line, sizeof line, f)) {
        bool keep = line[0] == '#' || !changed;
        for (size_t i = 0; i < CHEX_COUNT(variants); i++) {
            const int n = snprintf(start, sizeof start, CHEX_STEP_ARCH "cpu %s, ", variants[i]);
            keep = keep && !(usable[i] && strncmp(line, start, (size_t)n) == 0);
        }
        if (keep)
            fputs(line, stdout);
    }
    for (size_t i = 0; i < CHEX_COUNT(variants); i++)
        if (usable[i])
            printf(CHEX_STEP_ARCH "%s: %016llx\n", r[i].how, (unsigned long long)r[i].digest);
    return f && fclose(f) == 0 && fflush(stdout) == 0 ? 0 : 1;
}

/* ---- the stages ---- */

static atomic_bool hangs;
static atomic_int probed; /* of probe_slow */
static int collective_runs;
static double until_left_s;

static void probe_slow(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    for (const double from_s = chex_clock_s();
         atomic_load(&hangs) && chex_clock_s() - from_s < tap_wait_s();)
        chex_clock_sleep_ms(10);
    chex_check_found(r, "slow");
    atomic_fetch_add(&probed, 1);
}
static void probe_all(const struct chex_check_context *c, struct chex_check_result *r) {
    collective_runs++;
    until_left_s = c->until_s - chex_clock_s();
    chex_check_found(r, "all");
}
static const struct chex_check slow = {.name = "slow",
                                       .question = "?",
                                       .modes = CHEX_IN_ALL,
                                       .probe = probe_slow,
                                       .level = 2,
                                       .start = CHEX_START_TOGETHER},
                               together = {.name = "together",
                                           .question = "?",
                                           .modes = CHEX_IN_ALL,
                                           .probe = probe_all,
                                           .level = 3,
                                           .start = CHEX_START_ALL};
static const struct chex_check *const stages[] = {&slow, &together, NULL};

/* Rank 1 of two, whose standing is made up here: it has little time left, or is stuck. */
static int other_stuck;
static enum chex_status pretend(struct chex_launch *l, const char *name, const char *key,
                                const void *mine, size_t bytes, unsigned char *all_out,
                                uint64_t timeout_ms, struct chex_error *err) {
    (void)key, (void)timeout_ms, (void)err;
    for (int k = 0; k < l->size; k++)
        memcpy((char *)all_out + (size_t)k * bytes, mine, bytes);
    if (strcmp(name, "check-start") == 0) {
        char *other = (char *)all_out + bytes;
        const double left_s = tap_wait_s() / 2;
        memcpy(other, &left_s, sizeof left_s);
        memcpy(other + sizeof left_s, &other_stuck, sizeof other_stuck);
    }
    return CHEX_OK;
}
static const struct chex_launch_method pretended = {
    .name = "pmix", .gather = pretend, .gather_at_0 = pretend};

static struct chex_check_report run(int level, uint64_t timeout_ms) {
    struct chex_launch launch = {
        .method = "pmix", .size = 2, .local_size = 2, .nodes = 1, .host = "n0", .impl = &pretended};
    struct chex_check_context c = {.mode = CHEX_MODE_JOB, .launch = &launch, .level = level};
    struct chex_check_report report = {0};
    struct chex_error err = {0};
    struct chex_group *group = NULL;
    BAIL_UNLESS(chex_group_of_launch(&launch, timeout_ms, &group, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_check_run(stages, &c, timeout_ms, group, &report, &err), CHEX_OK, err, NULL);
    chex_group_destroy(group);
    return report;
}

static void test_stages(void) {
    struct chex_check_report r = run(1, tap_wait_ms());
    OK(r.count == 0, "level 1 measures nothing");
    chex_check_report_release(&r);
    r = run(2, tap_wait_ms());
    OK(r.count == 1 && strcmp(r.checks[0]->name, "slow") == 0, "level 2 nothing between ranks");
    chex_check_report_release(&r);
    r = run(3, tap_wait_ms());
    OK(r.count == 2 && collective_runs == 1 && r.merged[1].verdict == CHEX_PASS && !r.hung,
       "level 3 all");
    OK(until_left_s > 0 && until_left_s <= tap_wait_s() / 2,
       "in the time of the rank that has least: %.2f s", until_left_s);
    chex_check_report_release(&r);
    other_stuck = 1;
    r = run(3, tap_wait_ms());
    OK(collective_runs == 1 && r.merged[1].verdict == CHEX_SKIP &&
           strcmp(r.merged[1].found, "rank 1 is stuck in an earlier check") == 0,
       "no rank takes part if one rank cannot: %s", r.merged[1].found);
    chex_check_report_release(&r);
    other_stuck = 0;
    atomic_store(&hangs, true);
    atomic_store(&probed, 0);
    r = run(3, 100);
    OK(r.merged[0].verdict == CHEX_FAIL && r.merged[1].verdict == CHEX_SKIP && !r.hung,
       "a rank whose own probe hangs skips the rest: %s", r.merged[1].found);
    OK(collective_runs == 1, "and stays away from the others");
    chex_check_report_release(&r);
    atomic_store(&hangs, false);
    while (!atomic_load(&probed))
        chex_clock_sleep_ms(10);
    chex_clock_sleep_ms(50); /* the late probe frees what it used */
}

int main(int argc, char **argv) {
    struct chex_error err = {0};
    if (argc > 1 && strcmp(argv[1], "--step-bits") == 0)
        return print_step_bits();
    BAIL_UNLESS(mkdtemp(scratch), "no scratch folder");
    test_rule();
    test_compare();
    test_limits();
    test_record();
    test_margin();
    test_blame();
    test_bits();
    test_known_bits();
    test_disturb();
    test_strain();
    test_load();
    test_storage();
    test_step();
    test_step_bits();
    test_stages();
    chex_fs_remove_tree(scratch, &err);
    return tap_done();
}

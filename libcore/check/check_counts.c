/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of events since boot, such as errors of links and GPUs: only their growth since --record
 * matters.
 *
 * The record has host, boot and time. In the same boot a count that has become smaller has not
 * grown. After another boot it began at 0. Counts of another host are not compared. Growth is
 * judged as a rate, over at least one day, so that an old record makes nothing worse.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "check/checks.h"
#include "check/measure.h"

enum { BOOT_BYTES = 48 };

/* Reads the boot's id; returns the time, of a recording its own. */
static double read_boot(const char *root, char boot[BOOT_BYTES]) {
    uint64_t recorded_s;
    (void)chex_fs_line(root, "proc/sys/kernel/random/boot_id", "", boot, BOOT_BYTES);
    return chex_fs_number(root, "recorded", "", &recorded_s) ? (double)recorded_s
                                                             : chex_clock_unix_s();
}

json_t *chex_check_counts_kept(const struct chex_check_context *c, const struct chex_check *check) {
    char boot[BOOT_BYTES];
    json_t *counts = json_object();
    const double now_s = read_boot(chex_check_root(c), boot);
    (void)check->count(chex_check_root(c), counts);
    return json_pack("{s:s, s:s, s:f, s:o}", "host", c->launch->host, "boot", boot, "time_s", now_s,
                     "counts", counts);
}

/* Judges `growth` events; days: since the record, 0: there is none. */
static void judge(const struct chex_check_context *c, const struct chex_check *check,
                  const char *name, json_int_t growth, double days, struct chex_check_result *r) {
    const double rate = check->since_boot ? (double)growth : days > 0 ? (double)growth / days : 0;
    const double most = check->most_a_day(name);
    chex_check_found_more(r, "%s%s %s%" PRIi64, r->found[0] ? ", " : "", name, days > 0 ? "+" : "",
                          (int64_t)growth);
    const enum chex_verdict bad = check->since_boot ? chex_check_gpu_verdict(c) : CHEX_FAIL;
    if (rate >= most / 10)
        chex_check_worsen(r, rate >= most ? bad : CHEX_WARN, CHEX_FAULT_NODE,
                          "%s of %s: %.3g %s; leave the node out with --exclude=%s, and drain it",
                          name, c->launch->host, rate, check->since_boot ? "new" : "a day",
                          c->launch->host);
}

void chex_check_probe_counts(const struct chex_check_context *c, const struct chex_check *check,
                             struct chex_check_result *r) {
    const json_t *kept = chex_check_expected_value(c->expected, check->name), *before = NULL;
    const char *host = json_string_value(json_object_get(kept, "host")), *name;
    char boot[BOOT_BYTES];
    json_t *now = json_object(), *value;
    double days = 0;
    const double now_s = read_boot(chex_check_root(c), boot);
    if (host && strcmp(host, c->launch->host) == 0) {
        days = fmax(1, (now_s - json_number_value(json_object_get(kept, "time_s"))) / (24 * 3600));
        if (strcmp(json_string_value(json_object_get(kept, "boot")), boot) == 0)
            before = json_object_get(kept, "counts");
    }
    chex_check_expect(r, "no growth since --record (--expect)");
    const char *skipped = check->count(chex_check_root(c), now);
    if (skipped)
        chex_check_skip(r, "%s", skipped);
    json_object_foreach(now, name, value) {
        const json_int_t growth =
            json_integer_value(value) - json_integer_value(json_object_get(before, name));
        if (growth > 0)
            judge(c, check, name, growth, days, r);
    }
    json_decref(now);
    if (!r->found[0])
        chex_check_found(r, "none%s", days > 0 ? " since the record" : "");
}

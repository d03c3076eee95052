/* SPDX-License-Identifier: Apache-2.0
 *
 * Energy of a node, from described counters of RAPL; and the texts of results.
 */
#include "launch/energy.h"

#include <sys/stat.h>

#include "dir.h"
#include "tap.h"

static char why[512];
static struct chex_error err;

static void put_zone(const char *zone, const char *name, const char *uj) {
    OK_CALL(chex_fs_mkdirs(dir_path("sys/class/powercap/%s", zone), &err));
    char file[96];
    snprintf(file, sizeof file, "sys/class/powercap/%s/name", zone);
    dir_put_text(file, name);
    snprintf(file, sizeof file, "sys/class/powercap/%s/energy_uj", zone);
    dir_put_text(file, uj);
    snprintf(file, sizeof file, "sys/class/powercap/%s/max_energy_range_uj", zone);
    dir_put_text(file, "262143328850\n");
}

static void test_counters(void) {
    OK(!chex_rapl_start(dir, why, sizeof why) && strstr(why, "no counters"),
       "a machine without RAPL has no energy: %s", why);
    put_zone("intel-rapl", "intel-rapl\n", "0\n");
    put_zone("intel-rapl:0", "package-0\n", "1000000\n");
    put_zone("intel-rapl:0:0", "core\n", "500\n");
    put_zone("intel-rapl:0:1", "dram\n", "7000000\n");
    put_zone("intel-rapl:1", "package-1\n", "262143328850\n");
    put_zone("intel-rapl:2", "psys\n", "9\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "1000000\n");
    struct chex_rapl *r = chex_rapl_start(dir, why, sizeof why);
    BAIL_UNLESS(r, "%s", why);
    OK(chex_rapl_joules(r) == 0, "a counter that does not move is unknown, not 0 J");
    put_zone("intel-rapl:0", "package-0\n", "4000000\n");
    put_zone("intel-rapl:0:0", "core\n", "2000500\n");
    put_zone("intel-rapl:0:1", "dram\n", "7500000\n");
    put_zone("intel-rapl:1", "package-1\n", "2000000\n");
    put_zone("intel-rapl:2", "psys\n", "90000000\n");
    put_zone("intel-rapl-mmio:0", "package-0\n", "4000000\n");
    OK(fabs(chex_rapl_joules(r) - 5.5) < 1e-6,
       "packages and memory are summed once, over a wrap-around: %g J", chex_rapl_joules(r));
    unlink(dir_path("sys/class/powercap/intel-rapl:1/energy_uj"));
    OK(chex_rapl_joules(r) == 0, "a counter that is gone makes the sum unknown");
    free(r);
    OK(!chex_rapl_start(dir, why, sizeof why) && strstr(why, "No such file or directory"),
       "one that cannot be read, too: %s", why);
    OK(chex_rapl_joules(NULL) == 0, "without counters nothing is known");
    chex_rapl_sample(NULL);
}

static void test_json(void) {
    const struct chex_energy gpu = {.gpu_j = 999, .gpus = 1, .nodes = 1}, none = {.gpus = 2};
    json_t *o = chex_energy_json(&gpu);
    OK(json_real_value(json_object_get(o, "gpu_joules")) == 999 &&
           json_is_null(json_object_get(o, "node_joules")),
       "an unknown sum is null, not 0");
    json_decref(o);
    OK(!chex_energy_json(&none), "unknown energy has no object");
}

int main(void) {
    dir_make();
    test_counters();
    test_json();
    dir_remove();
    return tap_done();
}

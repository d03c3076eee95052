/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads RAPL's counters. A zone is a folder intel-rapl:N or intel-rapl:N:M (on AMD too).
 * "package-N" contains its zones "core" and "uncore"; "dram" is not part of it. "psys" contains the
 * packages, and intel-rapl-mmio:N is a package once more: both are left out.
 */
#include "launch/energy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/result.h"

enum { ZONES = 128, SAMPLE_S = 30, MOST_WATTS = 1000 }; /* of a zone */

struct chex_rapl {
    char dir[512];
    struct zone {
        char name[CHEX_FS_NAME];
        uint64_t last_uj, range_uj;
    } zones[ZONES];
    int count;
    double sampled_s, joules;
    bool lost;
};

static bool read_zone(const struct chex_rapl *r, const struct zone *z, const char *file,
                      uint64_t *out) {
    return chex_fs_number(chex_path(r->dir, z->name).text, file, "", out);
}

static void read_all(struct chex_rapl *r) {
    const double now_s = chex_clock_s(), most_uj = (now_s - r->sampled_s) * MOST_WATTS * 1e6;
    for (int i = 0; i < r->count; i++) {
        struct zone *z = &r->zones[i];
        uint64_t uj = 0;
        r->lost = !read_zone(r, z, "energy_uj", &uj) || r->lost || most_uj > (double)z->range_uj;
        r->joules += 1e-6 * (double)(uj - z->last_uj + (uj < z->last_uj ? z->range_uj : 0));
        z->last_uj = uj;
    }
    r->sampled_s = now_s;
}

void chex_rapl_sample(struct chex_rapl *r) {
    if (r && chex_clock_s() - r->sampled_s > SAMPLE_S)
        read_all(r);
}

double chex_rapl_joules(struct chex_rapl *r) {
    if (r)
        read_all(r);
    return !r || r->lost ? 0 : r->joules;
}

/* Adds the zone if it counts. False: its counter cannot be read; errno is the reason. */
static bool add_zone(struct chex_rapl *r, const char *folder) {
    struct zone *z = &r->zones[r->count];
    char name[64];
    if (strncmp(folder, "intel-rapl:", 11) != 0 ||
        !chex_fs_line(chex_path(r->dir, folder).text, "name", "", name, sizeof name) ||
        (strncmp(name, "package", 7) != 0 && strcmp(name, "dram") != 0))
        return true;
    snprintf(z->name, sizeof z->name, "%.47s", folder);
    r->count++;
    return read_zone(r, z, "max_energy_range_uj", &z->range_uj) &&
           read_zone(r, z, "energy_uj", &z->last_uj);
}

struct chex_rapl *chex_rapl_start(const char *root, char *why, size_t size) {
    struct chex_fs_name folders[ZONES];
    const int count = chex_fs_names(root, "sys/class/powercap", folders, ZONES);
    struct chex_rapl *r = chex_alloc_zeroed(1, sizeof *r);
    bool good = r != NULL;
    if (r)
        snprintf(r->dir, sizeof r->dir, "%s/sys/class/powercap", root);
    for (int i = 0; i < count && good; i++)
        good = add_zone(r, folders[i].text);
    snprintf(why, size, "RAPL: %s", good ? "no counters" : strerror(errno));
    if (good && r->count) {
        r->sampled_s = chex_clock_s();
        return r;
    }
    free(r);
    return NULL;
}

json_t *chex_energy_json(const struct chex_energy *e) {
    const bool gpu = e->gpu_j > 0, node = e->node_j > 0;
    if (!gpu && !node)
        return NULL;
    return chex_result(CHEX_FIELD_IF(gpu, "gpu_joules", e->gpu_j), CHEX_MEMBER(e, gpus),
                       CHEX_FIELD_IF(node, "node_joules", e->node_j), CHEX_MEMBER(e, nodes));
}

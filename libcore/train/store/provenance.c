/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads provenance.json.
 */
#include "train/store/provenance.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "shard/manifest.h"
#include "train/same_kernels.h"

/* Only stops the reading of a wrong file. */
static const uint64_t max_file_bytes = (uint64_t)1 << 36;

/* ---- machines ---- */

void chex_machine_of(const struct chex_session *s, struct chex_machine *m) {
    const struct chex_gpu *gpu = s->config.device;
    memset(m, 0, sizeof *m);
    snprintf(m->engine, sizeof m->engine, "%s", s->engine_name);
    snprintf(m->variant, sizeof m->variant, "%s", s->engine_variant);
    snprintf(m->precision, sizeof m->precision, "%s", chex_precision_names[s->config.precision]);
    if (gpu)
        snprintf(m->device, sizeof m->device, "%s (%s)", gpu->name,
                 gpu->uuid[0] ? gpu->uuid : gpu->pci_bus_id);
    else
        chex_cpu_name("", m->device, sizeof m->device);
}

const char *chex_machine_bits(const char *engine, const char *variant, const char *precision,
                              char text[CHEX_MACHINE_BITS_BYTES]) {
    snprintf(text, CHEX_MACHINE_BITS_BYTES, "%s:%s, %s", engine, variant, precision);
    return text;
}

static json_t *machine_json(const struct chex_machine *m, int ranks) {
    return chex_result(CHEX_FIELD("engine", (const char *)m->engine),
                       CHEX_FIELD("variant", (const char *)m->variant),
                       CHEX_FIELD("precision", (const char *)m->precision),
                       CHEX_FIELD("device", (const char *)m->device), CHEX_FIELD("ranks", ranks));
}

/* Each machine once, with the number of its ranks, in order of the first of them. */
static json_t *machines_json(const struct chex_machine *all, int size) {
    json_t *list = json_array();
    for (int r = 0; r < size; r++) {
        int first = 0, ranks = 0;
        while (memcmp(&all[first], &all[r], sizeof *all) != 0)
            first++;
        for (int other = r; first == r && other < size; other++)
            ranks += memcmp(&all[r], &all[other], sizeof *all) == 0;
        if (ranks)
            json_array_append_new(list, machine_json(&all[r], ranks));
    }
    return list;
}

/* ---- digests ---- */

/* {"file", "digest"}; the digest is null if the file cannot be read. */
static json_t *file_json(const char *path) {
    char digest[CHEX_HASH128_HEX_BYTES] = "";
    CHEX_AUTO_FREE char *data = NULL;
    size_t size = 0;
    if (chex_fs_read(path, max_file_bytes, &data, &size, NULL) == CHEX_OK)
        chex_hash128_hex(data, size, digest);
    return chex_result(CHEX_FIELD("file", path),
                       CHEX_FIELD_IF(digest[0], "digest", (const char *)digest));
}

static json_t *program_json(void) {
    char path[4096];
    const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    return file_json(path);
}

static json_t *manifest_digest(const char *dir) {
    json_auto_t *manifest = file_json(chex_path(dir, CHEX_MANIFEST_NAME).text);
    return json_incref(json_object_get(manifest, "digest"));
}

/* Several sets: the manifest of each is in `sets`. */
static json_t *data_json(const struct chex_session *s) {
    const struct chex_set *set = s->input.train;
    const struct chex_sources *sources = &s->input.selection->sources;
    json_auto_t *sets = json_array();
    for (int i = 0; i < sources->count; i++)
        json_array_append_new(
            sets, chex_result(CHEX_FIELD("name", sources->set[i].name),
                              CHEX_FIELD("folder", sources->set[i].dir),
                              CHEX_FIELD("manifest_digest", manifest_digest(sources->set[i].dir))));
    const json_t *only = sources->count == 1 ? json_array_get(sets, 0) : NULL;
    return chex_result(CHEX_FIELD("folder", s->config.data_dir),
                       CHEX_FIELD("source_digest", chex_set_source_digest(set)),
                       CHEX_FIELD_IF(only, "manifest_digest",
                                     json_incref(json_object_get(only, "manifest_digest"))),
                       CHEX_FIELD("split", s->trained_split), CHEX_FIELD("rows", set->rows),
                       CHEX_FIELD("stored_px", set->size),
                       CHEX_FIELD_IF(sources->count > 1, "sets", json_incref(sets)));
}

/* ---- the file ---- */

static json_t *start_json(const struct chex_session *s, const struct chex_machine *machines) {
    const struct chex_train_config *c = &s->config;
    json_t *kernels = chex_session_kernels(s, NULL); /* NULL: no engine with choices */
    const bool resumed = s->at.step > 0;
    json_t *loss = json_object_get(c->options, "loss"); /* weights; without any: NULL */
    return chex_result(
        CHEX_FIELD("from_step", s->at.step),
        CHEX_FIELD_IF(resumed, "from", (const char *)s->newest),
        CHEX_FIELD("time_unix_s", chex_clock_unix_s()), CHEX_FIELD("version", CHEXNET_VERSION),
        CHEX_FIELD("program", program_json()), CHEX_FIELD("data", data_json(s)),
        CHEX_FIELD_IF(c->init && !resumed, "init", file_json(c->init)),
        CHEX_FIELD_IF(c->features, "features", c->features),
        CHEX_FIELD_IF(c->features, "features_digest", (const char *)s->features_digest),
        CHEX_FIELD("processes", s->size), CHEX_MEMBER(c, logical_ranks),
        CHEX_MEMBER(c, deterministic), CHEX_FIELD("machines", machines_json(machines, s->size)),
        CHEX_FIELD("options", json_incref(json_object_get(c->options, "options"))),
        CHEX_FIELD_IF(loss, "loss", json_incref(loss)),
        CHEX_FIELD_IF(kernels, "cuda_choices", kernels));
}

static uint64_t from_step(const json_t *start) {
    return (uint64_t)json_integer_value(json_object_get(start, "from_step"));
}

/* The starts of `before` that end before `step`, as a new array. */
static json_t *earlier_starts(const json_t *before, uint64_t step) {
    json_t *starts = json_array(), *start;
    size_t i;
    json_array_foreach(json_object_get(before, "starts"), i, start) if (from_step(start) < step)
        json_array_append(starts, start);
    return starts;
}

/* Takes the reference of `starts`. */
static enum chex_status write_file(struct chex_session *s, json_t *starts, struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_checkpoint_line *lines = NULL;
    json_auto_t *file = chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("starts", starts),
                                    CHEX_FIELD("checkpoints", json_array()));
    json_t *checkpoints = json_object_get(file, "checkpoints");
    size_t count = 0;
    CHEX_TRY(chex_checkpoint_log_read(s->config.output_dir, &lines, &count, err));
    for (size_t i = 0; i < count; i++)
        json_array_append_new(checkpoints,
                              chex_result(CHEX_FIELD("step", lines[i].step),
                                          CHEX_FIELD("file", (const char *)lines[i].file),
                                          CHEX_FIELD("digest", (const char *)lines[i].digest),
                                          CHEX_FIELD("time_unix_s", lines[i].time_unix_s)));
    return chex_runfiles_json(&s->files, CHEX_PROVENANCE, json_incref(file), err);
}

static enum chex_status begin(struct chex_session *s, const struct chex_machine *machines,
                              struct chex_error *err) {
    json_auto_t *before = NULL;
    struct chex_error damaged;
    /* A damaged file is replaced: it must not keep the run from going on. */
    if (chex_provenance_read(s->config.output_dir, &before, &damaged) != CHEX_OK)
        chex_warn("%s; its earlier starts are lost", damaged.text);
    json_t *starts = earlier_starts(before, s->at.step);
    json_array_append_new(starts, start_json(s, machines));
    return write_file(s, starts, err);
}

enum chex_status chex_provenance_begin(struct chex_session *s, struct chex_error *err) {
    struct chex_machine mine;
    CHEX_AUTO_FREE void *all = NULL;
    size_t bytes;
    chex_machine_of(s, &mine);
    CHEX_TRY(chex_group_gather(s->world.coll->group, &mine, sizeof mine, &all, &bytes, err));
    return s->rank == 0 ? begin(s, all, err) : CHEX_OK;
}

enum chex_status chex_provenance_end(struct chex_session *s, struct chex_error *err) {
    json_auto_t *now = NULL;
    CHEX_TRY(chex_provenance_read(s->config.output_dir, &now, err));
    json_t *starts = json_incref(json_object_get(now, "starts"));
    json_t *energy = chex_energy_json(&s->energy.sum);
    if (energy)
        json_object_set_new(json_array_get(starts, json_array_size(starts) - 1), "energy", energy);
    return starts ? write_file(s, starts, err) : CHEX_OK;
}

enum chex_status chex_provenance_read(const char *dir, json_t **out, struct chex_error *err) {
    return chex_runfiles_read_json(dir, CHEX_PROVENANCE, out, err);
}

json_t *chex_provenance_start_of(const json_t *provenance, uint64_t step) {
    const json_t *starts = json_object_get(provenance, "starts");
    for (size_t i = json_array_size(starts); i > 0; i--)
        if (from_step(json_array_get(starts, i - 1)) < step)
            return json_array_get(starts, i - 1);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.json: where each rank runs (host, cores, GPU, logical ranks). One record per rank, in rank
 * order; it travels as JSON.
 */
#include "train/store/ranks_file.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/result.h"

/* The record of this rank. */
static json_t *own_record(const struct chex_session *s) {
    const struct chex_train_world *w = &s->world;
    const struct chex_launch *l = w->launch;
    const struct chex_train_input *in = &s->input;
    const char *gpu = s->config.device ? s->config.device->pci_bus_id : ""; /* "": none */
    return chex_result(
        CHEX_MEMBER(l, rank), CHEX_MEMBER(l, host), CHEX_MEMBER(l, local_rank),
        CHEX_MEMBER(l, node), CHEX_FIELD("pid", (int)getpid()), CHEX_MEMBER(w->binding, cpus),
        CHEX_MEMBER(w->binding, cpu_count), CHEX_MEMBER(w->binding, numa),
        CHEX_FIELD("gpu_visibility", chex_gpu_visibility_names[w->gpu->visibility]),
        CHEX_FIELD("gpu_visible", w->gpu->visible), CHEX_FIELD("gpu_pci_bus_id", gpu),
        CHEX_FIELD("logical_ranks", json_pack("[i,i]", in->run_from, in->run_to)));
}

enum chex_status chex_session_gather_ranks(struct chex_session *s, json_t **ranks_out,
                                           struct chex_error *err) {
    json_auto_t *mine = own_record(s);
    CHEX_AUTO_FREE char *text = json_dumps(mine, JSON_COMPACT);
    CHEX_AUTO_FREE void *all = NULL;
    size_t bytes;
    CHEX_TRY(chex_session_agree(s, text ? CHEX_OK : chex_error_memory(err, NULL), err));
    CHEX_TRY(chex_group_gather(s->world.coll->group, text, strlen(text) + 1, &all, &bytes, err));
    *ranks_out = s->rank == 0 ? json_array() : NULL;
    for (const char *one = all; s->rank == 0 && one < (const char *)all + bytes;
         one += strlen(one) + 1)
        json_array_append_new(*ranks_out, json_loads(one, 0, NULL));
    return CHEX_OK;
}

enum chex_status chex_session_write_ranks(struct chex_session *s, struct chex_error *err) {
    const struct chex_launch *l = s->world.launch;
    json_t *ranks = NULL;
    CHEX_TRY(chex_session_gather_ranks(s, &ranks, err));
    if (s->rank != 0)
        return CHEX_OK;
    return chex_runfiles_json(&s->files, "ranks.json",
                              chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("launch", l->method),
                                          CHEX_MEMBER(l, job_id),
                                          CHEX_MEMBER(&s->config, logical_ranks),
                                          CHEX_FIELD("ranks", ranks)),
                              err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.json: where each rank runs (host, cores, GPU, logical ranks). One record per rank, in rank
 * order.
 */
#include "train/store/ranks_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/result.h"

struct rank_record {
    int rank, local_rank, node, cpu_count, pid, logical_from, logical_to;
    char host[CHEX_HOST_BYTES], cpus[CHEX_CPUS_BYTES], numa[CHEX_NUMA_BYTES];
    char gpu_visible[CHEX_VISIBLE_BYTES], gpu_visibility[16];
    char gpu[CHEX_PCI_BYTES]; /* "": none */
};

static void fill_record(const struct chex_session *s, struct rank_record *r) {
    const struct chex_train_world *w = &s->world;
    const struct chex_launch *l = w->launch;
    memset(r, 0, sizeof *r);
    r->rank = l->rank;
    r->local_rank = l->local_rank;
    r->node = l->node;
    r->cpu_count = w->binding->cpu_count;
    r->pid = (int)getpid();
    r->logical_from = s->input.run_from;
    r->logical_to = s->input.run_to;
    snprintf(r->host, sizeof r->host, "%s", l->host);
    snprintf(r->cpus, sizeof r->cpus, "%s", w->binding->cpus);
    snprintf(r->numa, sizeof r->numa, "%s", w->binding->numa);
    if (s->config.device)
        memcpy(r->gpu, s->config.device->pci_bus_id, sizeof r->gpu);
    snprintf(r->gpu_visible, sizeof r->gpu_visible, "%s", w->gpu->visible);
    snprintf(r->gpu_visibility, sizeof r->gpu_visibility, "%s",
             chex_gpu_visibility_names[w->gpu->visibility]);
}

static json_t *record_json(const struct rank_record *r) {
    return chex_result(
        CHEX_MEMBER(r, rank), CHEX_MEMBER(r, host), CHEX_MEMBER(r, local_rank),
        CHEX_MEMBER(r, node), CHEX_MEMBER(r, pid), CHEX_MEMBER(r, cpus), CHEX_MEMBER(r, cpu_count),
        CHEX_MEMBER(r, numa), CHEX_MEMBER(r, gpu_visibility), CHEX_MEMBER(r, gpu_visible),
        CHEX_FIELD("gpu_pci_bus_id", r->gpu),
        CHEX_FIELD("logical_ranks", json_pack("[i,i]", r->logical_from, r->logical_to)));
}

enum chex_status chex_session_gather_ranks(const struct chex_session *s, json_t **ranks_out,
                                           struct chex_error *err) {
    struct rank_record mine;
    CHEX_AUTO_FREE void *all = NULL;
    size_t bytes;
    fill_record(s, &mine);
    CHEX_TRY(chex_group_gather(s->world.coll->group, &mine, sizeof mine, &all, &bytes, err));
    *ranks_out = s->rank == 0 ? json_array() : NULL;
    for (int r = 0; s->rank == 0 && r < s->size; r++)
        json_array_append_new(*ranks_out, record_json((const struct rank_record *)all + r));
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

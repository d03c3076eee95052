/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks by libcore/launch/slurm_info.h, and logs what came of it.
 */
#include "train/watch/requeue.h"

#include "base/log.h"

bool chex_requeue_check(const struct chex_slurm_library *lib, const char *why) {
    struct chex_error err = {0};
    if (lib && chex_slurm_can_requeue(lib, &err) == CHEX_OK)
        return true;
    chex_warn("--requeue is ignored: %s", lib ? err.text : why);
    return false;
}

void chex_requeue_ask(const struct chex_slurm_library *lib, enum chex_status status) {
    struct chex_error err = {0};
    enum chex_status st = CHEX_OK;
    if (status != CHEX_E_PREEMPTED && status != CHEX_E_LOST)
        return;
    if (!lib)
        st = chex_slurm_open(&lib, &err);
    if (st == CHEX_OK)
        st = chex_slurm_requeue(lib, status == CHEX_E_LOST, &err);
    if (st == CHEX_OK)
        chex_warn("%s; this job is put back into the queue (--requeue)",
                  status == CHEX_E_LOST ? "ranks were lost" : "saved");
    else
        chex_warn("--requeue: this job is not put back into the queue: %s", err.text);
}

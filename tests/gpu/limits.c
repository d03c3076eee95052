/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured rates of a GPU's memory and of its link to the host: that they are there, and that
 * the arrays for them keep to what they may take. How good they are only a real device can tell.
 * And the memory that an engine leaves to driver and libraries.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "op/engine_test.h"

/* Bytes beside the arena that a training with so many ranks on the node needs. */
static uint64_t reserve_of(const struct chex_net *net, int node_ranks) {
    struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, 32, 1, 1, CHEX_FP32});
    config.node_ranks = node_ranks;
    struct chex_engine *e = test_engine("cuda:s0", &config, NULL);
    const uint64_t all = e->impl->capacity->bytes_with_batch(e->self, 1);
    const uint64_t held = e->impl->bytes(e->self);
    chex_engine_destroy(e);
    return all - held;
}

int main(void) {
    struct chex_error err = {0};
    struct chex_net *net = small_net("densenet121", CLASSES);
    struct chex_engine *e = NULL;
    struct chex_engine_limits l;
    struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, 32, 1, 1, CHEX_FP32});
    config.training = false;
    if (chex_engine_create("cuda", &config, &e, &err) != CHEX_OK) {
        printf("1..0 # SKIP %s\n", err.text);
        return 77;
    }
    OK_STATUS(e->impl->capacity->limits(e->self, UINT64_MAX, &l, &err), CHEX_OK, err, NULL);
    OK(l.upload_bytes_per_s > 0 && l.download_bytes_per_s > 0 && l.bytes_per_s > 0,
       "%.2f GB/s up, %.2f GB/s down, %.2f GB/s within", l.upload_bytes_per_s / 1e9,
       l.download_bytes_per_s / 1e9, l.bytes_per_s / 1e9);
    OK(l.flop_per_s == 0, "operations are not measured");
    OK_STATUS(e->impl->capacity->limits(e->self, 4 << 20, &l, &err), CHEX_OK, err, NULL);
    OK(l.upload_bytes_per_s > 0 && l.bytes_per_s == 0,
       "arrays that its cache could hold say nothing of its memory");
    OK_STATUS(e->impl->capacity->limits(e->self, 1000, &l, &err), CHEX_OK, err, NULL);
    OK(l.upload_bytes_per_s == 0 && l.download_bytes_per_s == 0 && l.bytes_per_s == 0,
       "nothing where nothing may be taken");
#ifdef CHEX_GPU_EMULATED
    char bytes[32]; /* what the arena needs, and half of the reserve */
    struct chex_engine *second = NULL;
    snprintf(bytes, sizeof bytes, "%llu",
             (unsigned long long)e->impl->bytes(e->self) + (256u << 20));
    chex_engine_destroy(e);
    setenv("EMULATED_BYTES", bytes, 1);
    OK_STATUS(chex_engine_create("cuda", &config, &second, &err), CHEX_E_RESOURCE, err,
              "not even one image fits");
    unsetenv("EMULATED_BYTES");
#else
    chex_engine_destroy(e);
#endif
    const uint64_t alone = reserve_of(net, 1), eight = reserve_of(net, 8);
    OK(alone >= (uint64_t)512 << 20 && eight == alone + ((uint64_t)8 * 64 << 20),
       "%.0f MiB are left to driver and libraries, %.0f MiB with 8 ranks on the node",
       (double)alone / 1048576, (double)eight / 1048576);
    chex_net_destroy(net);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_1x1_backward_sm90 against engine/ref (conv_test.h), with clusters of different
 * size, and what it does not take.
 */
#include <stdlib.h>
#include <unistd.h>

#include "gpu/conv_test.h"

static const struct ct_algo algo = {&gpu_conv_algo_1x1_backward_sm90, ct_finish_sum, false};

static const struct ct_shape shapes[] = {
    {GPU_BF16, {1, 1, 0}, 160, 128, 1, 1, true, true, true, true, 4, 0, 0},
    {GPU_F16, {1, 1, 0}, 160, 128, 3, 10, true, true, true, true, 4, 0, 0},
    {GPU_BF16, {1, 1, 0}, 256, 96, 3, 10, true, true, true, false, 1, 0, 0},
    {GPU_F16, {1, 1, 0}, 256, 32, 1, 10, false, false, false, true, 2, 0, 0},
    {GPU_BF16, {1, 1, 0}, 352, 64, 3, 7, false, false, true, false, 4, 0, 0},
    {GPU_BF16, {1, 1, 0}, 544, 128, 1, 10, true, true, true, true, 4, 0, 1},
    {GPU_BF16, {1, 1, 0}, 768, 64, 1, 7, true, true, true, true, 48, 0, 0},
    {GPU_BF16, {1, 1, 0}, 1024, 128, 1, 7, true, true, true, true, 132, 0, 0},
    /* more blocks than a group: their sums are added in two steps */
    {GPU_F16, {1, 1, 0}, 192, 128, 1, 36, true, true, true, true, 34, 0, 0},
};

#ifdef CHEX_GPU_EMULATED
/* Warnings of two preparations, the first ones of this process, on a device that runs `clusters` at
 * once. */
static int warnings(const struct ct *t, const char *clusters) {
    struct chex_error err = {0};
    char text[1024];
    int count = 0;
    FILE *file = tmpfile();
    const int saved = dup(STDERR_FILENO);
    BAIL_UNLESS(file && saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0, "no temporary file");
    setenv("EMULATED_CLUSTERS", clusters, 1);
    for (int i = 0; i < 2; i++) {
        void *state = NULL;
        BAIL_UNLESS(algo.algo->prepare(&t->device, NULL, &t->b, &state, &err) == CHEX_OK, "%s",
                    err.text);
    }
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    while (fgets(text, sizeof text, file))
        count += strstr(text, "clusters of 2 blocks at once (2 were planned)") != NULL;
    fclose(file);
    unsetenv("EMULATED_CLUSTERS");
    return count;
}

static void few_clusters(void) {
    struct ct t = ct_make(&algo, &shapes[0]);
    OK(warnings(&t, "2") == 0, "a device that runs all planned clusters at once has no warning");
    OK(warnings(&t, "1") == 1, "a device that runs fewer clusters than planned is warned of once");
    gt_release_all();
}
#endif

static void refusals(void) {
    const struct ct_shape s = {GPU_BF16, {1, 1, 0}, 160, 128, 1, 3, true, true, 1, 1, 4, 0, 0};
    struct ct t = ct_make(&algo, &s);
    CT_REFUSED(t, (void)0, CT_FORWARD, "a forward convolution is refused");
    CT_REFUSED(t, d.capability = 100, CT_BACKWARD, "capability 10.0 is refused");
    CT_REFUSED(t, d.shared_max = 164 << 10, CT_BACKWARD, "164 KiB of shared memory are refused");
    CT_REFUSED(t, b.in_g.data = NULL, CT_BACKWARD, "a weight gradient alone is refused");
    CT_REFUSED(t, b.in.channels = b.in_g.channels = 128, CT_BACKWARD,
               "128 input channels, which one block has, are refused");
    CT_REFUSED(t, b.in.channels = b.in_g.channels = 1408, CT_BACKWARD,
               "11 slices, which no clusters share, are refused");
    CT_REFUSED(t, b.out.g.channels = b.out.x.channels = 160, CT_BACKWARD,
               "160 output channels are refused");
#ifdef CHEX_GPU_EMULATED
    struct chex_error err = {0};
    void *state = NULL;
    setenv("EMULATED_CLUSTERS", "0", 1);
    OK(algo.algo->prepare(&t.device, NULL, &t.b, &state, &err) != CHEX_OK,
       "a device that runs no cluster is refused: %s", err.text);
#endif
    gt_release_all();
}

int main(void) {
    ct_init(90, 1024 * 128);
    if (ct_device.capability != 90)
        SKIP_ALL("capability %d, expected 90", ct_device.capability);
#ifdef CHEX_GPU_EMULATED
    few_clusters();
#endif
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct ct t = ct_make(&algo, &shapes[i]);
        ct_backward(&t);
        gt_release_all();
    }
    refusals();
    return st_done();
}

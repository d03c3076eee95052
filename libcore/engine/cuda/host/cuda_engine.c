/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA engine's entry points: variants, create, destroy, and the table of struct
 * chex_engine_impl.
 *
 * Variants are stages; each is tested against the one before it:
 *   - s0: plain kernels. The reference for the others.
 *   - s1: cuDNN convolutions on slices of the blocks' buffers. For fp32, capabilities 7.0 and 7.5.
 *   - s4: chexnet's own tensor-core kernels. Convolutions without one, such as those with a
 *     stride, are computed as in s1.
 *   - s5: s4 with kernels that only capability 9.0 has (clusters, TMA, wgmma). Convolutions without
 *     one are computed as in s4. Never chosen without being asked for: no device has shown a gain.
 *
 * Precision. bf16 and fp16: maps, their gradients and the weight copies have this type; sums are
 * fp32 or double; fp16 uses a loss scale. fp32 and fp32-strict: fp32 storage and fp32 FMA.
 */
#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/cuda_module.h"

enum { BF16_CAPABILITY = 80, F16_CAPABILITY = 70 };

static const char *const stage_names[] = {
    [CUDA_S0] = "s0", [CUDA_S1] = "s1", [CUDA_S4] = "s4", [CUDA_S5] = "s5"};

/* variant: one of stage_names. NULL: the last stage that supports this device and precision. */
static enum chex_status choose_stage(struct cuda_engine *e, const char *variant,
                                     struct chex_error *err) {
    const bool tensor = e->type != GPU_F32 && e->device.capability >= BF16_CAPABILITY;
    e->stage = tensor ? CUDA_S4 : CUDA_S1;
    if (variant) {
        int stage = CUDA_S0;
        while (stage < CUDA_STAGES && strcmp(variant, stage_names[stage]) != 0)
            stage++;
        if (stage == CUDA_STAGES)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "engine cuda:%s: unknown variant, expected one of s0, s1, s4, s5",
                                  variant);
        e->stage = (enum cuda_stage)stage;
    }
    e->variant = stage_names[e->stage];
    if (e->stage == CUDA_S5 && e->device.capability != CUDA_S5_CAPABILITY)
        chex_info(
            "cuda: stage s5 computes as %s: %s has capability %d.%d, the kernels of s5 are for "
            "9.0 only",
            tensor || e->type == GPU_F32 ? "s4" : "s1", e->device.name, e->device.capability / 10,
            e->device.capability % 10);
    else if (e->type != GPU_F32 && !tensor && (!variant || e->stage == CUDA_S4))
        chex_info("cuda: stage %s%s: %s has capability %d.%d, the kernels of s4 need %d.%d",
                  e->variant, variant ? " computes as s1" : "", e->device.name,
                  e->device.capability / 10, e->device.capability % 10, BF16_CAPABILITY / 10,
                  BF16_CAPABILITY % 10);
    return CHEX_OK;
}

static enum chex_status choose_type(struct cuda_engine *e, struct chex_error *err) {
    const int min_capability = e->config.precision == CHEX_BF16   ? BF16_CAPABILITY
                               : e->config.precision == CHEX_FP16 ? F16_CAPABILITY
                                                                  : 0;
    if (e->device.capability < min_capability)
        return chex_error_set(
            err, CHEX_E_ENV, "%s has capability %d.%d: precision %s needs %d.%d; use %s",
            e->device.name, e->device.capability / 10, e->device.capability % 10,
            chex_precision_names[e->config.precision], min_capability / 10, min_capability % 10,
            e->device.capability >= F16_CAPABILITY ? "fp16" : "fp32");
    e->type = e->config.precision == CHEX_BF16   ? GPU_BF16
              : e->config.precision == CHEX_FP16 ? GPU_F16
                                                 : GPU_F32;
    return CHEX_OK;
}

static void cuda_destroy(void *self) {
    struct cuda_engine *e = self;
    if (e->uploads)
        cudaStreamSynchronize(e->uploads); /* a failed batch may have left an upload running */
    if (e->stream)
        cudaStreamSynchronize(e->stream);
    chex_cuda_input_release(e);
    gpu_reduce_destroy(e->reduce);
    chex_cuda_run_release(e);
    chex_cuda_plan_release(e);
    if (e->stream)
        cudaStreamDestroy(e->stream);
    if (e->uploads)
        cudaStreamDestroy(e->uploads);
    free(e);
}

static enum chex_status init(struct cuda_engine *e, struct chex_error *err) {
    CHEX_TRY(gpu_device_open(e->config.device, &e->device, err));
    CHEX_TRY(choose_type(e, err));
    CHEX_TRY(choose_stage(e, e->config.variant, err));
    CHEX_CUDA(cudaStreamCreateWithFlags(&e->stream, cudaStreamNonBlocking));
    CHEX_CUDA(cudaStreamCreateWithFlags(&e->uploads, cudaStreamNonBlocking));
    e->config.device = NULL; /* device and variant belong to the caller of create */
    e->config.variant = NULL;
    CHEX_TRY(chex_cuda_plan(e, err));
    CHEX_TRY(chex_cuda_state_init(e, err));
    return chex_cuda_run_init(e, err);
}

static enum chex_status cuda_create(const struct chex_engine_config *config, void **self_out,
                                    struct chex_error *err) {
    struct cuda_engine *e = *self_out = chex_alloc_zeroed(1, sizeof *e);
    if (!e)
        return chex_error_memory(err, "cuda engine");
    e->config = *config;
    e->net = config->net;
    return init(e, err);
}

static const char *cuda_variant(void *self) { return ((struct cuda_engine *)self)->variant; }

static uint64_t cuda_bytes(void *self) {
    const struct cuda_engine *e = self;
    return e->arena_bytes + e->vector_bytes + e->raw.bytes +
           (e->reduce ? gpu_reduce_bytes(e->reduce) : 0);
}

/* The memory need that chex_cuda_plan checks, for another batch size. Later allocations (vectors,
 * slots for raw batches, driver) come out of the reserve. If they need more than the reserve, they
 * count instead of it. Resident rows do not count: they are optional. */
static uint64_t cuda_bytes_with_batch(void *self, int batch) {
    struct cuda_engine *e = self;
    const size_t arena = chex_cuda_arena_bytes(e, batch), reserve = cuda_reserve_bytes(e);
    const uint64_t later = cuda_bytes(e) - e->arena_bytes - e->raw.bytes +
                           chex_cuda_slots_bytes(e, batch) + cuda_driver_bytes(e);
    return arena == SIZE_MAX ? UINT64_MAX : arena + (later > reserve ? later : reserve);
}

static uint64_t cuda_bytes_left(void *self) {
    (void)self;
    size_t free_bytes = 0, total_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}

/* The precision that every visible device supports: this process may get any of them. */
static enum chex_precision cuda_usual_precision(const char *variant) {
    (void)variant;
    struct chex_gpu_list list;
    if (gpu_devices(&list, NULL) != CHEX_OK)
        return CHEX_FP32;
    int oldest = INT_MAX;
    for (int i = 0; i < list.count; i++)
        oldest = list.gpus[i].capability < oldest ? list.gpus[i].capability : oldest;
    return oldest >= BF16_CAPABILITY ? CHEX_BF16 : oldest >= F16_CAPABILITY ? CHEX_FP16 : CHEX_FP32;
}

/* Every convolution of this engine computes all its products. */
static void cuda_product_shares(void *self, double *share_out) {
    const struct cuda_engine *e = self;
    for (int i = 0; i < e->net->op_count; i++)
        share_out[i] = 1;
}

static const struct chex_engine_maps maps = {chex_cuda_class_maps, chex_cuda_features};
static const struct chex_engine_overlap overlap = {chex_cuda_infer_begin, chex_cuda_infer_end};
static const struct chex_engine_timing timing = {chex_cuda_op_times, cuda_product_shares};
static const struct chex_engine_capacity capacity = {cuda_bytes_with_batch, chex_cuda_limits};
static const struct chex_engine_device device = {cuda_bytes_left, chex_cuda_grad_alloc,
                                                 chex_cuda_grad_free, chex_cuda_reduce_memory};
static const struct chex_engine_hardware hardware = {cuda_usual_precision, gpu_devices};
static const struct chex_engine_resident resident = {chex_cuda_takes_raw, chex_cuda_make_resident};
static const struct chex_engine_choices choices = {chex_cuda_choices_get, chex_cuda_choices_set,
                                                   chex_cuda_choices_measure};

const struct chex_engine_impl chexnet_engine_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs by cuDNN and own kernels (s0, s1, s4, s5)",
    .probe = gpu_probe,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .variant = cuda_variant,
    .bytes = cuda_bytes,
    .set = chex_cuda_set,
    .get = chex_cuda_get,
    .grad_get = chex_cuda_grad_get,
    .infer = chex_cuda_infer,
    .pass = chex_cuda_pass,
    .update = chex_cuda_update,
    .grad_norms = chex_cuda_grad_norms,
    .maps = &maps,
    .overlap = &overlap,
    .timing = &timing,
    .capacity = &capacity,
    .device = &device,
    .hardware = &hardware,
    .resident = &resident,
    .choices = &choices,
};

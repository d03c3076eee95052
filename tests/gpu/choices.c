/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel choices of the CUDA engine, with times that the emulated device makes up: candidates,
 * measurement, cache, texts, and what is left out.
 */
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fs.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/cuda_module.h"
#include "engine/kernel_choices.h"
#include "gpu/gpu_test.h"
#include "op/net.h"

static const struct setting setting = {"dense block", 32, 2, 2, CHEX_BF16};
static const struct chex_engine_choices *entries;
static struct chex_net *net;
static char folder[] = "/tmp/chexnet-choices-XXXXXX", logged[] = "/tmp/chexnet-log-XXXXXX";
static const double plenty_s = 600;

/* Two dense layers: their 3x3 convolutions have the same key. */
static struct chex_net *make_net(void) {
    enum { BLOCK = SMALL_STEM + 2 * 32 };
    struct chex_error err = {0};
    struct chex_net *n = chex_net_new(setting.model, CLASSES);
    n->init = CHEX_INIT_RESNET;
    char name[CHEX_NET_NAME_BYTES];
    const int x = small_stem(n, BLOCK);
    for (int k = 0, channels = SMALL_STEM; k < 2; k++, channels += 32) {
        n->layer++;
        snprintf(name, sizeof name, "layer%d.norm", k);
        struct chex_operand z = {x, channels, chex_net_add_bn(n, name, x, channels)};
        snprintf(name, sizeof name, "layer%d.conv1", k);
        z = small_conv_bn(n, name, z, 128, 1, 1);
        snprintf(name, sizeof name, "layer%d.conv2", k);
        chex_net_add_conv(n, "", name, z, x, channels, 32, 3, 1);
    }
    n->layer++;
    chex_net_add_head(n, "head",
                      (struct chex_operand){x, BLOCK, chex_net_add_bn(n, "norm", x, BLOCK)});
    BAIL_UNLESS(chex_net_finish(n, &err) == CHEX_OK, "%s", err.text);
    return n;
}

static struct cuda_engine *make(void) {
    struct chex_error err = {0};
    void *self = NULL;
    struct chex_engine_config config = test_config(net, &setting);
    config.variant = "s4";
    BAIL_UNLESS(chexnet_engine_cuda.create(&config, &self, &err) == CHEX_OK, "%s", err.text);
    return self;
}

static char *text_of(struct cuda_engine *e) {
    struct chex_error err = {0};
    char *text = NULL;
    BAIL_UNLESS(entries->get(e, &text, &err) == CHEX_OK, "%s", err.text);
    return gt_keep(text);
}

/* Standard error of the code between these two. */
static int saved_stderr;
static void listen(void) {
    fflush(stderr);
    saved_stderr = dup(2);
    const int fd = open(logged, O_WRONLY | O_TRUNC);
    BAIL_UNLESS(saved_stderr >= 0 && fd >= 0 && dup2(fd, 2) == 2, "%s", logged);
    close(fd);
}
static char *heard(void) {
    struct chex_error err = {0};
    char *text = NULL;
    dup2(saved_stderr, 2);
    close(saved_stderr);
    BAIL_UNLESS(chex_fs_read(logged, 1 << 20, &text, NULL, &err) == CHEX_OK, "%s", err.text);
    return gt_keep(text);
}

/* The choices after a measurement; times: of EMULATED_TIMES. */
static char *measured(const char *times, double limit_s) {
    struct chex_error err = {0};
    struct cuda_engine *e = make();
    setenv("EMULATED_TIMES", times, 1);
    const enum chex_status st = entries->measure(e, limit_s, &err);
    unsetenv("EMULATED_TIMES");
    BAIL_UNLESS(st == CHEX_OK, "%s", err.text);
    char *text = text_of(e);
    chexnet_engine_cuda.destroy(e);
    return text;
}

static size_t lines(const char *text) {
    size_t n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void pick(void) {
    const double near[] = {1.02, 1.0, 1.1}, far[] = {1.04, 1.0, 1.0}, gap[] = {0, 3, 2.95};
    const double none[] = {0, 0, 0};
    OK(chex_cuda_fastest(near, 3) == 0, "a difference under 3 %% goes to the first");
    OK(chex_cuda_fastest(far, 3) == 1, "a larger one to the faster, and a tie to its first");
    OK(chex_cuda_fastest(gap, 3) == 1, "what has no time does not count");
    OK(chex_cuda_fastest(none, 3) == -1, "without times there is no choice");
}

static void limits(void) {
    static const char *const bad[] = {"abc", "-1", "2s", "nan", "1e9", " "};
    struct chex_error err = {0};
    double s = 7;
    int refused = 0;
    unsetenv("CHEX_CUDA_MEASURE");
    OK(chex_kernel_measure_limit(&s, &err) == CHEX_OK && s == 0, "nothing is measured unasked");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("CHEX_CUDA_MEASURE", bad[i], 1);
        refused += chex_kernel_measure_limit(&s, &err) == CHEX_E_USAGE;
    }
    OK(refused == 6, "%d of 6 bad values of CHEX_CUDA_MEASURE are refused: %s", refused, err.text);
    setenv("CHEX_CUDA_MEASURE", "1.5", 1);
    OK(chex_kernel_measure_limit(&s, &err) == CHEX_OK && s == 1.5, "seconds are read");
    unsetenv("CHEX_CUDA_MEASURE");
}

static void fixed(void) {
    struct cuda_engine *e = make();
    struct cuda_kernel all[CUDA_CANDIDATES];
    int several = 0, other_first = 0, small = 0;
    for (int i = 0; i < net->op_count; i++)
        for (int backward = 0; backward < 2; backward++) {
            const struct cuda_op *op = &e->ops[i];
            const struct gpu_conv_algo *algo = op->kernel[backward].algo;
            if (!algo)
                continue;
            several += chex_cuda_candidates(e, i, backward, all) > 1;
            other_first += all[0].algo != algo || all[0].variant != 0;
            small +=
                chex_cuda_candidates_bytes(e, i, backward) < chex_cuda_choice_bytes(e, i, backward);
        }
    OK(several > 0 && other_first == 0, "the fixed choice is the first candidate of each of %d",
       several);
    OK(small == 0, "the workspace suffices for every candidate");
    char *text = text_of(e);
    OK(strncmp(text, "device emulated GPU, capability 9.0, 4 multiprocessors\n", 54) == 0,
       "a text begins with the kind of device");
    OK(strstr(text, ": 1x1\n") && strstr(text, ": 3x3\n"), "fixed choices have no variant");
    chexnet_engine_cuda.destroy(e);
}

/* One step; the state after it, and its loss. */
static double step(struct cuda_engine *e, float *state) {
    struct chex_error err = {0};
    const struct chex_batch batch = make_batch(&setting);
    float *begin = make_state(net), *grad = chexnet_engine_cuda.device->grad_alloc(e);
    BAIL_UNLESS(grad, "out of memory");
    const struct chex_update u = {
        .optim = CHEX_SGD, .lr = 0.01, .momentum = 0.9, .step = 1, .grad_scale = 1};
    struct chex_pass_result r;
    const struct chex_engine_impl *impl = &chexnet_engine_cuda;
    BAIL_UNLESS(impl->set(e, CHEX_STATE_PARAMS, begin, &err) == CHEX_OK &&
                    impl->pass(e, &batch, grad, NULL, NULL, &r, &err) == CHEX_OK &&
                    impl->update(e, &u, grad, &err) == CHEX_OK &&
                    impl->get(e, CHEX_STATE_PARAMS, state, &err) == CHEX_OK,
                "%s", err.text);
    impl->device->grad_free(e, grad);
    free(begin);
    free_batch(&batch);
    return r.loss;
}

/* A measurement leaves no trace but the choices, and these are all that the bits depend on. */
static void bits(const char *by_shared, const char *chosen) {
    struct chex_error err = {0};
    const size_t bytes = net->state_count * sizeof(float);
    float *plain = gt_host(net->state_count), *again = gt_host(net->state_count);
    struct cuda_engine *e = make();
    char *first = text_of(e);
    const double loss = step(e, plain);
    chexnet_engine_cuda.destroy(e);

    e = make();
    setenv("EMULATED_TIMES", "shared", 1);
    BAIL_UNLESS(entries->measure(e, plenty_s, &err) == CHEX_OK, "%s", err.text);
    unsetenv("EMULATED_TIMES");
    char *again_by_shared = text_of(e);
    OK(strcmp(again_by_shared, by_shared) == 0, "equal times give equal choices");
    BAIL_UNLESS(entries->set(e, first, &err) == CHEX_OK, "%s", err.text);
    char *back = text_of(e);
    OK(strcmp(first, back) == 0, "the fixed choices can be set again");
    OK(step(e, again) == loss && memcmp(plain, again, bytes) == 0,
       "a measurement leaves no other trace than its choices");
    chexnet_engine_cuda.destroy(e);

    float *one = gt_host(net->state_count), *other = gt_host(net->state_count);
    double losses[2];
    for (int i = 0; i < 2; i++) {
        e = make();
        BAIL_UNLESS(entries->set(e, chosen, &err) == CHEX_OK, "%s", err.text);
        losses[i] = step(e, i ? other : one);
        char *now = text_of(e);
        OK(strcmp(now, chosen) == 0, "an engine uses the choices of another");
        chexnet_engine_cuda.destroy(e);
    }
    OK(losses[0] == losses[1] && memcmp(one, other, bytes) == 0, "equal choices give equal bits");
    OK(fabs(losses[0] - loss) < 1e-2 * loss, "other choices give the same loss within rounding");
}

static void unknown(const char *chosen) {
    struct chex_error err = {0};
    struct cuda_engine *e = make();
    char *text = text_of(e), *at = strstr(text, ": 1x1\n");
    memcpy(at, ": 1y1\n", 6);
    listen();
    const enum chex_status st = entries->set(e, text, &err);
    char *said = heard(), *now = text_of(e);
    OK(st == CHEX_OK && strstr(said, "1 of ") && strstr(said, "do not exist here (the first: "),
       "a kernel that this build does not have is reported: %s", said);
    OK(lines(now) == lines(text) && strstr(now, ": 1x1\n"), "the fixed one takes its place");
    OK(chex_kernel_same_device(text, now) && chex_kernel_same_device(now, chosen) &&
           !chex_kernel_same_device(now, "device other\n") && !chex_kernel_same_device(now, ""),
       "another kind of device is known by the first line");
    chexnet_engine_cuda.destroy(e);
}

/* The only file of the cache. */
static char *cache_file(void) {
    char *path = NULL;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (e->d_name[0] != '.' && !path)
            path = chex_fs_join(folder, e->d_name);
    if (d)
        closedir(d);
    BAIL_UNLESS(path, "%s holds no file", folder);
    return gt_keep(path);
}

/* Choices by either kind of times. */
static void cache(char **by_shared, char **by_unshared) {
    struct chex_error err = {0};
    setenv("CHEX_CACHE_DIR", folder, 1);
    *by_shared = measured("shared", plenty_s);
    char *kept = measured("unshared", plenty_s), *path = cache_file(), *data = NULL;
    OK(strcmp(kept, *by_shared) == 0, "the cache spares a measurement");
    size_t size = 0;
    BAIL_UNLESS(chex_fs_read(path, 1 << 20, &data, &size, &err) == CHEX_OK, "%s", err.text);
    data[size / 2] ^= 1;
    BAIL_UNLESS(chex_fs_write(path, data, size, &err) == CHEX_OK, "%s", err.text);
    listen();
    *by_unshared = measured("unshared", plenty_s);
    char *said = heard();
    OK(strcmp(*by_unshared, *by_shared) != 0 && strstr(said, "damaged") && strstr(said, path),
       "a damaged file is reported, and measured again");
    kept = measured("shared", plenty_s);
    OK(strcmp(kept, *by_unshared) == 0, "the new measurement takes its place");
    free(data);
    BAIL_UNLESS(chex_fs_remove_tree(folder, &err) == CHEX_OK, "%s", err.text);
    setenv("CHEX_CACHE_DIR", "", 1);
}

/* ---- what is left out ---- */

static cudaError_t other_numbers(const struct gpu_device *device, const void *state,
                                 const struct gpu_conv_forward *f, void *workspace,
                                 cudaStream_t stream) {
    const cudaError_t st = gpu_conv_algo_1x1.forward(device, state, f, workspace, stream);
    float *mean = f->stats.mean + f->out.channels / 2; /* of one channel */
    return st != cudaSuccess ? st : cudaMemsetAsync(mean, 0, sizeof *mean, stream);
}
static cudaError_t no_launch(const struct gpu_device *device, const void *state,
                             const struct gpu_conv_forward *f, void *workspace,
                             cudaStream_t stream) {
    (void)device, (void)state, (void)f, (void)workspace, (void)stream;
    return cudaErrorInvalidValue;
}

static void left_out(void) {
    struct chex_error err = {0};
    struct gpu_conv_algo wrong = gpu_conv_algo_1x1, refused = gpu_conv_algo_1x1;
    struct cuda_engine *e = make();
    int op = 0, best = 9;
    while (e->ops[op].kernel[0].algo != &gpu_conv_algo_1x1)
        op++;
    wrong.name = "wrong";
    wrong.forward = other_numbers;
    refused.name = "refused";
    refused.forward = no_launch;
    const struct cuda_kernel all[] = {
        {.algo = &refused}, {.algo = &gpu_conv_algo_1x1}, {.algo = &wrong}};
    BAIL_UNLESS(chex_cuda_measure_begin(e, &err) == CHEX_OK, "%s", err.text);
    setenv("EMULATED_TIMES", "shared", 1);
    listen();
    enum chex_status st = chex_cuda_measure(e, op, false, all, 3, &best, &err);
    char *said = heard();
    OK(st == CHEX_OK && best == 1,
       "a kernel that is refused or computes other numbers is left out");
    OK(strstr(said, "by refused: left out, it cannot be launched: ") &&
           strstr(said, "by wrong: left out, its results differ by ") && lines(said) == 2,
       "both are reported: %s", said);
    listen();
    st = chex_cuda_measure(e, op, false, all, 1, &best, &err);
    said = heard();
    OK(st == CHEX_OK && best == 0 && lines(said) == 1, "if none is left, the choice is the first");
    unsetenv("EMULATED_TIMES");
    chexnet_engine_cuda.destroy(e);
}

/* Last: the device is of no use afterwards. */
static void broken(void) {
    struct chex_error err = {0};
    struct cuda_engine *e = make();
    setenv("EMULATED_FAULT", "2", 1);
    const enum chex_status st = entries->measure(e, plenty_s, &err);
    unsetenv("EMULATED_FAULT");
    OK(st == CHEX_E_FAIL && strstr(err.text, "CHEX_CUDA_MEASURE=0 leaves it out"),
       "a kernel that fails as it runs ends the measurement: %s", err.text);
    chexnet_engine_cuda.destroy(e);
}

int main(void) {
    entries = chexnet_engine_cuda.choices;
    const int fd = mkstemp(logged);
    BAIL_UNLESS(mkdtemp(folder) && fd >= 0, "/tmp");
    close(fd);
    setenv("CHEX_CACHE_DIR", "", 1);
    net = make_net();
    pick();
    limits();
    fixed();
    char *by_shared = NULL, *by_unshared = NULL, *unmeasured = measured("shared", 1e-9);
    OK(lines(unmeasured) > 1 && strstr(unmeasured, ": 3x3\n"),
       "without time the choices stay the fixed ones");
    cache(&by_shared, &by_unshared);
    printf("# %s", by_shared);
    bits(by_shared, by_unshared);
    unknown(by_shared);
    left_out();
    broken();
    gt_release_all();
    chex_net_destroy(net);
    unlink(logged);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of plans: what is kept comes back, what is broken or foreign counts as missing, and
 * nothing fails. Then with plans of cuDNN's, for a device known by its properties.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "engine/cuda/host/device_cache.h"
#include "gpu-dnn/recorded.h"
#include "tap.h"

static char folder[] = "/tmp/chexnet-plans-XXXXXX";

/* The only file of the folder, in fresh memory; NULL: there is not exactly one. */
static char *only_file(void) {
    char *path = NULL;
    int count = 0;
    DIR *d = opendir(folder);
    BAIL_UNLESS(d, "%s", folder);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (e->d_name[0] != '.') {
            free(path);
            path = chex_fs_join(folder, e->d_name);
            count++;
        }
    closedir(d);
    if (count != 1) {
        free(path);
        return NULL;
    }
    return path;
}

static void empty_folder(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_remove_tree(folder, &err) == CHEX_OK, "%s", err.text);
}

static bool comes_back(const char *key, const char *plan) {
    size_t size = 0;
    char *got = gpu_cache_get(folder, GPU_CACHE_PLAN, key, &size);
    const bool same = got && size == strlen(plan) && strcmp(got, plan) == 0;
    free(got);
    return same;
}

static void folders(void) {
    setenv("CHEX_CACHE_DIR", "/a", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    static const char *const want[] = {"/a", NULL, "/x/chexnet", "/h/.cache/chexnet", NULL};
    for (int i = 0; i < 5; i++) {
        char *got = gpu_cache_folder();
        OK(want[i] ? got && strcmp(got, want[i]) == 0 : !got, "the folder is %s",
           got ? got : "none");
        free(got);
        if (i == 0)
            setenv("CHEX_CACHE_DIR", "", 1);
        else if (i == 1)
            unsetenv("CHEX_CACHE_DIR");
        else if (i == 2)
            setenv("XDG_CACHE_HOME", "relative", 1);
        else
            unsetenv("HOME");
    }
}

static void damaged(const char *data, size_t size, size_t at) {
    struct chex_error err = {0};
    char *copy = malloc(size), *path = only_file();
    BAIL_UNLESS(copy && path, "out of memory");
    memcpy(copy, data, size);
    copy[at] ^= 1;
    BAIL_UNLESS(chex_fs_write(path, copy, size, &err) == CHEX_OK, "%s", err.text);
    free(copy);
    free(path);
}

static void files(void) {
    struct chex_error err = {0};
    char *data = NULL;
    size_t size = 0, refused = 0;
    OK(!comes_back("key", "plan"), "nothing is there at first");
    OK(gpu_cache_put(folder, GPU_CACHE_PLAN, "key", "plan one", 8) && comes_back("key", "plan one"),
       "a plan comes back, and the folder is made for it");
    OK(gpu_cache_put(folder, GPU_CACHE_PLAN, "key", "plan two", 8) && comes_back("key", "plan two"),
       "a later plan takes its place");
    OK(!comes_back("kez", "plan two"), "another key has none");
    char *path = only_file();
    BAIL_UNLESS(path && chex_fs_read(path, 1 << 16, &data, &size, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < size; i++) {
        damaged(data, size, i);
        size_t unused;
        char *got = gpu_cache_get(folder, GPU_CACHE_PLAN, "key", &unused);
        refused += !got;
        free(got);
    }
    OK(refused == size, "%zu of %zu files with one bit changed are refused", refused, size);
    for (size_t i = refused = 0; i < size; i++) {
        BAIL_UNLESS(chex_fs_write(path, data, i, &err) == CHEX_OK, "%s", err.text);
        size_t unused;
        char *got = gpu_cache_get(folder, GPU_CACHE_PLAN, "key", &unused);
        refused += !got;
        free(got);
    }
    OK(refused == size, "%zu of %zu cut files are refused", refused, size);
    OK(gpu_cache_put(folder, GPU_CACHE_PLAN, "key", "plan", 4) && comes_back("key", "plan"),
       "a broken file is replaced");
    gpu_cache_drop(folder, GPU_CACHE_PLAN, "key");
    OK(!comes_back("key", "plan"), "a dropped plan is gone");
    gpu_cache_drop(folder, GPU_CACHE_PLAN, "key");
    free(data);
    free(path);
    empty_folder();
}

static void unwritable(void) {
    OK(!gpu_cache_put("/proc/chexnet-plans", GPU_CACHE_PLAN, "key", "plan", 4) &&
           !gpu_cache_put("/dev/null/plans", GPU_CACHE_PLAN, "key", "plan", 4),
       "a folder that cannot be made is no failure");
    size_t size;
    OK(!gpu_cache_get("/dev/null/plans", GPU_CACHE_PLAN, "key", &size),
       "nor is one that cannot be read");
}

/* ---- with cuDNN ---- */

static enum chex_status plan(const struct dnn_target *target, int channels, size_t *workspace_out,
                             struct chex_error *err) {
    struct dnn_graph g;
    struct dnn_plan p = {0};
    const struct gpu_map x = {NULL, GPU_BF16, 4, 14, 128, 128};
    const struct gpu_map y = {NULL, GPU_BF16, 4, 14, channels, 256};
    dnn_forward(&g, &x, (struct gpu_window){3, 1, 1}, &y);
    const enum chex_status status = dnn_graph_plan(&g, target, false, folder, &p, err);
    *workspace_out = p.workspace;
    dnn_plan_release(&p);
    dnn_graph_release(&g);
    return status;
}

static void plans(void) {
    struct chex_error err = {0};
    struct dnn_target target;
    char *json = NULL, *again = NULL, *data = NULL;
    size_t first = 1, second = 2, size = 0;
    BAIL_UNLESS(chex_fs_read(TEST_DATA "/gpu/cudnn-h200-90.json", 1 << 16, &json, NULL, &err) ==
                    CHEX_OK,
                "%s", err.text);
    BAIL_UNLESS(recorded_target(json, &target, &err) == CHEX_OK, "%s", err.text);
    OK(record_target(&target, &again, &err) == CHEX_OK && strstr(again, "NVIDIA H200"),
       "a device's properties can be recorded");
    free(again);
    OK_STATUS(plan(&target, 32, &first, &err), CHEX_OK, err, NULL);
    char *path = only_file();
    OK(path, "the plan is kept");
    BAIL_UNLESS(path && chex_fs_read(path, 1 << 26, &data, &size, &err) == CHEX_OK, "%s", err.text);
    struct stat before, after;
    BAIL_UNLESS(stat(path, &before) == 0, "%s", path);
    char *mended = NULL;
    size_t mended_size = 0;
    OK_STATUS(plan(&target, 32, &second, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(stat(path, &after) == 0, "%s", path);
    OK(first == second && before.st_ino == after.st_ino &&
           before.st_mtim.tv_nsec == after.st_mtim.tv_nsec,
       "the second time it is read (%zu bytes, workspace %zu, %zu)", size, first, second);
    damaged(data, size, size - 2);
    OK_STATUS(plan(&target, 32, &second, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(chex_fs_read(path, 1 << 26, &mended, &mended_size, &err) == CHEX_OK, "%s",
                err.text);
    OK(first == second && size == mended_size && memcmp(data, mended, size) == 0,
       "a broken one is made anew");
    free(mended);
    free(path);
    OK_STATUS(plan(&target, 64, &second, &err), CHEX_OK, err, NULL);
    path = only_file();
    OK(!path, "another shape has another plan");
    free(path);
    OK_STATUS(recorded_target("{\"deviceVer\":", &target, &err), CHEX_E_FAIL, err, "cuDNN: ");
    free(data);
    free(json);
    dnn_target_close(&target);
    empty_folder();
}

int main(void) {
    if (getenv("VERBOSE"))
        chex_log_set_level(CHEX_LOG_DEBUG);
    BAIL_UNLESS(mkdtemp(folder), "%s", folder);
    folders();
    files();
    unwritable();
    plans();
    return tap_done();
}

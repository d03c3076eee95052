/* SPDX-License-Identifier: Apache-2.0 */
#include "base/module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

/* The folders that may hold modules: CHEX_LIBDIR alone where it is set, else beside the executable
 * (build tree: DIR/bin and DIR/lib; installed: PREFIX/bin and PREFIX/LIBDIR). */
static char *module_path(const char *name) {
    const char *set = getenv("CHEX_LIBDIR");
    if (set && *set)
        return chex_fs_format("%s/chexnet-%s.so", set, name);
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = '\0';
        char *slash = strrchr(exe, '/');
        if (slash)
            *slash = '\0';
        static const char installed[] = "../" CHEXNET_MODULE_SUBDIR;
        const char *const near[] = {"../lib", installed, "../../lib"};
        for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
            char *path = chex_fs_format("%s/%s/chexnet-%s.so", exe, near[i], name);
            if (!path || chex_fs_exists(path))
                return path;
            free(path);
        }
    }
    return chex_fs_format("%s/chexnet-%s.so", CHEXNET_MODULE_DIR, name);
}

bool chex_module_installed(const char *name) {
    char *path = module_path(name);
    const bool there = path && chex_fs_exists(path);
    free(path);
    return there;
}

typedef void (*adopt_fn)(struct chex_log_sink *);

static void share_log(void *handle) {
    adopt_fn adopt;
    void *symbol = dlsym(handle, "chexnet_module_adopt");
    memcpy(&adopt, &symbol, sizeof adopt); /* POSIX allows it, ISO C has no cast for it */
    if (symbol)
        adopt(chex_log_current());
}

enum chex_status chex_module_symbol(const char *name, const char *symbol, void **symbol_out,
                                    struct chex_error *err) {
    char *path = module_path(name);
    if (!path)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = CHEX_OK;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *version = handle ? dlsym(handle, "chexnet_module_version") : NULL;
    void *address = handle ? dlsym(handle, symbol) : NULL;
    if (!handle)
        st = chex_error_set(err, CHEX_E_ENV, "module chexnet-%s.so: %s", name, dlerror());
    else if (!version || strcmp(version, CHEXNET_VERSION) != 0)
        st = chex_error_set(err, CHEX_E_ENV, "module %s is of version %s, this is %s: reinstall",
                            path, version ? version : "unknown", CHEXNET_VERSION);
    else if (!address)
        st = chex_error_set(err, CHEX_E_ENV, "module %s has no %s: reinstall", path, symbol);
    if (st == CHEX_OK) {
        share_log(handle);
        *symbol_out = address;
    }
    free(path);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, opens and checks the loadable modules (chexnet-NAME.so).
 */
#include "base/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

/* Set in build trees only. A program below this folder uses the modules in its folder lib. An
 * installed program is elsewhere and never looks there. */
#ifndef CHEXNET_BUILD_DIR
#define CHEXNET_BUILD_DIR ""
#endif

static bool is_below(const char *path, const char *folder) {
    const size_t n = strlen(folder);
    return n > 0 && strncmp(path, folder, n) == 0 && path[n] == '/';
}

/* The folder of modules: CHEX_LIBDIR if set; for a program of the build tree, its lib; else the
 * installed folder, relative to the program, so that an installed tree can be moved. */
static char *module_folder(void) {
    const char *set = getenv("CHEX_LIBDIR");
    char exe[4096];
    if (set && *set)
        return strdup(set);
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return strdup(CHEXNET_MODULE_DIR);
    exe[n] = '\0';
    if (is_below(exe, CHEXNET_BUILD_DIR "/bin") || is_below(exe, CHEXNET_BUILD_DIR "/tests"))
        return strdup(CHEXNET_BUILD_DIR "/lib");
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    return chex_fs_format("%s/../" CHEXNET_MODULE_SUBDIR, exe);
}

char *chex_module_file(const char *file) {
    char *folder = module_folder();
    char *path = folder ? chex_fs_format("%s/%s", folder, file) : NULL;
    free(folder);
    return path;
}

static char *module_path(const char *name) {
    char file[64];
    snprintf(file, sizeof file, "chexnet-%s.so", name);
    return chex_module_file(file);
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
        return chex_error_memory(err, NULL);
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
    } else if (handle) {
        dlclose(handle);
    }
    free(path);
    return st;
}

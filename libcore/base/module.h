/* SPDX-License-Identifier: Apache-2.0
 *
 * Loadable modules: chexnet-mpi.so, chexnet-cuda.so and others are opened at run time, so one
 * installed tree serves nodes with and without their libraries.
 */
#ifndef CHEX_BASE_MODULE_H
#define CHEX_BASE_MODULE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

/* Opens `chexnet-NAME.so` and returns the address of `symbol`.
 * - Folder: CHEX_LIBDIR if set; else `lib` of the build tree, for a program of the build tree; else
 *   the module folder of the installed tree. No other folder is searched.
 * - The module's `chexnet_module_version` must equal ours.
 * - CHEX_E_ENV: the module cannot be used; the text is the loader's.
 * - The module stays open until the process ends. */
enum chex_status chex_module_symbol(const char *name, const char *symbol, void **symbol_out,
                                    struct chex_error *err);

/* Whether the module's file exists. If it exists and cannot be opened, a library is missing on this
 * node, or the module is from another build. */
bool chex_module_installed(const char *name);

/* The path of a file in the folder of the modules. The caller frees it; NULL: out of memory. */
char *chex_module_file(const char *file);

/* Each module contains this macro once. It gives the module's version and connects its log to the
 * command's log. */
#define CHEX_MODULE_VERSION_SYMBOL                                                                 \
    __attribute__((visibility("default"))) extern const char chexnet_module_version[];             \
    const char chexnet_module_version[] = CHEXNET_VERSION;                                         \
    __attribute__((visibility("default"))) void chexnet_module_adopt(struct chex_log_sink *sink);  \
    void chexnet_module_adopt(struct chex_log_sink *sink) { chex_log_adopt(sink); }

#endif

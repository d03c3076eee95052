/* SPDX-License-Identifier: Apache-2.0
 *
 * Loadable parts: chexnet-mpi.so, chexnet-cuda.so, chexnet-dicom.so are opened at run time, so one
 * installed tree serves nodes with and without them.
 */
#ifndef CHEX_BASE_MODULE_H
#define CHEX_BASE_MODULE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/log.h"

/* Opens `chexnet-NAME.so` from CHEX_LIBDIR, the folder of the build tree, or the installed libdir,
 * in that order, checks that its `chexnet_module_version` equals ours, and returns the address of
 * `symbol`. CHEX_E_ENV with the loader's own text when it cannot be used. The module stays open
 * until the process ends. */
enum chex_status chex_module_symbol(const char *name, const char *symbol, void **symbol_out,
                                    struct chex_error *err);

/* Whether there is such a file: one that is there and cannot be used lacks a library here, or is of
 * another build. */
bool chex_module_installed(const char *name);

/* Each module has this line once, so that modules of another build are refused, and what it logs
 * goes where the command's lines go. */
#define CHEX_MODULE_VERSION_SYMBOL                                                                 \
    __attribute__((visibility("default"))) extern const char chexnet_module_version[];             \
    const char chexnet_module_version[] = CHEXNET_VERSION;                                         \
    __attribute__((visibility("default"))) void chexnet_module_adopt(struct chex_log_sink *sink);  \
    void chexnet_module_adopt(struct chex_log_sink *sink) { chex_log_adopt(sink); }

#endif

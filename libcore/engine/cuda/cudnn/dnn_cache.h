/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of serialised cuDNN plans, so that a run reuses the code that an earlier run generated.
 *   - File name: hash of the key. The file also holds the key, which is compared.
 *   - A broken file, or one of another version or key, counts as missing.
 *   - Errors never stop a run; they are logged at debug level.
 *   - Several processes may use one folder at the same time: files appear atomically.
 */
#ifndef CHEX_ENGINE_CUDA_CUDNN_DNN_CACHE_H
#define CHEX_ENGINE_CUDA_CUDNN_DNN_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* $CHEX_CACHE_DIR, else $XDG_CACHE_HOME/chexnet, else ~/.cache/chexnet. The caller frees it.
 * NULL: no cache (CHEX_CACHE_DIR is empty, or HOME is not set). */
char *dnn_cache_folder(void);

/* The plan stored under `key`, terminated by a NUL byte that size_out does not count; NULL: no such
 * plan. The caller frees it. */
char *dnn_cache_get(const char *folder, const char *key, size_t *size_out);

/* Stores the plan. true: the file is written. */
bool dnn_cache_put(const char *folder, const char *key, const char *plan, size_t size);

/* Deletes the plan; for plans that cuDNN could not load. */
void dnn_cache_drop(const char *folder, const char *key);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of what was made for a device and takes long to make again: serialised cuDNN plans, and
 * measured choices of kernels.
 *   - File name: hash of the key, and the kind. The file also holds the key, which is compared.
 *   - A damaged file, or one of another version, counts as missing, with a warning.
 *   - Other errors never stop a run; they are logged at debug level.
 *   - Several processes may use one folder at the same time: files appear atomically.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_DEVICE_CACHE_H
#define CHEX_ENGINE_CUDA_HOST_DEVICE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#define GPU_CACHE_PLAN "plan"
#define GPU_CACHE_CHOICES "choices"

/* $CHEX_CACHE_DIR, else $XDG_CACHE_HOME/chexnet, else ~/.cache/chexnet. The caller frees it.
 * NULL: no cache (CHEX_CACHE_DIR is empty, or HOME is not set). */
char *gpu_cache_folder(void);

/* The content stored under `key`, terminated by a NUL byte that size_out does not count; NULL: none
 * is stored. folder NULL: no cache. The caller frees it. */
char *gpu_cache_get(const char *folder, const char *kind, const char *key, size_t *size_out);

/* Stores it. true: the file is written. */
bool gpu_cache_put(const char *folder, const char *kind, const char *key, const char *content,
                   size_t size);

/* Deletes it; for content that could not be used. */
void gpu_cache_drop(const char *folder, const char *kind, const char *key);

#endif

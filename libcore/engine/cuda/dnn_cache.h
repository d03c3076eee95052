/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of serialised plans, so that a run does not generate code that an earlier one did. A
 * file is named after its key's hash and holds the key itself, which is compared; a file that is
 * broken, of another version or of another key counts as missing. Nothing here fails a run: what
 * goes wrong is a debug line. Several processes may use one folder at the same time: files appear
 * whole.
 */
#ifndef CHEX_ENGINE_CUDA_DNN_CACHE_H
#define CHEX_ENGINE_CUDA_DNN_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* $CHEX_CACHE_DIR, else $XDG_CACHE_HOME/chexnet, else ~/.cache/chexnet, in fresh memory; the caller
 * frees. NULL where none is to be had (CHEX_CACHE_DIR is empty, or there is no home). */
char *dnn_cache_folder(void);

/* The plan kept under `key` in fresh memory with a NUL behind it, or NULL. The caller frees. */
char *dnn_cache_get(const char *folder, const char *key, size_t *size_out);

/* Keeps it. true: it is there. */
bool dnn_cache_put(const char *folder, const char *key, const char *plan, size_t size);

/* Forgets it: a plan that cuDNN did not take back. */
void dnn_cache_drop(const char *folder, const char *key);

#endif

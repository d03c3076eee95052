/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of the cache. Format: a line "chexnet-KIND 1 KEY_BYTES CONTENT_BYTES HASH", then the key,
 * then the content. HASH covers both.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/cuda/host/device_cache.h"

/* A cuDNN plan with its generated code has about 100 KB. */
enum { FILE_LIMIT_BYTES = 64 << 20, HEAD_BYTES = 128 };

char *gpu_cache_folder(void) {
    const char *own = getenv("CHEX_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (own)
        return *own ? chex_fs_format("%s", own) : NULL;
    if (xdg && *xdg == '/') /* the XDG specification: ignore relative paths */
        return chex_fs_format("%s/chexnet", xdg);
    return home && *home ? chex_fs_format("%s/.cache/chexnet", home) : NULL;
}

static char *file_of(const char *folder, const char *kind, const char *key) {
    char hex[CHEX_HASH128_HEX_BYTES];
    chex_hash128_hex(key, strlen(key), hex);
    return folder ? chex_fs_format("%s/%s.%s", folder, hex, kind) : NULL;
}

static uint64_t digest(const char *key, const char *content, size_t size) {
    return chex_hash64_mix(chex_hash64_mix(0, key, strlen(key)), content, size);
}

/* Offset of the content in the file's bytes; 0: the file is damaged or has another key. */
static size_t checked(const char *data, size_t size, const char *kind, const char *key,
                      size_t *content_size_out) {
    const size_t key_size = strlen(key);
    unsigned long long keys = 0, contents = 0, hash = 0;
    char kept_kind[16];
    int head = 0;
    if (sscanf(data, "chexnet-%15s 1 %llu %llu %llx%n", kept_kind, &keys, &contents, &hash,
               &head) != 4 ||
        data[head] != '\n' || strcmp(kept_kind, kind) != 0)
        return 0;
    const size_t from = (size_t)head + 1;
    if (keys != key_size || contents == 0 || size < from + key_size ||
        contents != size - from - key_size || memcmp(data + from, key, key_size) != 0 ||
        hash != digest(key, data + from + key_size, (size_t)contents))
        return 0;
    *content_size_out = (size_t)contents;
    return from + key_size;
}

char *gpu_cache_get(const char *folder, const char *kind, const char *key, size_t *size_out) {
    struct chex_error err = {0};
    CHEX_AUTO_FREE char *path = file_of(folder, kind, key), *data = NULL;
    size_t size = 0, content_size = 0, from = 0;
    if (!path || access(path, F_OK) != 0)
        return NULL;
    if (chex_fs_read(path, FILE_LIMIT_BYTES, &data, &size, &err) != CHEX_OK)
        chex_debug("cache: %s", err.text);
    else if (!(from = checked(data, size, kind, key, &content_size)))
        chex_warn("cache: %s: damaged, or of another version: it is made again", path);
    if (!from)
        return NULL;
    memmove(data, data + from, content_size);
    data[content_size] = '\0';
    *size_out = content_size;
    return CHEX_TAKE(data);
}

bool gpu_cache_put(const char *folder, const char *kind, const char *key, const char *content,
                   size_t size) {
    struct chex_error err = {0};
    const size_t key_size = strlen(key);
    CHEX_AUTO_FREE char *path = file_of(folder, kind, key);
    CHEX_AUTO_FREE char *data = malloc(HEAD_BYTES + key_size + size);
    if (!path || !data || size > FILE_LIMIT_BYTES - HEAD_BYTES - key_size)
        return false;
    const int head = snprintf(data, HEAD_BYTES, "chexnet-%s 1 %zu %zu %016llx\n", kind, key_size,
                              size, (unsigned long long)digest(key, content, size));
    memcpy(data + head, key, key_size);
    memcpy(data + head + key_size, content, size);
    const bool kept = chex_fs_mkdirs(folder, &err) == CHEX_OK &&
                      chex_fs_write(path, data, (size_t)head + key_size + size, &err) == CHEX_OK;
    if (!kept)
        chex_debug("cache: %s", err.text);
    return kept;
}

void gpu_cache_drop(const char *folder, const char *kind, const char *key) {
    CHEX_AUTO_FREE char *path = file_of(folder, kind, key);
    if (path && unlink(path) == 0)
        chex_debug("cache: %s: it cannot be used. It is made again.", path);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises PyTorch and HDF5 files by their first bytes, and says how to convert them.
 */
#include "model/foreign.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

enum { HEAD_BYTES = 8 };

/* Reads the first bytes of a regular file, with zeros after its end. Returns the number of bytes
 * read; 0 if it cannot be read. */
static size_t read_head(const char *path, unsigned char head[HEAD_BYTES]) {
    int fd = -1;
    memset(head, 0, HEAD_BYTES);
    if (chex_fs_open(path, &fd, NULL, NULL) != CHEX_OK)
        return 0;
    const size_t n = chex_fs_pread(fd, head, HEAD_BYTES, 0);
    close(fd);
    return n;
}

/* Whether the file is a pickle of protocol 2 to 5. A safetensors file may begin with the same two
 * bytes: it starts with the 64-bit length of its header. But that length is less than 2^32, so the
 * upper four bytes are zero. */
static bool is_pickle(const unsigned char head[HEAD_BYTES], size_t n) {
    static const unsigned char zeros[4];
    return n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 &&
           (n < HEAD_BYTES || memcmp(head + 4, zeros, sizeof zeros) != 0);
}

enum chex_status chex_model_refuse_pytorch(const char *path, struct chex_error *err) {
    unsigned char head[HEAD_BYTES];
    const size_t n = read_head(path, head);
    if (!is_pickle(head, n) && (n < 4 || memcmp(head, "PK\3\4", 4) != 0))
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_DATA,
        "%.150s: a PyTorch file, expected safetensors; convert it in Python: "
        "import torch, safetensors.torch as s; d = torch.load('FILE', map_location='cpu'); "
        "s.save_file({k: v.contiguous() for k, v in d.get('state_dict', d).items()}, "
        "'FILE.safetensors')",
        path);
}

enum chex_status chex_model_refuse_hdf5(const char *path, struct chex_error *err) {
    unsigned char head[HEAD_BYTES];
    if (read_head(path, head) < HEAD_BYTES || memcmp(head, "\x89HDF\r\n\x1a\n", HEAD_BYTES) != 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%.150s: an HDF5 file, expected safetensors; convert a checkpoint with "
                          "'chex-eval export --checkpoint FILE --output FILE.safetensors'",
                          path);
}

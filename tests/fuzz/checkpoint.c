/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of checkpoints over a file whose bytes are changed as the input says. The parameters
 * are left out: the head comes first.
 */
#include <hdf5.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../h5_seal.h"
#include "fuzz.h"
#include "hdf5_options.h"
#include "model/checkpoint.h"

static char path[] = "/tmp/chex-fuzz-checkpoint.XXXXXX";
static uint8_t *sound;
static size_t sound_bytes;

static void put_text(hid_t file, const char *name, const char *flat, size_t width, hsize_t count) {
    hid_t type = H5Tcopy(H5T_C_S1), space;
    H5Tset_size(type, width);
    space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    FUZZ_CHECK(H5Awrite(a, type, flat) >= 0);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

static void put_number(hid_t file, const char *name, int64_t value) {
    hid_t space = H5Screate(H5S_SCALAR);
    hid_t a = H5Acreate2(file, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    FUZZ_CHECK(H5Awrite(a, H5T_NATIVE_INT64, &value) >= 0);
    H5Aclose(a);
    H5Sclose(space);
}

static void prepare(void) {
    struct stat info;
    if (sound)
        return;
    const int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    put_text(file, "format", "chexnet-checkpoint", 18, 0);
    put_number(file, "version", 1);
    put_text(file, "model", "densenet121", 11, 0);
    put_text(file, "classes", "Mass\0\0Nodule", 6, 2);
    put_number(file, "image_size", 64);
    put_text(file, "meta", "{\"epoch\":7}", 11, 0);
    H5Gclose(H5Gcreate2(file, "params", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    FUZZ_CHECK(H5Fclose(file) >= 0 && h5_seal_again(path));
    FUZZ_CHECK(fstat(fd, &info) == 0);
    sound_bytes = (size_t)info.st_size;
    sound = malloc(sound_bytes);
    FUZZ_CHECK(sound && pread(fd, sound, sound_bytes, 0) == (ssize_t)sound_bytes);
    close(fd);
}

static void remove_file(void) { unlink(path); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    struct chex_error err = {0};
    struct chex_checkpoint *c = NULL;
    struct chex_net *net = NULL;
    char *meta = NULL;
    if (!sound)
        atexit(remove_file);
    prepare();
    uint8_t *bytes = fuzz_flip(sound, sound_bytes, &in);
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(bytes && f && fwrite(bytes, 1, sound_bytes, f) == sound_bytes);
    fclose(f);
    free(bytes);
    enum chex_status st = chex_checkpoint_read_meta(path, &meta, &err);
    FUZZ_CHECK((st == CHEX_OK) == (meta != NULL) && (st == CHEX_OK || err.text[0]));
    FUZZ_CHECK(st != CHEX_E_RESOURCE);
    free(meta);
    /* It has no parameters, so it is never whole. */
    FUZZ_CHECK(chex_checkpoint_read(path, true, &net, &c, &err) != CHEX_OK && err.text[0]);
    FUZZ_CHECK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
    return 0;
}

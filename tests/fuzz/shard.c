/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard file or a manifest that somebody changed: refused with one error text, or a shard that
 * keeps what shard.h promises.
 *
 * Any bytes as an HDF5 file would test HDF5, not us, and 1.10 has faults of its own. So the first
 * byte chooses: a manifest of the rest; or a small sound shard in memory, the rest being a list of
 * changes made to it through HDF5 (attributes, datasets, their types and shapes), or the offset of
 * the images overwritten in the file's bytes. The checksum record is written again after a change.
 */
#include <hdf5.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../h5_seal.h"
#include "../sample_shard.h"
#include "fuzz.h"
#include "hdf5_options.h"
#include "shard/manifest.h"
#include "shard/shard.h"

enum { ROWS = 4, SIZE = 8 };

static char folder[] = "/tmp/chex-fuzz-shard.XXXXXX";
static char shard_path[64], manifest_path[64];
static uint8_t *sound; /* with its checksum record */
static size_t sound_bytes;

static void remove_folder(void) {
    unlink(shard_path);
    unlink(manifest_path);
    rmdir(folder);
}

static uint8_t *read_shard(size_t *bytes_out) {
    struct stat info;
    FILE *f = fopen(shard_path, "rb");
    FUZZ_CHECK(f && stat(shard_path, &info) == 0);
    uint8_t *bytes = malloc((size_t)info.st_size);
    *bytes_out = (size_t)info.st_size;
    FUZZ_CHECK(bytes && fread(bytes, 1, *bytes_out, f) == *bytes_out);
    fclose(f);
    return bytes;
}

static void prepare(void) {
    if (sound)
        return;
    FUZZ_CHECK(mkdtemp(folder));
    atexit(remove_folder);
    snprintf(shard_path, sizeof shard_path, "%s/x.h5", folder);
    snprintf(manifest_path, sizeof manifest_path, "%s/" CHEX_MANIFEST_NAME, folder);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    FUZZ_CHECK(sample_shard_write(shard_path, ROWS, SIZE, NULL) == CHEX_OK);
    sound = read_shard(&sound_bytes);
}

static void write_file(const char *path, const void *data, size_t size) {
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, size, f) == size);
    fclose(f);
}

static hid_t some_type(struct input *in) {
    const hid_t types[] = {H5T_STD_U8LE,  H5T_STD_I8LE,   H5T_STD_I16LE, H5T_STD_U64LE,
                           H5T_STD_U64BE, H5T_IEEE_F32LE, H5T_STD_I64BE, H5T_C_S1};
    unsigned which = take(in), bytes = take(in);
    hid_t type = H5Tcopy(types[which % (sizeof types / sizeof types[0])]);
    if (which % (sizeof types / sizeof types[0]) == 7)
        H5Tset_size(type, bytes == 255 ? H5T_VARIABLE : bytes + 1);
    return type;
}

static hid_t some_space(struct input *in) {
    hsize_t dims[4];
    int rank = (int)(take(in) % 5);
    for (int i = 0; i < rank; i++)
        dims[i] = take(in) % 12;
    return rank ? H5Screate_simple(rank, dims, NULL) : H5Screate(H5S_SCALAR);
}

/* Up to 4 KiB of the input's bytes, zeros after them. */
static const uint8_t *some_values(struct input *in) {
    static uint8_t values[12 * 12 * 12 * 12 * 256];
    size_t n = in->size < 4096 ? in->size : 4096;
    memset(values, 0, 4096);
    memcpy(values, in->data, n);
    return values;
}

static void change_attribute(hid_t file, struct input *in) {
    static const char *const names[] = {"format", "version", "classes",       "size",
                                        "resize", "split",   "source_digest", "tool_version"};
    const char *name = names[take(in) % (sizeof names / sizeof names[0])];
    H5Adelete(file, name);
    hid_t type = some_type(in), space = some_space(in);
    hid_t attr = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attr >= 0 && H5Tis_variable_str(type) <= 0)
        H5Awrite(attr, type, some_values(in));
    H5Aclose(attr);
    H5Sclose(space);
    H5Tclose(type);
}

static const char *some_dataset(struct input *in) {
    static const char *const names[] = {"image", "label",     "image_id", "patient_id",
                                        "view",  "age_years", "sex",      "checksum"};
    return names[take(in) % (sizeof names / sizeof names[0])];
}

static void replace_dataset(hid_t file, struct input *in) {
    const char *name = some_dataset(in);
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t type = some_type(in), space = some_space(in), dcpl = H5Pcreate(H5P_DATASET_CREATE);
    unsigned layout = take(in);
    hsize_t chunk[4] = {1, 3, 2, 1};
    if (layout % 4 == 1 && H5Sget_simple_extent_ndims(space) > 0)
        H5Pset_chunk(dcpl, H5Sget_simple_extent_ndims(space), chunk);
    else if (layout % 4 == 2)
        H5Pset_layout(dcpl, H5D_COMPACT);
    hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    if (set >= 0 && layout < 192 && H5Tis_variable_str(type) <= 0)
        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, some_values(in));
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    H5Tclose(type);
}

static void rewrite_dataset(hid_t file, struct input *in) {
    hid_t set = H5Dopen2(file, some_dataset(in), H5P_DEFAULT);
    hid_t type = H5Dget_type(set);
    if (set >= 0 && H5Tis_variable_str(type) <= 0 && H5Dget_storage_size(set) <= 1 << 20)
        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, some_values(in));
    H5Tclose(type);
    H5Dclose(set);
}

static void change(hid_t file, struct input *in) {
    for (int n = 0; n < 4 && in->size; n++)
        switch (take(in) % 4) {
        case 0: change_attribute(file, in); break;
        case 1: replace_dataset(file, in); break;
        case 2: rewrite_dataset(file, in); break;
        default: H5Ldelete(file, some_dataset(in), H5P_DEFAULT);
        }
}

/* The layout message of `image` holds place and size of the block one after the other. */
static void move_images(struct input *in) {
    uint8_t *bytes = malloc(sound_bytes);
    FUZZ_CHECK(bytes);
    memcpy(bytes, sound, sound_bytes);
    uint64_t size = ROWS * SIZE * SIZE;
    uint8_t *at = memmem(bytes, sound_bytes, &size, sizeof size);
    for (int i = -8; at && i < 8 && in->size; i++)
        at[i] = (uint8_t)take(in);
    write_file(shard_path, bytes, sound_bytes - CHEX_H5_SEAL_BYTES);
    free(bytes);
}

/* Bits of any bytes, of the record too; it is not written again. */
static void flip(struct input *in) {
    uint8_t *bytes = fuzz_flip(sound, sound_bytes, in);
    FUZZ_CHECK(bytes);
    write_file(shard_path, bytes, sound_bytes);
    free(bytes);
}

static void use_shard(const struct chex_shard *s) {
    size_t rows = chex_shard_rows(s), side = (size_t)chex_shard_size(s);
    FUZZ_CHECK(rows > 0 && side > 0 && chex_shard_classes(s) > 0 && chex_shard_digest(s) + 1);
    uint8_t *pixels = malloc(side * side);
    for (size_t i = 0; pixels && i < rows && i < 64; i++) {
        struct chex_error err = {0};
        FUZZ_CHECK(chex_shard_image_id(s, i)[0] && chex_shard_patient_id(s, i)[0]);
        for (int c = 0; c < chex_shard_classes(s); c++)
            FUZZ_CHECK(chex_shard_labels(s, i)[c] >= CHEX_LABEL_NOT_STATED &&
                       chex_shard_labels(s, i)[c] <= 1 && chex_shard_class(s, c)[0]);
        FUZZ_CHECK(chex_shard_view(s, i) <= CHEX_VIEW_LATERAL);
        FUZZ_CHECK(chex_shard_read(s, i, 1, true, pixels, &err) == CHEX_OK || err.text[0]);
    }
    free(pixels);
}

static void check_shard(void) {
    struct chex_shard *s = NULL;
    struct chex_error err = {0};
    enum chex_status st = chex_shard_open(shard_path, &s, &err);
    FUZZ_CHECK((st == CHEX_OK) == (s != NULL) && (st == CHEX_OK || err.text[0]));
    FUZZ_CHECK(st != CHEX_E_RESOURCE);
    if (s)
        use_shard(s);
    chex_shard_close(s);
    FUZZ_CHECK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
}

static void check_manifest(const struct input *in) {
    struct chex_manifest *m = NULL;
    struct chex_error err = {0};
    write_file(manifest_path, in->data, in->size);
    enum chex_status st = chex_manifest_read(folder, &m, &err);
    FUZZ_CHECK((st == CHEX_OK) == (m != NULL) && (st == CHEX_OK || err.text[0]));
    for (int s = 0; m && s < CHEX_SPLIT_COUNT; s++)
        for (size_t i = 0; i < m->splits[s].shard_count; i++)
            FUZZ_CHECK(m->splits[s].shards[i].file[0] != '/' && m->splits[s].shards[i].rows > 0);
    FUZZ_CHECK(!m || chex_manifest_write(folder, m, &err) == CHEX_OK);
    chex_manifest_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {data, size};
    prepare();
    unsigned kind = take(&in);
    if (kind == '{' || kind == 'm') {
        in = kind == '{' ? (struct input){data, size} : in;
        check_manifest(&in);
        return 0;
    }
    if (kind == 'e') {
        flip(&in);
    } else if (kind % 4 == 3) {
        move_images(&in);
        FUZZ_CHECK(h5_seal_again(shard_path));
    } else {
        write_file(shard_path, sound, sound_bytes);
        hid_t file = H5Fopen(shard_path, H5F_ACC_RDWR, H5P_DEFAULT);
        FUZZ_CHECK(file >= 0);
        change(file, &in);
        FUZZ_CHECK(H5Fclose(file) >= 0 && h5_seal_again(shard_path));
    }
    check_shard();
    return 0;
}

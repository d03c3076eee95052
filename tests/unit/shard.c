/* SPDX-License-Identifier: Apache-2.0
 *
 * Shard writer and reader: what goes in comes out, on any number of threads, and every kind of
 * broken file is refused with its reason.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/rng.h"
#include "h5_seal.h"
#include "shard/shard.h"
#include "shard/shard_write.h"
#include "tap.h"

enum { ROWS = 37, SIZE = 33, CLASSES = 3, PIXELS = SIZE * SIZE };
static const char *const class_names[] = {"Mass", "Edema", "Hernia"};

static char dir[] = "/tmp/chex-unit-shard.XXXXXX";
static char image_ids[ROWS][32], patient_ids[ROWS][16];
static int8_t labels[ROWS][CLASSES];

static const char *at(const char *name) {
    static char path[8][256];
    static int turn;
    char *p = path[turn++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static int temporaries(void) {
    int n = 0;
    DIR *d = opendir(dir);
    BAIL_UNLESS(d, "%s", dir);
    for (struct dirent *e; (e = readdir(d));)
        n += chex_fs_is_temp(e->d_name, NULL);
    closedir(d);
    return n;
}

static void fill(size_t row, uint8_t *pixels) {
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (uint8_t)chex_rng(7, CHEX_RNG_TEST, row * PIXELS + (size_t)i, 0).v[0];
}

static void get_row(const void *arg, size_t i, struct chex_shard_row *out) {
    (void)arg;
    *out = (struct chex_shard_row){.image_id = image_ids[i],
                                   .patient_id = patient_ids[i],
                                   .study_id = i % 3 ? image_ids[i / 2] : NULL,
                                   .labels = labels[i],
                                   .view = (enum chex_view)(i % 4),
                                   .age_years = i % 5 == 0 ? -1 : (int)(20 + i),
                                   .sex = "MF\0"[i % 3]};
}

static struct chex_shard_spec spec(void) {
    return (struct chex_shard_spec){.rows = ROWS,
                                    .size = SIZE,
                                    .classes = CLASSES,
                                    .class_names = class_names,
                                    .resize = "pillow-bilinear",
                                    .split = "val",
                                    .tool_version = "chexnet test",
                                    .row = get_row};
}

static struct chex_shard_writer *writer;
static atomic_int faults;

static void put_one(void *arg, size_t item, int worker) {
    (void)arg, (void)worker;
    uint8_t pixels[PIXELS];
    size_t row = ROWS - 1 - item;
    fill(row, pixels);
    if (row % 4)
        chex_shard_set_original(writer, row, 3000 + (int)row, 65500);
    if (chex_shard_put(writer, row, pixels, NULL) != CHEX_OK)
        atomic_fetch_add(&faults, 1);
}

static void write_shard(const char *path, int threads) {
    struct chex_error err = {0};
    struct chex_shard_spec s = spec();
    struct chex_pool *pool = NULL;
    BAIL_UNLESS(chex_shard_create(path, &s, &writer, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(chex_pool_create(threads, &pool, &err) == CHEX_OK, "%s", err.text);
    chex_pool_run(pool, ROWS, put_one, NULL);
    chex_pool_destroy(pool);
    BAIL_UNLESS(chex_shard_finish(writer, "00112233445566778899aabbccddeeff", &err) == CHEX_OK,
                "%s", err.text);
}

static void check_tables(const struct chex_shard *s) {
    bool same = true;
    for (size_t i = 0; i < ROWS; i++) {
        struct chex_shard_row row;
        get_row(NULL, i, &row);
        same = same && strcmp(chex_shard_image_id(s, i), row.image_id) == 0 &&
               strcmp(chex_shard_patient_id(s, i), row.patient_id) == 0 &&
               memcmp(chex_shard_labels(s, i), row.labels, CLASSES) == 0 &&
               chex_shard_view(s, i) == row.view && chex_shard_age_years(s, i) == row.age_years &&
               chex_shard_sex(s, i) == row.sex;
        const char *study = chex_shard_study_id(s, i);
        same = same && (study && row.study_id ? !strcmp(study, row.study_id) : study == NULL) &&
               chex_shard_original_width(s, i) == (i % 4 ? 3000 + (int)i : 0) &&
               chex_shard_original_height(s, i) == (i % 4 ? 65500 : 0);
    }
    OK(same, "ids, labels, views, ages, sexes, studies and original sizes come back");
    OK(chex_shard_rows(s) == ROWS && chex_shard_size(s) == SIZE && chex_shard_classes(s) == CLASSES,
       "rows, size and class count");
    OK(!strcmp(chex_shard_class(s, 1), "Edema") && !strcmp(chex_shard_split(s), "val") &&
           !strcmp(chex_shard_resize(s), "pillow-bilinear") &&
           !strcmp(chex_shard_tool_version(s), "chexnet test") &&
           !strcmp(chex_shard_source_digest(s), "00112233445566778899aabbccddeeff"),
       "attributes come back");
}

static void check_pixels(const struct chex_shard *s) {
    uint8_t got[5 * PIXELS], want[PIXELS];
    bool same = true;
    struct chex_error err = {0};
    for (size_t row = 0; row < ROWS; row += 5) {
        size_t n = ROWS - row < 5 ? ROWS - row : 5;
        chex_shard_will_need(s, row, n);
        same = same && chex_shard_read(s, row, n, true, got, &err) == CHEX_OK;
        for (size_t i = 0; i < n; i++) {
            fill(row + i, want);
            same = same && memcmp(want, got + i * PIXELS, PIXELS) == 0 &&
                   chex_shard_checksum(s, row + i) == chex_hash64(want, PIXELS);
        }
    }
    OK(same, "pixels and checksums come back in runs of 5%s", err.text);
    OK_STATUS(chex_shard_read(s, ROWS - 1, 2, false, got, &err), CHEX_E_FAIL, err, "rows 36 to 38");
}

static const struct chex_shard *shared;

static void *read_at_random(void *arg) {
    uint8_t got[PIXELS], want[PIXELS];
    for (uint32_t i = 0; i < 300; i++) {
        size_t row =
            chex_rng_below(chex_rng(*(const uint64_t *)arg, CHEX_RNG_TEST, i, 1).v[0], ROWS);
        fill(row, want);
        if (chex_shard_read(shared, row, 1, true, got, NULL) != CHEX_OK ||
            memcmp(got, want, PIXELS) != 0)
            atomic_fetch_add(&faults, 1);
    }
    return NULL;
}

static void check_threads(const struct chex_shard *s, const char *what) {
    pthread_t threads[4];
    uint64_t seeds[4] = {1, 2, 3, 4};
    atomic_store(&faults, 0);
    shared = s;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, read_at_random, &seeds[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    OK(atomic_load(&faults) == 0, "four threads read %s", what);
}

static void copy(const char *from, const char *to, size_t limit) {
    char *data = NULL;
    size_t size = 0;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_read(from, 1 << 24, &data, &size, &err) == CHEX_OK, "%s", err.text);
    FILE *f = fopen(to, "wb");
    BAIL_UNLESS(f && fwrite(data, 1, limit < size ? limit : size, f) > 0, "cannot write %s", to);
    fclose(f);
    free(data);
}

/* tests/data/broken/cases.tsv: a file, whether opening or reading finds the fault, and what the
 * error text must hold. */
static void check_case(const char *name, const char *kind, const char *text) {
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    uint8_t pixels[3 * 16 * 16];
    char path[512];
    snprintf(path, sizeof path, "%s/broken/%s", TEST_DATA, name);
    if (strcmp(kind, "open") == 0) {
        OK_STATUS(chex_shard_open(path, &s, &err), CHEX_E_DATA, err, text);
        OK(s == NULL, "a failed open leaves the pointer alone");
        return;
    }
    OK_STATUS(chex_shard_open(path, &s, &err), CHEX_OK, err, NULL);
    if (s)
        OK_STATUS(chex_shard_read(s, 0, 3, true, pixels, &err), CHEX_E_DATA, err, text);
    chex_shard_close(s);
}

static void check_broken(const char *good) {
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    char line[512];
    FILE *cases = fopen(TEST_DATA "/broken/cases.tsv", "r");
    BAIL_UNLESS(cases, "no cases.tsv");
    while (fgets(line, sizeof line, cases)) {
        char *name = strtok(line, "\t\n"), *kind = strtok(NULL, "\t\n");
        char *text = strtok(NULL, "\t\n");
        BAIL_UNLESS(text, "cases.tsv: a line without three fields");
        check_case(name, kind, text);
    }
    fclose(cases);
    OK_STATUS(chex_shard_open(at("none.h5"), &s, &err), CHEX_E_DATA, err, "No such file");
    OK_STATUS(chex_shard_open(dir, &s, &err), CHEX_E_DATA, err, NULL);
    for (size_t n = 100; n < 40000; n += 7919) {
        copy(good, at("short.h5"), n);
        OK_STATUS(chex_shard_open(at("short.h5"), &s, &err), CHEX_E_DATA, err, "short.h5");
    }
}

static void check_damage(const char *good) {
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    uint8_t pixels[PIXELS];
    copy(good, at("damaged.h5"), SIZE_MAX);
    BAIL_UNLESS(chex_shard_open(at("damaged.h5"), &s, &err) == CHEX_OK, "%s", err.text);
    /* The first bytes of row 9 are found by their content. */
    char *data = NULL;
    size_t size = 0;
    fill(9, pixels);
    BAIL_UNLESS(chex_fs_read(at("damaged.h5"), 1 << 24, &data, &size, &err) == CHEX_OK, "read");
    char *where = memmem(data, size, pixels, PIXELS);
    BAIL_UNLESS(where, "row 9 not found");
    off_t offset = where - data;
    free(data);
    int fd = open(at("damaged.h5"), O_RDWR);
    pixels[100] ^= 1;
    OK(pwrite(fd, pixels, PIXELS, offset) == PIXELS, "one bit of row 9 is flipped");
    OK_STATUS(chex_shard_read(s, 9, 1, true, pixels, &err), CHEX_E_DATA, err,
              "damaged.h5: row 9 (img_009.png): pixels do not match their checksum");
    OK_STATUS(chex_shard_read(s, 9, 1, false, pixels, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_shard_read(s, 8, 1, true, pixels, &err), CHEX_OK, err, NULL);
    OK(ftruncate(fd, offset + 10) == 0, "the file shrinks while it is open");
    OK_STATUS(chex_shard_read(s, 9, 1, true, pixels, &err), CHEX_E_DATA, err,
              "row 9 (img_009.png): the file ends here");
    close(fd);
    chex_shard_close(s);
}

/* A file of another tool: chunked and compressed images, and a text of variable length. */
static void check_foreign(const char *good) {
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    copy(good, at("foreign.h5"), SIZE_MAX);
    uint8_t *all = malloc((size_t)ROWS * PIXELS);
    for (size_t i = 0; i < ROWS; i++)
        fill(i, all + i * PIXELS);
    hid_t f = H5Fopen(at("foreign.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(f, "image", H5P_DEFAULT);
    hsize_t dims[3] = {ROWS, SIZE, SIZE}, chunk[3] = {4, SIZE, SIZE};
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(3, dims, NULL);
    H5Pset_chunk(dcpl, 3, chunk);
    H5Pset_deflate(dcpl, 1);
    hid_t set = H5Dcreate2(f, "image", H5T_STD_U8LE, space, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    H5Dwrite(set, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    H5Dclose(set);
    H5Pclose(dcpl);
    H5Sclose(space);
    hid_t t = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
    const char *format = "chexnet-shard";
    H5Tset_size(t, H5T_VARIABLE);
    H5Adelete(f, "format");
    hid_t a = H5Acreate2(f, "format", t, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, t, &format);
    H5Aclose(a);
    H5Tclose(t);
    H5Sclose(scalar);
    H5Fclose(f);
    free(all);
    BAIL_UNLESS(h5_seal_again(at("foreign.h5")), "foreign.h5");
    OK_STATUS(chex_shard_open(at("foreign.h5"), &s, &err), CHEX_OK, err, NULL);
    if (!s)
        return;
    check_pixels(s);
    check_threads(s, "a chunked file through HDF5");
    chex_shard_close(s);
}

static void check_writer(const char *good) {
    struct chex_error err = {0};
    struct chex_shard_spec s = spec();
    uint8_t pixels[PIXELS];
    write_shard(at("one.h5"), 1);
    char a[CHEX_HASH128_HEX_BYTES], b[CHEX_HASH128_HEX_BYTES], *data = NULL;
    size_t size = 0;
    chex_fs_read(good, 1 << 24, &data, &size, &err);
    chex_hash128_hex(data, size, a);
    free(data);
    chex_fs_read(at("one.h5"), 1 << 24, &data, &size, &err);
    chex_hash128_hex(data, size, b);
    free(data);
    OK(strcmp(a, b) == 0, "one thread and four write the same bytes");
    OK(size <= chex_shard_file_bytes(ROWS, SIZE, CLASSES, 20), "the size is within its bound");

    BAIL_UNLESS(chex_shard_create(at("half.h5"), &s, &writer, &err) == CHEX_OK, "%s", err.text);
    fill(0, pixels);
    chex_shard_put(writer, 0, pixels, &err);
    OK(!chex_fs_exists(at("half.h5")), "no file has the final name while it is written");
    OK_STATUS(chex_shard_finish(writer, "", &err), CHEX_E_FAIL, err, "1 of 37 rows written");
    OK(!chex_fs_exists(at("half.h5")) && temporaries() == 0, "and nothing is left");

    BAIL_UNLESS(mkdir(at("gone"), 0777) == 0, "no folder");
    BAIL_UNLESS(chex_shard_create(at("gone/one.h5"), &s, &writer, &err) == CHEX_OK, "%s", err.text);
    for (size_t row = 0; row < ROWS; row++) {
        fill(row, pixels);
        chex_shard_put(writer, row, pixels, &err);
    }
    chex_fs_remove_tree(at("gone"), &err);
    OK_STATUS(chex_shard_finish(writer, "", &err), CHEX_E_ENV, err, "No such file or directory");

    s.rows = 0;
    OK_STATUS(chex_shard_create(at("none.h5"), &s, &writer, &err), CHEX_E_DATA, err,
              "at least one row");
    s = spec();
    s.size = 20000;
    OK_STATUS(chex_shard_create(at("none.h5"), &s, &writer, &err), CHEX_E_USAGE, err, "20000 px");
    s = spec();
    OK_STATUS(chex_shard_create(at("no/folder.h5"), &s, &writer, &err), CHEX_E_ENV, err,
              "No such file or directory");
    char kept = patient_ids[4][0];
    patient_ids[4][0] = '\0';
    OK_STATUS(chex_shard_create(at("none.h5"), &s, &writer, &err), CHEX_E_DATA, err,
              "row 4 has an empty image or patient id");
    patient_ids[4][0] = kept;
}

/* One write of this process that fails, the one after so many; -1: none. HDF5's go this way too. */
static int writes_left = -1;
static bool write_failed;
static bool fails(void) {
    if (writes_left < 0 || writes_left-- > 0)
        return false;
    errno = EIO;
    return write_failed = true;
}
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *data, size_t bytes,
                                                      off_t offset) {
    return fails() ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, data, bytes, offset);
}
__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t bytes) {
    return fails() ? -1 : (ssize_t)syscall(SYS_write, fd, data, bytes);
}

enum { UNHARMED, REPORTED, SWALLOWED };
static int write_badly(int after) {
    struct chex_shard_spec s = spec();
    uint8_t pixels[PIXELS];
    writes_left = after;
    enum chex_status st = chex_shard_create(at("bad.h5"), &s, &writer, NULL);
    for (size_t row = 0; st == CHEX_OK && row < ROWS; row++) {
        fill(row, pixels);
        st = chex_shard_put(writer, row, pixels, NULL);
    }
    if (st == CHEX_OK)
        st = chex_shard_finish(writer, "00112233445566778899aabbccddeeff", NULL);
    return !write_failed ? UNHARMED : st != CHEX_OK ? REPORTED : SWALLOWED;
}

/* Every write in turn, each in a process of its own: HDF5 keeps a file that it could not close. */
static void check_failed_writes(void) {
    int result = REPORTED, after = 0;
    for (; result == REPORTED && after < 200; after++) {
        int status = 0;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            exit(write_badly(after));
        BAIL_UNLESS(pid > 0 && waitpid(pid, &status, 0) == pid, "no child process");
        result = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
    OK(result == UNHARMED && after > ROWS, "a failed write, the first to number %d, is reported",
       after - 1);
}

int main(void) {
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    for (int i = 0; i < ROWS; i++) {
        snprintf(image_ids[i], sizeof image_ids[i], "img_%03d.png", i);
        snprintf(patient_ids[i], sizeof patient_ids[i], "p%d", i / 3);
        for (int c = 0; c < CLASSES; c++)
            labels[i][c] = (int8_t)((i + c) % 4 - 2);
    }
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    char good[256];
    snprintf(good, sizeof good, "%s", at("good.h5"));
    write_shard(good, 4); /* before any call of HDF5 here: base/h5.c sets it up */
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    BAIL_UNLESS(chex_shard_open(good, &s, &err) == CHEX_OK, "%s", err.text);
    check_tables(s);
    check_pixels(s);
    check_threads(s, "a contiguous file");
    chex_shard_close(s);
    check_writer(good);
    check_broken(good);
    check_damage(good);
    check_failed_writes();
    check_foreign(good);
    chex_shard_close(NULL);
    chex_shard_abandon(NULL);
    OK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0, "no HDF5 id is left open");
    chex_fs_remove_tree(dir, &err);
    return tap_done();
}

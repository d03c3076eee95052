/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards and checkpoints with changed bits outside of their pixels: each is refused with
 * CHEX_E_DATA. No crash, no endless loop, no other status.
 *
 *   unit-corrupt                       small files, some hundred flips each
 *   unit-corrupt FLIPS SEED FILE...    FLIPS flips in each FILE, outside its pixels and parameters
 *                                      (tests/soak_corrupt.sh); each is used in a copy
 */
#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/rng.h"
#include "model/checkpoint.h"
#include "sample_shard.h"
#include "shard/shard.h"
#include "tap.h"

enum { MOST_RANGES = 8192, FIRST_EXIT = 64 };
enum outcome { REFUSED, ACCEPTED, OTHER_STATUS, DIED, OUTCOMES };
static const char *const outcome_names[] = {"refused", "accepted", "another status",
                                            "crash or hang"};

static char dir[] = "/tmp/chex-corrupt.XXXXXX";

static const char *in_dir(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static enum chex_status read_shard(const char *path, struct chex_error *err) {
    struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(path, &s, err));
    const size_t side = (size_t)chex_shard_size(s);
    uint8_t *pixels = malloc(side * side);
    enum chex_status st = CHEX_OK;
    for (size_t i = 0; st == CHEX_OK && pixels && i < chex_shard_rows(s) && i < 64; i++)
        st = chex_shard_read(s, i, 1, true, pixels, err);
    free(pixels);
    chex_shard_close(s);
    return st;
}

static enum chex_status read_checkpoint(const char *path, struct chex_error *err) {
    struct chex_net *net = NULL;
    struct chex_checkpoint *c = NULL;
    CHEX_TRY(chex_checkpoint_read(path, true, &net, &c, err));
    chex_checkpoint_destroy(c);
    chex_net_destroy(net);
    return CHEX_OK;
}

typedef enum chex_status read_fn(const char *path, struct chex_error *err);

/* ---- files ---- */

static void write_shard(const char *path) {
    struct chex_error err = {0};
    BAIL_UNLESS(sample_shard_write(path, 6, 16, &err) == CHEX_OK, "%s", err.text);
}

static void write_checkpoint(const char *path) {
    static char mass[] = "Mass", nodule[] = "Nodule", meta[] = "{\"epoch\":7}";
    static char *names[] = {mass, nodule};
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    BAIL_UNLESS(chex_net_create("densenet_tiny", 2, &net, &err) == CHEX_OK, "%s", err.text);
    struct chex_checkpoint c = {.model = "densenet_tiny",
                                .classes = 2,
                                .class_names = names,
                                .image_size = 64,
                                .meta = meta};
    c.params = calloc(net->state_count, sizeof *c.params);
    BAIL_UNLESS(c.params && chex_checkpoint_write(path, net, &c, &err) == CHEX_OK, "%s", err.text);
    free(c.params);
    chex_net_destroy(net);
}

static void copy(const char *from, const char *to) {
    struct chex_error err = {0};
    char *data = NULL;
    size_t size = 0;
    BAIL_UNLESS(chex_fs_read(from, UINT64_MAX, &data, &size, &err) == CHEX_OK &&
                    chex_fs_write(to, data, size, &err) == CHEX_OK,
                "%s", err.text);
    free(data);
}

/* ---- where to flip: everything but the bytes of the large datasets ---- */

struct ranges {
    uint64_t from[MOST_RANGES], to[MOST_RANGES]; /* of data, not to be flipped */
    size_t count;
};

static herr_t add_data(hid_t where, const char *name, const H5L_info_t *info, void *arg) {
    struct ranges *r = arg;
    (void)info;
    hid_t object = H5Oopen(where, name, H5P_DEFAULT);
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET && H5Dget_storage_size(object) > 512 &&
        r->count < MOST_RANGES) {
        r->from[r->count] = H5Dget_offset(object);
        r->to[r->count] = r->from[r->count] + H5Dget_storage_size(object);
        r->count++;
    }
    H5Oclose(object);
    return 0;
}

static bool is_data(const struct ranges *r, uint64_t at) {
    bool within = false;
    for (size_t i = 0; !within && i < r->count; i++)
        within = at >= r->from[i] && at < r->to[i];
    return within;
}

static void find_data(const char *path, struct ranges *r) {
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    BAIL_UNLESS(file >= 0, "%s", path);
    r->count = 0;
    H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, add_data, r);
    H5Fclose(file);
}

/* ---- the trial ---- */

static uint64_t draw(uint64_t seed, int flip, uint32_t n) {
    struct chex_rng4 r = chex_rng(seed, CHEX_RNG_TEST, (uint64_t)flip, n);
    return (uint64_t)r.v[0] << 32 | r.v[1];
}

/* In a process of its own, which does not run for ever. */
static enum outcome try_file(const char *path, read_fn *read) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct chex_error err = {0};
        alarm((unsigned)tap_wait_s());
        enum chex_status st = read(path, &err);
        _exit(FIRST_EXIT + (st == CHEX_E_DATA && err.text[0] ? REFUSED
                            : st != CHEX_OK                  ? OTHER_STATUS
                                                             : ACCEPTED));
    }
    int how = 0;
    BAIL_UNLESS(pid > 0 && waitpid(pid, &how, 0) == pid, "fork");
    const int o = WIFEXITED(how) ? WEXITSTATUS(how) - FIRST_EXIT : DIED; /* a sanitizer: 1 */
    return o >= 0 && o < DIED ? (enum outcome)o : DIED;
}

static enum outcome flip(int fd, const char *path, read_fn *read, uint64_t at, int bit) {
    unsigned char byte, changed;
    BAIL_UNLESS(pread(fd, &byte, 1, (off_t)at) == 1, "%s", path);
    changed = byte ^ (unsigned char)(1 << bit);
    BAIL_UNLESS(pwrite(fd, &changed, 1, (off_t)at) == 1, "%s", path);
    enum outcome o = try_file(path, read);
    BAIL_UNLESS(pwrite(fd, &byte, 1, (off_t)at) == 1, "%s", path);
    if (o != REFUSED)
        printf("# %s: byte %llu, bit %d: %s\n", path, (unsigned long long)at, bit,
               outcome_names[o]);
    return o;
}

/* Changes one bit of the file at a time. */
static void run_trial(const char *name, const char *path, read_fn *read, uint64_t seed, int flips) {
    static struct ranges data;
    struct chex_error err = {0};
    struct stat info;
    int counts[OUTCOMES] = {0}, fd = open(path, O_RDWR | O_CLOEXEC);
    find_data(path, &data);
    BAIL_UNLESS(fd >= 0 && fstat(fd, &info) == 0 && read(path, &err) == CHEX_OK, "%s", err.text);
    for (int i = 0; i < flips; i++) {
        uint64_t at;
        uint32_t n = 0;
        do
            at = draw(seed, i, n++) % (uint64_t)info.st_size;
        while (is_data(&data, at));
        counts[flip(fd, path, read, at, (int)(draw(seed, i, n) % 8))]++;
    }
    close(fd);
    OK(counts[REFUSED] == flips, "%s: each of %d changed bits is refused", name, flips);
}

static void test_kind(const char *kind, read_fn *read, void (*make)(const char *path), int flips) {
    const char *path = in_dir(kind);
    make(path);
    run_trial(kind, path, read, 11, flips);
}

static void test_file(const char *from, int flips, uint64_t seed) {
    const char *base = strrchr(from, '/') ? strrchr(from, '/') + 1 : from;
    struct chex_error err = {0};
    const char *path = in_dir("soak.h5");
    copy(from, path);
    const bool shard = read_shard(path, &err) == CHEX_OK;
    run_trial(base, path, shard ? read_shard : read_checkpoint, seed, flips);
}

int main(int argc, char **argv) {
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (argc > 3) {
        for (int i = 3; i < argc; i++)
            test_file(argv[i], atoi(argv[1]), strtoull(argv[2], NULL, 10));
    } else {
        test_kind("shard", read_shard, write_shard, TAP_SLOW_BUILD ? 100 : 400);
        test_kind("checkpoint", read_checkpoint, write_checkpoint, TAP_SLOW_BUILD ? 10 : 40);
    }
    struct chex_error err;
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    return tap_done();
}

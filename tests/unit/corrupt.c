/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards and checkpoints with changed bits: each is refused with CHEX_E_DATA or gives the content
 * of the sound file. No crash, no endless loop, no other status.
 *
 *   unit-corrupt                       small files, some hundred flips each
 *   unit-corrupt FLIPS SEED FILE...    FLIPS flips in each FILE, outside its pixels and parameters
 *                                      (tests/soak_corrupt.sh); each is used in a copy
 *
 * "Earlier" files have texts of variable length and no seal, as versions up to 0.1.0 wrote them. No
 * checksum covers their attributes, so a changed text or number in them may pass; it is counted.
 */
#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "h5_earlier.h"
#include "model/checkpoint.h"
#include "sample_shard.h"
#include "shard/shard.h"
#include "tap.h"

enum { MOST_RANGES = 8192, FIRST_EXIT = 64 };
enum outcome { EQUAL, REFUSED, CHANGED, OTHER_STATUS, DIED, OUTCOMES };
static const char *const outcome_names[] = {"equal", "refused", "changed", "another status",
                                            "crash or hang"};

static char dir[] = "/tmp/chex-corrupt.XXXXXX";

static const char *in_dir(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

/* ---- the content of a file as one number ---- */

static uint64_t mix_text(uint64_t h, const char *text) {
    return chex_hash64_mix(h, text, strlen(text) + 1);
}

static enum chex_status shard_content(const char *path, uint64_t *out, struct chex_error *err) {
    struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(path, &s, err));
    const int side = chex_shard_size(s);
    uint64_t h = chex_hash64_mix(chex_shard_digest(s), &side, sizeof side);
    for (int c = 0; c < chex_shard_classes(s); c++)
        h = mix_text(h, chex_shard_class(s, c));
    h = mix_text(h, chex_shard_resize(s));
    h = mix_text(h, chex_shard_split(s));
    h = mix_text(h, chex_shard_source_digest(s));
    h = mix_text(h, chex_shard_tool_version(s));
    uint8_t *pixels = malloc((size_t)side * (size_t)side);
    enum chex_status st = CHEX_OK;
    for (size_t i = 0; st == CHEX_OK && pixels && i < chex_shard_rows(s) && i < 64; i++)
        st = chex_shard_read(s, i, 1, true, pixels, err);
    free(pixels);
    chex_shard_close(s);
    *out = h;
    return st;
}

static enum chex_status checkpoint_content(const char *path, uint64_t *out,
                                           struct chex_error *err) {
    struct chex_net *net = NULL;
    struct chex_checkpoint *c = NULL;
    CHEX_TRY(chex_checkpoint_read(path, true, &net, &c, err));
    const float *const parts[] = {c->params, c->moment1, c->moment2};
    uint64_t h = chex_hash64_mix(0, &c->image_size, sizeof c->image_size);
    h = mix_text(mix_text(h, c->model), c->meta);
    for (int i = 0; i < c->classes; i++)
        h = mix_text(h, c->class_names[i]);
    for (int i = 0; i < 3; i++)
        h = parts[i] ? chex_hash64_mix(h, parts[i], net->state_count * sizeof(float)) : h + 1;
    chex_checkpoint_destroy(c);
    chex_net_destroy(net);
    *out = h;
    return CHEX_OK;
}

typedef enum chex_status content_fn(const char *path, uint64_t *out, struct chex_error *err);

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
static enum outcome try_file(const char *path, content_fn *content, uint64_t sound) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct chex_error err = {0};
        uint64_t got = 0;
        alarm((unsigned)tap_wait_s());
        enum chex_status st = content(path, &got, &err);
        _exit(FIRST_EXIT + (st == CHEX_E_DATA && err.text[0] ? REFUSED
                            : st != CHEX_OK                  ? OTHER_STATUS
                            : got == sound                   ? EQUAL
                                                             : CHANGED));
    }
    int how = 0;
    BAIL_UNLESS(pid > 0 && waitpid(pid, &how, 0) == pid, "fork");
    const int o = WIFEXITED(how) ? WEXITSTATUS(how) - FIRST_EXIT : DIED; /* a sanitizer: 1 */
    return o >= 0 && o < DIED ? (enum outcome)o : DIED;
}

struct trial {
    const char *path; /* is changed and restored */
    content_fn *content;
    bool sealed; /* a changed content must be refused */
    uint64_t first, last;
    uint64_t seed;
    int flips;
};

static enum outcome flip(int fd, const struct trial *t, uint64_t sound, uint64_t at, int bit) {
    unsigned char byte, changed;
    BAIL_UNLESS(pread(fd, &byte, 1, (off_t)at) == 1, "%s", t->path);
    changed = byte ^ (unsigned char)(1 << bit);
    BAIL_UNLESS(pwrite(fd, &changed, 1, (off_t)at) == 1, "%s", t->path);
    enum outcome o = try_file(t->path, t->content, sound);
    BAIL_UNLESS(pwrite(fd, &byte, 1, (off_t)at) == 1, "%s", t->path);
    if (o >= OTHER_STATUS || (t->sealed && o == CHANGED))
        printf("# %s: byte %llu, bit %d: %s\n", t->path, (unsigned long long)at, bit,
               outcome_names[o]);
    return o;
}

static void run_trial(const char *name, const struct trial *t) {
    static struct ranges data;
    struct chex_error err = {0};
    uint64_t sound = 0;
    int counts[OUTCOMES] = {0}, fd = open(t->path, O_RDWR | O_CLOEXEC);
    find_data(t->path, &data);
    BAIL_UNLESS(fd >= 0 && t->content(t->path, &sound, &err) == CHEX_OK, "%s", err.text);
    for (int i = 0; i < t->flips; i++) {
        uint64_t at;
        uint32_t n = 0;
        do
            at = t->first + draw(t->seed, i, n++) % (t->last - t->first);
        while (is_data(&data, at));
        counts[flip(fd, t, sound, at, (int)(draw(t->seed, i, n) % 8))]++;
    }
    close(fd);
    printf("# %s: %d flips: %d refused, %d equal, %d changed\n", name, t->flips, counts[REFUSED],
           counts[EQUAL], counts[CHANGED]);
    OK(counts[DIED] == 0 && counts[OTHER_STATUS] == 0, "%s: no crash, no hang, no other status",
       name);
    if (t->sealed)
        OK(counts[CHANGED] == 0 && counts[EQUAL] == 0, "%s: the seal finds every changed bit",
           name);
}

/* The collection of texts that begins after `from`. */
static uint64_t find_heap(const char *path, uint64_t from) {
    struct chex_error err = {0};
    char *data = NULL;
    size_t size = 0;
    BAIL_UNLESS(chex_fs_read(path, UINT64_MAX, &data, &size, &err) == CHEX_OK, "%s", err.text);
    const char *at = memmem(data + from, size - from, "GCOL", 4);
    const uint64_t offset = at ? (uint64_t)(at - data) : 0;
    free(data);
    return offset;
}

static uint64_t bytes_of(const char *path) {
    struct stat s;
    BAIL_UNLESS(stat(path, &s) == 0, "%s", path);
    return (uint64_t)s.st_size;
}

static void test_kind(const char *kind, content_fn *content, void (*make)(const char *path),
                      int flips) {
    char name[64], path[512];
    snprintf(path, sizeof path, "%s", in_dir(kind));
    make(path);
    struct trial t = {path, content, true, 0, bytes_of(path), 11, flips};
    snprintf(name, sizeof name, "%s", kind);
    run_trial(name, &t);

    BAIL_UNLESS(h5_make_earlier(path) >= 4, "%s", path);
    t.sealed = false;
    t.last = bytes_of(path);
    snprintf(name, sizeof name, "earlier %s", kind);
    run_trial(name, &t);

    t.first = find_heap(path, 0);
    BAIL_UNLESS(t.first, "%s has no heap", path);
    t.last = t.first + 400;
    snprintf(name, sizeof name, "texts of an earlier %s", kind);
    run_trial(name, &t);
    unlink(path);
}

static void test_file(const char *from, int flips, uint64_t seed) {
    const char *base = strrchr(from, '/') ? strrchr(from, '/') + 1 : from;
    struct chex_error err = {0};
    uint64_t content = 0;
    char path[512], name[300];
    snprintf(path, sizeof path, "%s", in_dir("soak.h5"));
    copy(from, path);
    bool shard = shard_content(path, &content, &err) == CHEX_OK;
    uint64_t heap = find_heap(path, 0);
    bool sealed = !heap;
    struct trial t = {
        path, shard ? shard_content : checkpoint_content, sealed, 0, bytes_of(path), seed, flips};
    run_trial(base, &t);
    if (heap) {
        t.first = heap;
        t.last = heap + 400;
        snprintf(name, sizeof name, "%s, texts", base);
        run_trial(name, &t);
    }
    unlink(path);
}

int main(int argc, char **argv) {
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (argc > 3) {
        for (int i = 3; i < argc; i++)
            test_file(argv[i], atoi(argv[1]), strtoull(argv[2], NULL, 10));
    } else {
        test_kind("shard", shard_content, write_shard, TAP_SLOW_BUILD ? 100 : 400);
        test_kind("checkpoint", checkpoint_content, write_checkpoint, TAP_SLOW_BUILD ? 10 : 40);
    }
    struct chex_error err;
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    return tap_done();
}

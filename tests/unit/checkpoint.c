/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint files: what is written comes back, and every kind of broken file has its own message
 * with file and dataset.
 */
#include "model/checkpoint.h"

#include <dirent.h>
#include <hdf5.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/h5_private.h"
#include "h5_seal.h"
#include "tap.h"

static char dir[256];
static struct chex_net *net;
static char mass[] = "Mass", nodule[] = "Nodule", pleural[] = "Pleural_Thickening";
static char *class_names[] = {mass, nodule, pleural};
static char note[] = "{\"epoch\":7,\"note\":\"\xc3\xbc\"}";

static const char *in_dir(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static float *numbers(float start) {
    float *p = malloc(net->state_count * sizeof *p);
    BAIL_UNLESS(p, "memory");
    for (size_t i = 0; i < net->state_count; i++)
        p[i] = start + (float)(i % 8191) * 0.001f;
    return p;
}

static struct chex_checkpoint sample(void) {
    struct chex_checkpoint c = {
        .classes = 3, .class_names = class_names, .image_size = 64, .meta = note};
    snprintf(c.model, sizeof c.model, "%s", net->model);
    c.params = numbers(-1);
    c.moment1 = numbers(2);
    c.moment2 = numbers(5);
    c.ema = numbers(3);
    return c;
}

static void drop(struct chex_checkpoint *c) {
    free(c->params);
    free(c->moment1);
    free(c->moment2);
    free(c->ema);
}

static bool same(const float *a, const float *b) {
    return a && b && memcmp(a, b, net->state_count * sizeof *a) == 0;
}

static bool files_equal(const char *a, const char *b) {
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    bool equal = chex_fs_read(a, 1u << 30, &x, &n, NULL) == CHEX_OK &&
                 chex_fs_read(b, 1u << 30, &y, &m, NULL) == CHEX_OK && n == m &&
                 memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return equal;
}

/* Without the fsync of chex_fs_write: there are many. */
static void put_file(const char *to, const char *data, size_t n) {
    FILE *f = fopen(to, "wb");
    BAIL_UNLESS(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "%s", to);
}

static int temporaries_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    BAIL_UNLESS(d, "%s", folder);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".tmp.") != NULL;
    closedir(d);
    return n;
}

static void test_round_trip(struct chex_checkpoint *c) {
    struct chex_error err = {0};
    struct chex_checkpoint *back = NULL;
    struct chex_net *built = NULL;
    OK_STATUS(chex_checkpoint_write(in_dir("a.h5"), net, c, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_checkpoint_write(in_dir("b.h5"), net, c, &err), CHEX_OK, err, NULL);
    OK(files_equal(in_dir("a.h5"), in_dir("b.h5")), "equal states make equal files");
    OK(temporaries_in(dir) == 0, "no temporary file is left");
    OK_STATUS(chex_checkpoint_read(in_dir("a.h5"), true, &built, &back, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(back && built, "no checkpoint");
    OK(strcmp(back->model, "densenet_tiny") == 0 && built->state_count == net->state_count,
       "model");
    OK(back->classes == 3 && strcmp(back->class_names[0], "Mass") == 0 &&
           strcmp(back->class_names[2], "Pleural_Thickening") == 0,
       "class names");
    OK(back->image_size == 64 && strcmp(back->meta, c->meta) == 0, "image size and meta");
    OK(same(back->params, c->params) && same(back->moment1, c->moment1) &&
           same(back->moment2, c->moment2) && same(back->ema, c->ema),
       "all numbers come back");
    chex_checkpoint_destroy(back);
    chex_net_destroy(built);
    OK_STATUS(chex_checkpoint_read(in_dir("a.h5"), false, &built, &back, &err), CHEX_OK, err, NULL);
    OK(same(back->params, c->params) && same(back->ema, c->ema) && !back->moment1 && !back->moment2,
       "without moments");
    chex_checkpoint_destroy(back);
    chex_net_destroy(built);
    chex_checkpoint_destroy(NULL);
}

static void test_digest(const struct chex_checkpoint *c) {
    struct chex_checkpoint other = *c;
    const size_t n = net->state_count * sizeof(float);
    char *all = malloc(4 * n), one[CHEX_HASH128_HEX_BYTES], two[CHEX_HASH128_HEX_BYTES];
    BAIL_UNLESS(all, "no memory");
    memcpy(all, c->params, n);
    memcpy(all + n, c->moment1, n);
    memcpy(all + 2 * n, c->moment2, n);
    memcpy(all + 3 * n, c->ema, n);
    chex_checkpoint_digest(net, c, one);
    chex_hash128_hex(all, 4 * n, two);
    OK(strcmp(one, two) == 0, "the digest is that of the four vectors one after the other");
    other.ema = other.moment2 = NULL;
    chex_checkpoint_digest(net, &other, one);
    chex_hash128_hex(all, 2 * n, two);
    OK(strcmp(one, two) == 0,
       "a state without second moments and moving average has the digest of two vectors");
    free(all);
}

static enum chex_status pixels_of(const char *meta, struct chex_error *err) {
    json_t *object = json_loads(meta, 0, NULL);
    const enum chex_status st = chex_checkpoint_check_pixels("a.h5", object, net, err);
    json_decref(object);
    return st;
}

static void test_pixels(void) {
    struct chex_error err;
    char right[200];
    snprintf(right, sizeof right, "{\"mean\":[%.17g,%.17g,%.17g],\"std\":[%.17g,%.17g,%.17g]}",
             (double)net->mean[0], (double)net->mean[1], (double)net->mean[2], (double)net->std[0],
             (double)net->std[1], (double)net->std[2]);
    OK_STATUS(pixels_of(right, &err), CHEX_OK, err, NULL);
    OK_STATUS(pixels_of("{}", &err), CHEX_OK, err, NULL);
    OK_STATUS(pixels_of("{\"mean\":[0.5,0.5,0.5]}", &err), CHEX_E_DATA, err,
              "a.h5: trained on pixels normalised by a mean of 0.5 in channel 1");
    memcpy(strstr(right, "std") + 6, "7", 1);
    OK_STATUS(pixels_of(right, &err), CHEX_E_DATA, err, "by a std of 7.");
}

/* SGD has one moment; meta may be longer than an object header holds. */
static void test_fewer_moments(const struct chex_checkpoint *full) {
    struct chex_error err = {0};
    struct chex_checkpoint c = *full, *back = NULL;
    struct chex_net *built = NULL;
    size_t n = 200000;
    char *meta = malloc(n + 1);
    BAIL_UNLESS(meta, "memory");
    memset(meta, 'x', n);
    meta[n] = '\0';
    c.meta = meta;
    c.moment2 = NULL;
    OK_STATUS(chex_checkpoint_write(in_dir("sgd.h5"), net, &c, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_checkpoint_read(in_dir("sgd.h5"), true, &built, &back, &err), CHEX_OK, err,
              NULL);
    BAIL_UNLESS(back, "no checkpoint");
    OK(back->moment1 && !back->moment2 && strcmp(back->meta, meta) == 0,
       "one moment, meta of 200000 bytes");
    chex_checkpoint_destroy(back);
    chex_net_destroy(built);
    free(meta);
    c = *full;
    c.moment1 = c.moment2 = c.ema = NULL;
    OK_STATUS(chex_checkpoint_write(in_dir("p.h5"), net, &c, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_checkpoint_read(in_dir("p.h5"), true, &built, &back, &err), CHEX_OK, err, NULL);
    OK(!back->moment1 && !back->moment2 && !back->ema, "no moments and no average");
    chex_checkpoint_destroy(back);
    chex_net_destroy(built);
}

static void refuse(const char *name, const char *needle) {
    struct chex_error err = {0};
    struct chex_checkpoint *c = NULL;
    struct chex_net *built = NULL;
    OK_STATUS(chex_checkpoint_read(in_dir(name), true, &built, &c, &err), CHEX_E_DATA, err, needle);
    OK(strstr(err.text, name) && !c && !built, "%s is named and nothing is handed out", name);
}

/* Opens a copy of p.h5, which has no moments, for the hand of a breaker. */
static hid_t broken(const char *name) {
    char *data = NULL;
    size_t n = 0;
    BAIL_UNLESS(chex_fs_read(in_dir("p.h5"), 1u << 30, &data, &n, NULL) == CHEX_OK, "p.h5");
    put_file(in_dir(name), data, n);
    free(data);
    hid_t f = H5Fopen(in_dir(name), H5F_ACC_RDWR, H5P_DEFAULT);
    BAIL_UNLESS(f >= 0, "%s", name);
    return f;
}

/* Closes a file of broken(), writes its checksum record again and reads it. */
static void refuse_changed(hid_t file, const char *name, const char *needle) {
    H5Fclose(file);
    BAIL_UNLESS(h5_seal_again(in_dir(name)), "%s", name);
    refuse(name, needle);
}

static void set_int(hid_t file, const char *name, int value) {
    hid_t a = H5Aopen(file, name, H5P_DEFAULT);
    H5Awrite(a, H5T_NATIVE_INT, &value);
    H5Aclose(a);
}

static void add_dataset(hid_t file, const char *name, hid_t type, int rank, const hsize_t *dims) {
    hid_t s = H5Screate_simple(rank, dims, NULL);
    hid_t d = H5Dcreate2(file, name, type, s, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    BAIL_UNLESS(d >= 0, "%s", name);
    H5Dclose(d);
    H5Sclose(s);
}

static void test_broken(void) {
    const char *weight = "/params/classifier.weight", *norm = "/params/features.norm5.weight";
    hid_t f = broken("later.h5");
    set_int(f, "version", 2);
    refuse_changed(f, "later.h5", "version 2");
    f = broken("size.h5");
    set_int(f, "image_size", -3);
    refuse_changed(f, "size.h5", "image_size -3");
    f = broken("missing.h5");
    H5Ldelete(f, norm, H5P_DEFAULT);
    refuse_changed(f, "missing.h5", "no dataset /params/features.norm5.weight");
    f = broken("shape.h5");
    H5Ldelete(f, weight, H5P_DEFAULT);
    add_dataset(f, weight, H5T_IEEE_F32LE, 2, (hsize_t[]){3, 1023});
    refuse_changed(f, "shape.h5",
                   "dataset /params/classifier.weight has shape [3,1023], expected [3,128]");
    f = broken("type.h5");
    H5Ldelete(f, weight, H5P_DEFAULT);
    add_dataset(f, weight, H5T_IEEE_F64LE, 2, (hsize_t[]){3, 1024});
    refuse_changed(f, "type.h5", "/params/classifier.weight is not little-endian 32-bit float");
    f = broken("unhashed.h5");
    hid_t d = H5Dopen2(f, weight, H5P_DEFAULT);
    H5Adelete(d, "xxh3");
    H5Dclose(d);
    refuse_changed(f, "unhashed.h5", "/params/classifier.weight is damaged");
    f = broken("group.h5");
    H5Ldelete(f, "/params", H5P_DEFAULT);
    refuse_changed(f, "group.h5", "no group /params");
    f = broken("kind.h5");
    add_dataset(f, "/moment1", H5T_IEEE_F32LE, 1, (hsize_t[]){3});
    refuse_changed(f, "kind.h5", "moment1");
    f = broken("classes.h5");
    H5Adelete(f, "classes");
    refuse_changed(f, "classes.h5", "no attribute 'classes'");
}

static hid_t set_text(const char *name, const char *attr, const char *text) {
    hid_t f = broken(name), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Adelete(f, attr);
    H5Tset_size(type, strlen(text));
    hid_t a = H5Acreate2(f, attr, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, text);
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
    return f;
}

static void set_names(hid_t f, const char *flat, size_t width, hsize_t count) {
    hid_t type = H5Tcopy(H5T_C_S1);
    hid_t space = H5Screate_simple(1, &count, NULL);
    H5Adelete(f, "classes");
    H5Tset_size(type, width);
    hid_t a = H5Acreate2(f, "classes", type, space, H5P_DEFAULT, H5P_DEFAULT);
    BAIL_UNLESS(H5Awrite(a, type, flat) >= 0, "classes");
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

static void test_foreign(void) {
    refuse_changed(set_text("model.h5", "model", "vgg16"), "model.h5", "unknown model 'vgg16'");
    refuse_changed(set_text("format.h5", "format", "chexnet-shard"), "format.h5",
                   "its format is 'chexnet-shard'");
    hid_t f = broken("names.h5");
    set_names(f, "Mass\0\0No\xff\0\0\0Edema\0", 6, 3);
    refuse_changed(f, "names.h5", "the name of finding 1 is damaged (expected UTF-8 text)");
    refuse_changed(set_text("meta.h5", "meta", "{\"epoch\":8}"), "meta.h5",
                   "attribute meta is damaged");
    f = H5Fcreate(in_dir("other.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    refuse_changed(f, "other.h5", "not a checkpoint");
    chex_fs_write(in_dir("text.h5"), "hello\n", 6, NULL);
    refuse("text.h5", "not an HDF5 file");
    chex_fs_write(in_dir("empty.h5"), "", 0, NULL);
    refuse("empty.h5", "not an HDF5 file");
    refuse("absent.h5", "No such file");
}

/* The layout message, version 3, of the contiguous dataset whose bytes are at `place`. */
static char *find_layout(char *data, size_t n, haddr_t place) {
    char message[10] = {3, 1};
    for (int i = 0; i < 8; i++)
        message[2 + i] = (char)(place >> (8 * i));
    return memmem(data, n, message, sizeof message);
}

/* One bit of a parameter's bytes turned over, its layout another one; a file cut short. */
static void test_damaged(void) {
    char *data = NULL;
    size_t n = 0;
    hid_t f = H5Fopen(in_dir("p.h5"), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "/params/features.conv0.weight", H5P_DEFAULT);
    haddr_t at = H5Dget_offset(d);
    H5Dclose(d);
    H5Fclose(f);
    BAIL_UNLESS(at != HADDR_UNDEF && chex_fs_read(in_dir("p.h5"), 1u << 30, &data, &n, NULL) == 0,
                "p.h5");
    data[at + 17] ^= 4;
    put_file(in_dir("sealed.h5"), data, n);
    refuse("sealed.h5", "damaged: its content has the checksum");
    const size_t bare = n - CHEX_H5_SEAL_BYTES;
    put_file(in_dir("bare.h5"), data, bare);
    refuse("bare.h5", "no checksum record at its end");
    put_file(in_dir("bit.h5"), data, bare);
    BAIL_UNLESS(h5_seal_again(in_dir("bit.h5")), "bit.h5");
    refuse("bit.h5", "dataset /params/features.conv0.weight is damaged");
    char *layout = find_layout(data, n, at);
    BAIL_UNLESS(layout, "the layout of features.conv0.weight");
    char whole[4];
    memcpy(whole, layout, sizeof whole);
    memcpy(layout, (const char[]){3, 0, 8, 0}, sizeof whole); /* compact, of 8 bytes */
    put_file(in_dir("compact.h5"), data, bare);
    BAIL_UNLESS(h5_seal_again(in_dir("compact.h5")), "compact.h5");
    refuse("compact.h5", "dataset /params/features.conv0.weight");
    memcpy(layout, whole, sizeof whole);
    put_file(in_dir("cut.h5"), data, n / 2);
    refuse("cut.h5", "truncated");
    put_file(in_dir("cut1.h5"), data, bare - 1);
    refuse("cut1.h5", "truncated");
    put_file(in_dir("cut2.h5"), data, n - 1);
    refuse("cut2.h5", "truncated or damaged: 55 bytes after its HDF5 data");
    free(data);
}

/* A limit on the size of files, folders that are none, and a file system that is full. */
static void test_no_room(const struct chex_checkpoint *c) {
    struct chex_error err = {0};
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
    enum chex_status st = chex_checkpoint_write(in_dir("full.h5"), net, c, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    OK(st == CHEX_E_ENV && strstr(err.text, "full.h5"), "a file that cannot grow: %s", err.text);
    OK(!chex_fs_exists(in_dir("full.h5")) && temporaries_in(dir) == 0, "nothing is left of it");
    OK_STATUS(chex_checkpoint_write("/dev/full/x.h5", net, c, &err), CHEX_E_ENV, err, "/dev/full");
    OK_STATUS(chex_checkpoint_write(in_dir("none/x.h5"), net, c, &err), CHEX_E_ENV, err,
              "No such file");
    OK(H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) == 0, "no HDF5 id is open");

    const char *disk = in_dir("disk"), *file = in_dir("disk/last.h5");
    BAIL_UNLESS(chex_fs_mkdirs(disk, &err) == CHEX_OK, "%s", err.text);
    if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("small", disk, "tmpfs", 0, "size=4m") != 0) {
        OK(true, "# SKIP a full disk: no file system can be mounted here");
        return;
    }
    BAIL_UNLESS(chex_fs_write(file, "old", 3, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_checkpoint_write(file, net, c, &err), CHEX_E_RESOURCE, err, "No space left");
    char *data = NULL;
    OK(temporaries_in(disk) == 0 && chex_fs_read(file, 9, &data, NULL, &err) == CHEX_OK &&
           strcmp(data, "old") == 0,
       "the last good file stays, and no temporary beside it");
    free(data);
    umount(disk);
}

/* In a new process, where HDF5 has no memory from before: writes or reads a checkpoint while HDF5's
 * allocations from the `from`-th on are refused. Returns the status, or 100 if HDF5 made fewer. */
static int act_without_memory(const char *from, const char *act, const char *path) {
    struct chex_error err = {0};
    struct chex_net *built = NULL;
    struct chex_checkpoint c = sample(), *read = NULL;
    chex_h5_memory_refuse(strtoul(from, NULL, 10));
    const enum chex_status st = strcmp(act, "written") == 0
                                    ? chex_checkpoint_write(path, net, &c, &err)
                                    : chex_checkpoint_read(path, false, &built, &read, &err);
    if (st == CHEX_OK)
        return chex_h5_memory_used() ? 101 : 100;
    return strstr(err.text, "out of memory") ? (int)st : 102;
}

static int run_without_memory(size_t from, const char *act, const char *path) {
    char text[24];
    int status;
    snprintf(text, sizeof text, "%zu", from);
    const pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "checkpoint", text, act, path, (char *)NULL);
        _exit(103);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Each of the first 20 allocations, then in growing steps. */
static void test_memory(void) {
    static const char *const acts[] = {"written", "read"};
    if (!chex_h5_memory_has_reserve()) {
        OK(true, "# SKIP memory that ends inside of HDF5: the sanitizer has its own malloc");
        return;
    }
    const char *file = in_dir("memory.h5");
    for (int i = 0; i < 2; i++) {
        int got = CHEX_E_RESOURCE;
        size_t from = 1, last = 0;
        for (; got == CHEX_E_RESOURCE; from += from < 20 ? 1 : from / 6) {
            got = run_without_memory(from, acts[i], file);
            last = from;
        }
        OK(got == 100 && last > 200,
           "memory that ends at any allocation of HDF5 while a checkpoint is %s is status 9: got "
           "%d "
           "from allocation %zu on",
           acts[i], got, last);
        OK(temporaries_in(dir) == 0 && chex_fs_exists(file), "one whole file is left");
    }
}

int main(int argc, char **argv) {
    struct chex_error err = {0};
    const char *tmp = getenv("TMPDIR");
    BAIL_UNLESS(chex_net_create("densenet_tiny", 3, &net, &err) == CHEX_OK, "%s", err.text);
    if (argc == 4)
        return act_without_memory(argv[1], argv[2], argv[3]);
    snprintf(dir, sizeof dir, "%s/chex-checkpoint-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    struct chex_checkpoint c = sample();
    test_round_trip(&c);
    test_digest(&c);
    test_pixels();
    test_fewer_moments(&c);
    test_memory();
    test_broken();
    test_foreign();
    test_damaged();
    test_no_room(&c);
    drop(&c);
    chex_net_destroy(net);
    chex_fs_remove_tree(dir, NULL);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Several ranks make one set together: the same bytes as one rank, the same verdict on all, and
 * nothing left on failure. The ranks are threads here.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "ingest/create.h"
#include "ingest/create_private.h"
#include "ingest/phantom.h"
#include "ingest/reshard.h"
#include "shard/manifest.h"
#include "shard/verify.h"
#include "tap.h"
#include "thread_ranks.h"

enum { RANKS = 3, IMAGES = 60 };
static char dir[] = "/tmp/chex-unit-create.XXXXXX";

static char *path_of(const char *name) {
    char *p = chex_fs_join(dir, name);
    BAIL_UNLESS(p, "out of memory");
    return p;
}

struct rank {
    const struct chex_create_options *options;
    bool reshard; /* instead of create */
    int fail_at;  /* this allocation of the rank fails */
    bool failed;  /* it was reached */
    struct chex_create_result result;
    enum chex_status status;
    struct chex_error err;
};

static void run_rank(struct chex_group *group, void *arg) {
    struct rank *r = arg;
    ranks_fail_allocation(r->fail_at);
    r->status = r->reshard ? chex_reshard(r->options, group, &r->result, &r->err)
                           : chex_create(r->options, group, &r->result, &r->err);
    r->failed = ranks_allocation_failed();
}

static void run_ranks(const struct chex_create_options *o, bool reshard, struct rank ranks[RANKS]) {
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.options = o, .reshard = reshard};
    ranks_run(RANKS, run_rank, ranks, sizeof *ranks);
}

/* Rank 2 gets options of its own: what a path holds on another node. */
static void run_differing(const struct chex_create_options *o,
                          const struct chex_create_options *other, struct rank ranks[RANKS]) {
    for (int r = 0; r < RANKS; r++)
        ranks[r] = (struct rank){.options = r == 2 ? other : o};
    ranks_run(RANKS, run_rank, ranks, sizeof *ranks);
}

static void all_say(const struct rank ranks[RANKS], enum chex_status status, const char *text) {
    bool same = true;
    for (int r = 0; r < RANKS; r++)
        same = same && ranks[r].status == status && strstr(ranks[r].err.text, text);
    OK(same, "all ranks: %s (%s)", text, ranks[0].err.text);
}

static bool same_file(const char *a, const char *b, const char *file) {
    char *pa = chex_fs_join(a, file), *pb = chex_fs_join(b, file), *da = NULL, *db = NULL;
    size_t na = 0, nb = 1;
    bool same = chex_fs_read(pa, 1 << 24, &da, &na, NULL) == CHEX_OK &&
                chex_fs_read(pb, 1 << 24, &db, &nb, NULL) == CHEX_OK && na == nb &&
                memcmp(da, db, na) == 0;
    free(pa);
    free(pb);
    free(da);
    free(db);
    return same;
}

static bool same_set(const char *a, const char *b) {
    struct chex_manifest *m = NULL;
    bool same = same_file(a, b, CHEX_MANIFEST_NAME) && same_file(a, b, "rejected.csv") &&
                chex_manifest_read(a, &m, NULL) == CHEX_OK;
    for (int s = 0; same && s < CHEX_SPLIT_COUNT; s++)
        for (size_t i = 0; i < m->splits[s].shard_count; i++)
            same = same && same_file(a, b, m->splits[s].shards[i].file);
    chex_manifest_free(m);
    return same;
}

static struct chex_create_options options(const char *output) {
    static char *images, *labels;
    if (!images) {
        images = path_of("ph/images");
        labels = path_of("ph/labels.csv");
    }
    return (struct chex_create_options){.images = images,
                                        .labels = labels,
                                        .output = output,
                                        .format = "auto",
                                        .tool_version = "chexnet test",
                                        .fractions = {0.6, 0.2, 0.2},
                                        .split_mode = CHEX_SPLIT_PATIENT,
                                        .size = 32,
                                        .workers = 2,
                                        .shards = 4,
                                        .seed = 5};
}

static void check_differing(const char *output) {
    struct rank ranks[RANKS];
    struct chex_error err = {0};
    struct chex_create_options o = options(output), other = o;
    char *labels = path_of("other.csv"), *images = path_of("other"), *text = NULL;
    size_t size = 0;
    BAIL_UNLESS(chex_fs_read(o.labels, 1 << 20, &text, &size, &err) == CHEX_OK, "%s", err.text);
    size -= text[size - 1] == '\n';
    while (size && text[size - 1] != '\n')
        size--; /* one row less */
    BAIL_UNLESS(chex_fs_write(labels, text, size, &err) == CHEX_OK, "%s", err.text);
    other.labels = labels;
    run_differing(&o, &other, ranks);
    all_say(ranks, CHEX_E_DATA, "rank 2 on node2: the rows of ");
    all_say(ranks, CHEX_E_DATA, "differ from those of rank 0 on node0 (59, ");
    OK(!chex_fs_exists(output), "before anything is made");

    char *from = path_of("ph/images/00000001_000.png"),
         *to = path_of("ph2/images/00000001_000.png");
    struct chex_phantom_options twin = {.count = IMAGES, .size = 40, .seed = 3, .workers = 1};
    twin.dir = path_of("ph2");
    BAIL_UNLESS(chex_phantom_write(&twin, &err) == CHEX_OK, "%s", err.text);
    other = o;
    other.images = images;
    run_differing(&o, &other, ranks);
    all_say(ranks, CHEX_E_DATA, "rank 2 on node2: cannot read image folder");
    free(images);
    images = path_of("ph2/images");
    other.images = images;
    run_differing(&o, &other, ranks);
    all_say(ranks, CHEX_E_DATA, "rank 2 on node2: the images below ");
    BAIL_UNLESS(unlink(to) == 0 && link(from, to) == 0, "no link");
    run_differing(&o, &other, ranks);
    all_say(ranks, CHEX_E_DATA, "rank 2 on node2: the images below ");
    OK(!chex_fs_exists(output), "before anything is made");
    free(from);
    free(to);
    free(labels);
    free(images);
    free(text);
    free((char *)twin.dir);
}

static void check_same(struct chex_group *alone, const char *one, const char *three) {
    struct chex_error err = {0};
    struct chex_create_result result;
    struct rank ranks[RANKS];
    struct chex_create_options o = options(one);
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_OK, err, NULL);
    OK(result.rows[CHEX_TRAIN] + result.rows[CHEX_VAL] + result.rows[CHEX_TEST] == IMAGES &&
           result.shards[CHEX_VAL] == 4 && result.kept == 0 && result.rejected == 0,
       "all images, 4 shards a split");
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_E_USAGE, err,
              "holds a set of shards already; --force replaces it");
    o = options(three);
    run_ranks(&o, false, ranks);
    OK(ranks[0].status == CHEX_OK && ranks[2].status == CHEX_OK, "three ranks: %s",
       ranks[0].err.text);
    OK(same_set(one, three), "three ranks make the same bytes as one");
    struct chex_verify_result found;
    OK_STATUS(chex_verify(three, NULL, 2, false, &found, &err), CHEX_OK, err, NULL);
    OK(found.rows == IMAGES, "and all rows are sound");
}

/* Each allocation of rank 1 and every fifth of rank 0 fails in turn, up to the publishing of the
 * set. Allocations of the threads that convert images are not among them. */
static void check_memory(const char *output) {
    struct chex_create_options o = options(output);
    struct chex_error err = {0};
    for (int bad = 0; bad < 2; bad++) {
        struct rank ranks[RANKS];
        bool same = true, clean = true, failed = true;
        int number = 0, tried = 0, refused = 0;
        while (failed && same && number < 20000) {
            number += TAP_SLOW_BUILD ? 9 : bad == 0 ? 5 : 1; /* rank 0 has many */
            tried++;
            for (int r = 0; r < RANKS; r++)
                ranks[r] = (struct rank){.options = &o, .fail_at = r == bad ? number : 0};
            ranks_run(RANKS, run_rank, ranks, sizeof *ranks);
            failed = ranks[bad].failed;
            for (int r = 0; r < RANKS; r++)
                same = same && ranks[r].status == ranks[0].status &&
                       ranks[r].status != CHEX_E_LOST && ranks[r].status != CHEX_E_FAIL;
            refused += ranks[0].status != CHEX_OK;
            clean = clean && (ranks[0].status == CHEX_OK || !chex_fs_exists(output));
            if (ranks[0].status == CHEX_OK)
                chex_fs_remove_tree(output, &err);
        }
        OK(same && !failed,
           "rank %d is out of memory at one of %d allocations: all ranks return the same", bad,
           tried - 1);
        OK(clean && refused > 5, "and leave no output in the %d runs that fail", refused);
    }
}

/* Two broken images and one that is missing. */
static void spoil(void) {
    static const char *const bad[] = {"ph/images/00000002_000.png", "ph/images/00000005_000.png"};
    for (int i = 0; i < 2; i++) {
        char *p = path_of(bad[i]);
        BAIL_UNLESS(truncate(p, 300) == 0, "cannot spoil %s", p);
        free(p);
    }
    char *gone = path_of("ph/images/00000007_000.png");
    BAIL_UNLESS(unlink(gone) == 0, "cannot remove %s", gone);
    free(gone);
}

static void check_bad(struct chex_group *alone, const char *one, const char *three) {
    struct chex_error err = {0};
    struct chex_create_result result;
    struct rank ranks[RANKS];
    struct chex_create_options o = options(three);
    o.max_bad = 2;
    run_ranks(&o, false, ranks);
    OK(ranks[0].status == CHEX_E_DATA && ranks[1].status == CHEX_E_DATA &&
           ranks[2].status == CHEX_E_DATA && strstr(ranks[2].err.text, "00000002_000.png") &&
           strcmp(ranks[0].err.text, ranks[1].err.text) == 0,
       "one bad image too many is the same error on all: %s", ranks[1].err.text);
    OK(!chex_fs_exists(three), "and the output folder is gone");
    o.max_bad = 3;
    run_ranks(&o, false, ranks);
    OK(ranks[0].status == CHEX_OK && ranks[0].result.rejected == 3 && ranks[1].result.rejected == 3,
       "three are allowed: %s", ranks[0].err.text);
    o.output = one;
    o.workers = 1;
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_OK, err, NULL);
    OK(same_set(one, three), "with images left out three ranks still make the same bytes as one");
    char *list = chex_fs_join(one, "rejected.csv"), *text = NULL;
    chex_fs_read(list, 1 << 20, &text, NULL, &err);
    OK(text && strstr(text, "00000002_000.png,\"") && strstr(text, "00000005_000.png,\"") &&
           strstr(text, "00000007_000.png,\"") && strstr(text, "is not under"),
       "rejected.csv names the three");
    free(text);
    free(list);
}

static void check_reshard(struct chex_group *alone, const char *set) {
    struct chex_error err = {0};
    struct chex_create_result result;
    struct rank ranks[RANKS];
    char *one = path_of("reshard-one"), *three = path_of("reshard-three");
    struct chex_create_options o = {
        .set = set, .output = one, .tool_version = "chexnet test", .shards = 5, .workers = 2};
    OK_STATUS(chex_reshard(&o, alone, &result, &err), CHEX_OK, err, NULL);
    OK(result.shards[CHEX_TRAIN] == 5 && result.rejected == 3,
       "5 shards; what was left out still is");
    o.output = three;
    o.workers = 1;
    run_ranks(&o, true, ranks);
    OK(ranks[0].status == CHEX_OK && ranks[2].status == CHEX_OK, "three ranks: %s",
       ranks[0].err.text);
    OK(same_set(one, three), "three ranks reshard to the same bytes as one");
    o.set = three;
    o.output = three;
    OK_STATUS(chex_reshard(&o, alone, &result, &err), CHEX_E_USAGE, err, "is the input");
    free(one);
    free(three);
}

/* The end of a run fails when its shards have their names already: a folder is where rejected.csv
 * belongs. */
static void check_taken_back(struct chex_group *alone, const char *whole) {
    struct chex_error err = {0};
    struct chex_create_result result;
    char *set = path_of("late"), *partial = path_of("late/" CHEX_CREATE_PARTIAL);
    char *block = path_of("late/rejected.csv"), *inner = path_of("late/rejected.csv/x");
    char *train = path_of("late/train");
    chex_fs_mkdirs(partial, &err);
    chex_fs_mkdirs(inner, &err);
    struct chex_create_options o = options(set);
    o.max_bad = 3;
    o.resume = true;
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_E_ENV, err, "rejected.csv");
    OK(!chex_fs_exists(train), "nothing stays under a final name");
    chex_fs_remove_tree(block, &err);
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_OK, err, NULL);
    /* The two images that cannot be read are met anew, each in its shard. */
    size_t all = result.shards[CHEX_TRAIN] + result.shards[CHEX_VAL] + result.shards[CHEX_TEST];
    OK(result.kept + 2 == all, "%zu of %zu shards were finished ones again", result.kept, all);
    OK(same_set(set, whole) && !chex_fs_exists(partial), "and the set is as ever");
    free(set);
    free(partial);
    free(block);
    free(inner);
    free(train);
}

/* Two ranks; the second has nothing to do. Before the end another file takes the manifest's name.
 */
static enum chex_status take_place(void *arg, const char *key, const void *mine, size_t bytes,
                                   void *all, uint64_t wait_ms, struct chex_error *err) {
    (void)wait_ms;
    memcpy(all, mine, bytes);
    memcpy((char *)all + bytes, mine, bytes);
    return strcmp(key, "shard-kept") == 0 ? chex_fs_mkdirs(arg, err) : CHEX_OK;
}

/* The end of a run fails after its rejected.csv, and the folder can be used again. */
static void check_no_list_stays(struct chex_group *alone) {
    struct chex_error err = {0};
    struct chex_create_result result;
    char *set = path_of("blocked"), *place = path_of("blocked/" CHEX_MANIFEST_NAME);
    char *list = path_of("blocked/rejected.csv");
    const struct chex_group_transport copies = {.exchange = take_place};
    struct chex_group *two = NULL;
    BAIL_UNLESS(chex_group_create(0, 2, "", &copies, place, 0, &two, &err) == CHEX_OK, "%s",
                err.text);
    struct chex_create_options o = options(set);
    o.max_bad = 3;
    o.split_mode = CHEX_SPLIT_NONE;
    o.shards = 1;
    OK_STATUS(chex_create(&o, two, &result, &err), CHEX_E_ENV, err, "manifest.json: it is a");
    OK(!chex_fs_exists(list), "the list of images left out does not stay without its set");
    rmdir(place);
    OK_STATUS(chex_create(&o, alone, &result, &err), CHEX_OK, err, NULL);
    OK(chex_fs_exists(list), "it comes with the set");
    free(set);
    chex_group_destroy(two);
    free(place);
    free(list);
}

/* The process ends instead of removing the file with this number, as a killed one does; -1: never.
 */
static int killed_at = -1;

/* NOLINTBEGIN: the names are the linker's */
enum chex_status __real_chex_fs_remove_tree(const char *path, struct chex_error *err);
enum chex_status __wrap_chex_fs_remove_tree(const char *path, struct chex_error *err);
enum chex_status __wrap_chex_fs_remove_tree(const char *path, struct chex_error *err) {
    if (killed_at >= 0 && killed_at-- == 0)
        _exit(0);
    return __real_chex_fs_remove_tree(path, err);
}
/* NOLINTEND */

/* A run that published its set is killed while it removes the partial files, after each number of
 * them. */
static void check_killed_at_end(struct chex_group *alone, const char *output) {
    static const char *const names[] = {"spool-a", "moves",   "spool-b", "spool-c",
                                        "spool-d", "spool-e", "spool-f"};
    enum { NAMES = sizeof names / sizeof names[0] };
    struct chex_error err = {0};
    struct chex_create_result result;
    struct chex_create_options o = options(output);
    char *partial = chex_fs_join(output, CHEX_CREATE_PARTIAL);
    int cleaned = 0;
    o.resume = true;
    for (int n = 0; n < NAMES; n++) {
        BAIL_UNLESS(chex_fs_mkdirs(partial, &err) == CHEX_OK, "%s", err.text);
        for (size_t i = 0; i < NAMES; i++) {
            char *path = chex_fs_join(partial, names[i]);
            BAIL_UNLESS(chex_fs_write(path, "", 0, &err) == CHEX_OK, "%s", err.text);
            free(path);
        }
        const pid_t child = fork();
        if (child == 0) {
            killed_at = n;
            _exit(chex_create(&o, alone, &result, &err) == CHEX_OK ? 1 : 2);
        }
        int status = -1;
        BAIL_UNLESS(child > 0 && waitpid(child, &status, 0) == child && status == 0,
                    "the run was not killed: %d", status);
        const enum chex_status st = chex_create(&o, alone, &result, &err);
        cleaned += st == CHEX_OK && result.done && !chex_fs_exists(partial);
    }
    OK(cleaned == NAMES,
       "a complete set loses its partial folder, wherever the run before was killed: %d of %d "
       "times",
       cleaned, (int)NAMES);
    free(partial);
}

static void check_stripes(void) {
    char text[1024];
    OK(!chex_store_stripe_hint(0xEF53, 1 << 20, "/d", text, sizeof text), "no advice on ext4");
    OK(chex_store_stripe_hint(0x0BD00BD0, 1 << 20, "/d", text, sizeof text) &&
           strstr(text, "'lfs setstripe -c 1 -S 4M /d'"),
       "%s", text);
    OK(chex_store_stripe_hint(0x0BD00BD0, (uint64_t)5 << 29, "/d", text, sizeof text) &&
           strstr(text, "-c 3 "),
       "%s", text);
    OK(chex_store_stripe_hint(0x0BD00BD0, (uint64_t)1 << 40, "/d", text, sizeof text) &&
           strstr(text, "-c 8 "),
       "%s", text);
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    chex_log_init("unit-create", CHEX_LOG_ERROR);
    char *phantom = path_of("ph"), *a = path_of("a"), *b = path_of("b"), *c = path_of("c"),
         *d = path_of("d");
    struct chex_phantom_options po = {
        .dir = phantom, .count = IMAGES, .size = 40, .seed = 3, .workers = 2};
    BAIL_UNLESS(chex_phantom_write(&po, &err) == CHEX_OK, "%s", err.text);
    struct chex_group *alone = NULL;
    BAIL_UNLESS(chex_group_create(0, 1, "", NULL, NULL, 0, &alone, &err) == CHEX_OK, "%s",
                err.text);
    check_differing(a);
    check_same(alone, a, b);
    check_killed_at_end(alone, a);
    check_memory(d);
    spoil();
    check_bad(alone, c, d);
    check_reshard(alone, c);
    check_taken_back(alone, c);
    check_no_list_stays(alone);
    check_stripes();
    chex_group_destroy(alone);
    chex_fs_remove_tree(dir, &err);
    struct chex_create_options o = options("");
    free((char *)o.images);
    free((char *)o.labels);
    free(phantom);
    free(a);
    free(b);
    free(c);
    free(d);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch files: those of torch.save (tests/data/torch, made by tests/peers/make_torch.py) are
 * read, and files that are cut, changed or made to hurt are refused in one line.
 */
#include "model/torch_file.h"

#include "base/log.h"
#include "dir.h"
#include "model/pickle.h"
#include "model/weights.h"
#include "tap.h"
#include "tiny_net.h"

static struct chex_error err;
static struct chex_net *net;
static float *state;

static enum chex_status read_file(const char *file, bool *head) {
    struct chex_tensor_set set;
    *head = false;
    tiny_clear(net, state);
    CHEX_TRY(chex_torch_file_open(file, &set, &err));
    enum chex_status st = chex_tensor_set_load(&set, net, state, head, &err);
    chex_tensor_set_release(&set);
    return st;
}

static const char *recorded(const char *name) { return data_path("torch/%s.pth", name); }

static const char *made(const void *data, size_t bytes) { return dir_put("made.pth", data, bytes); }

/* ---- files of torch.save ---- */

static void test_recorded(void) {
    static const char *const names[] = {"zip",    "legacy",        "protocol5", "half",
                                        "bf16",   "double",        "views",     "views-legacy",
                                        "module", "module-legacy", "training"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool head;
        OK_CALL(read_file(recorded(names[i]), &head));
        OK(head && tiny_holds_recorded(net, state, true), "%s.pth: every value", names[i]);
        OK(chex_weights_format(recorded(names[i])) == CHEX_WEIGHTS_TORCH,
           "%s.pth is known by its content", names[i]);
    }
}

static void test_refused(void) {
    static const struct {
        const char *name, *text;
    } files[] = {
        {"two", "2 state dictionaries (state_dict, ema.shadow), expected one"},
        {"none", "no state dictionary"},
        {"whole-numbers", "is I64, expected F32, F16, BF16 or F64"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        bool head;
        OK_STATUS(read_file(recorded(files[i].name), &head), CHEX_E_DATA, err, files[i].text);
        OK(tiny_untouched(net, state), "%s.pth changes nothing", files[i].name);
    }
}

/* The product of a weight and a pixel is torchxrayvision's for every grey value. */
static void test_one_channel(void) {
    bool head;
    OK_CALL(read_file(recorded("one-channel"), &head));
    const struct chex_param *p = &net->params[net->ops[0].weight];
    double worst = 0;
    for (int out = 0; out < 4; out++)
        for (int tap = 0; tap < 9; tap++)
            for (int grey = 0; grey < 256; grey++) {
                const double w = ((out * 27 + tap) - 5) / 16.0; /* channel 0 of the recorded one */
                double ours = 0, theirs = w * (2048 * (grey / 255.0) - 1024);
                for (int c = 0; c < 3; c++)
                    ours += (double)state[p->offset + (size_t)((out * 3 + c) * 9 + tap)] *
                            (grey / 255.0 - (double)net->mean[c]) / (double)net->std[c];
                worst = fmax(worst, fabs(ours - theirs) / (1024 * fabs(w) + 1e-9));
            }
    /* Three weights of about twice the size, each rounded to 24 bits. */
    OK(worst < 4e-7, "one input channel: equal products for every grey value (%.1e)", worst);
}

/* ---- cut and changed files ---- */

static void test_cut(void) {
    static const char *const names[] = {"zip", "legacy", "module-legacy"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *data = NULL;
        size_t size = 0;
        bool good = true, head;
        MUST(chex_fs_read(recorded(names[i]), 1 << 20, &data, &size, &err));
        for (size_t n = 0; n < size; n += n < 64 ? 1 : 7) {
            good = good && read_file(made(data, n), &head) == CHEX_E_DATA &&
                   strstr(err.text, "made.pth") && tiny_untouched(net, state);
        }
        OK(good, "%s.pth cut at any byte is refused", names[i]);
        free(data);
    }
}

static void test_changed(void) {
    static const char *const names[] = {"zip", "legacy", "module", "training"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *data = NULL;
        size_t size = 0, refused = 0;
        bool good = true, head;
        MUST(chex_fs_read(recorded(names[i]), 1 << 20, &data, &size, &err));
        for (size_t n = 0; n < size; n += 3) {
            data[n] ^= (char)(1 << n % 8);
            const enum chex_status st = read_file(made(data, size), &head);
            good = good && (st == CHEX_OK || (st == CHEX_E_DATA && err.text[0]));
            refused += st != CHEX_OK;
            data[n] ^= (char)(1 << n % 8);
        }
        OK(good && refused > size / 30, "%s.pth with a changed bit: %zu of %zu changes refused",
           names[i], refused, size / 3);
        free(data);
    }
}

/* Other programs may read the other one of two members of one name. */
static void test_doubles(void) {
    static const struct {
        const char *from, *to, *needle;
    } cases[] = {
        {"zip/data/1P", "zip/data/0P", "member 'zip/data/0': is there twice"},
        {"zip/version", "ZIP/data/12", "is there twice"},
        {"zip/.data/serialization_id", "an-other-folder-x/data.pkl", "two members data.pkl"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *data = NULL;
        size_t size = 0, n = strlen(cases[i].from);
        bool head;
        MUST(chex_fs_read(recorded("zip"), 1 << 20, &data, &size, &err));
        for (char *at = data + size - n;; at--) /* the last one is in the directory */
            if (memcmp(at, cases[i].from, n) == 0) {
                memcpy(at, cases[i].to, n);
                break;
            }
        OK_STATUS(read_file(made(data, size), &head), CHEX_E_DATA, err, cases[i].needle);
        free(data);
    }
}

/* ---- pickles ---- */

static void refuse_pickle(const char *what, const char *data, size_t bytes, const char *needle) {
    struct chex_pickle *pickle = NULL;
    printf("# %s\n", what);
    OK_STATUS(chex_pickle_read(data, bytes, "a file", &pickle, NULL, &err), CHEX_E_DATA, err,
              needle);
}
#define REFUSE(what, text, needle) refuse_pickle(what, text, sizeof(text) - 1, needle)

static void test_pickles(void) {
    REFUSE("nothing", "", "truncated");
    REFUSE("no STOP", "\x80\x02}", "truncated");
    REFUSE("STOP on an empty stack", "\x80\x02.", "stack is empty");
    REFUSE("an opcode of protocol 0", "\x80\x02I1\n.", "opcode 0x49, which torch.save does not");
    REFUSE("an import by number", "\x80\x02\x82\x01.", "opcode 0x82");
    REFUSE("a text longer than the file", "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
           "truncated");
    REFUSE("a long longer than the file", "\x80\x02\x8b\xff\xff\xff\x7f.", "truncated");
    REFUSE("a memo index of 2^32 - 1", "\x80\x02}r\xff\xff\xff\xff.", "memo index far beyond");
    REFUSE("a memo entry that is not there", "\x80\x02h\x05.", "was not stored");
    REFUSE("a tuple without a mark", "\x80\x02}t.", "no mark");
    REFUSE("a mark as a value", "\x80\x02(Q.", "stack is empty");
    REFUSE("pairs of three", "\x80\x02}(K\x01K\x02K\x03u.", "entries");
    REFUSE("entries of a number", "\200\002K\001K\002a.", "entries");
    REFUSE("a class without a name", "\x80\x04K\x01K\x02\x93.", "class without a name");
    REFUSE("a state for a persistent object", "\200\002K\001QK\002b.", "outside of the pickle");
}

/* Deep nesting needs no stack of ours. */
static void test_deep(void) {
    enum { DEPTH = 1 << 20 };
    char *data = malloc(DEPTH + 4);
    struct chex_pickle *pickle = NULL;
    size_t used = 0;
    BAIL_UNLESS(data, "memory");
    memcpy(data, "\x80\x02)", 3);
    memset(data + 3, 0x85, DEPTH); /* TUPLE1 */
    data[DEPTH + 3] = '.';
    OK_CALL(chex_pickle_read(data, DEPTH + 4, "deep", &pickle, &used, &err));
    OK(used == DEPTH + 4, "a million tuples in tuples are read");
    chex_pickle_destroy(pickle);
    free(data);
}

/* The pickles before the data in a file before 1.6. */
#define HEAD                                                                                       \
    "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}"            \
    "U\x0dlittle_endian\x88s."

/* A file before 1.6 whose data is this pickle, without storages. */
static void refuse_data(const char *what, const char *pickle, size_t bytes, const char *needle) {
    static const char head[] = HEAD;
    char *data = malloc(sizeof head + bytes + 4);
    bool read_head;
    BAIL_UNLESS(data, "memory");
    memcpy(data, head, sizeof head - 1);
    memcpy(data + sizeof head - 1, pickle, bytes);
    memcpy(data + sizeof head - 1 + bytes, "\x80\x02].", 4);
    printf("# %s\n", what);
    OK_STATUS(read_file(made(data, sizeof head - 1 + bytes + 4), &read_head), CHEX_E_DATA, err,
              needle);
    free(data);
}
#define REFUSE_DATA(what, text, needle) refuse_data(what, text, sizeof(text) - 1, needle)

/* A tensor "a.b" of one storage, with this offset, shape and strides. */
#define TENSOR(offset, shape, strides)                                                             \
    "\x80\x02}U\x03"                                                                               \
    "a.bctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x01"              \
    "0U\x03"                                                                                       \
    "cpuK\x04Nt"                                                                                   \
    "Q" offset shape strides "\x89}tRs."

static void test_objects(void) {
    REFUSE_DATA("no dictionary", "\x80\x02K\x01.", "no state dictionary");
    REFUSE_DATA("a dictionary in itself", "\200\002}q\000U\003a.bh\000s.", "no state dictionary");
    REFUSE_DATA("a storage that is not there", TENSOR("K\x00", "K\x02\x85", "K\x01\x85"),
                "not in the file");
    REFUSE_DATA("a shape that is no tuple", TENSOR("K\x00", "K\x02", "K\x01\x85"),
                "lists of up to 8 sizes");
    REFUSE_DATA("fewer strides than sizes", TENSOR("K\x00", "K\x02K\x02\x86", "K\x01\x85"),
                "lists of up to 8 sizes");
    REFUSE_DATA("a negative size", TENSOR("K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85"),
                "lists of up to 8 sizes");
    REFUSE_DATA("a negative offset", TENSOR("J\xff\xff\xff\xff", "K\x02\x85", "K\x01\x85"),
                "its offset is not a number");
    /* A module that is its own child. */
    REFUSE_DATA(
        "modules without end",
        "\200\002chospital\nNet\n)\201q\000}(U\013_parameters}U\010_modules}U\001xh\000sub.",
        "modules in modules, more than 32 levels deep");
}

/* Python 2 and PyTorch before 0.4: an OrderedDict of lists of two, and the first _rebuild_tensor.
 */
static void test_python2(void) {
    char file[512];
    struct chex_tensor_set set = {0};
    static const char head[] = HEAD;
    static const char data[] =
        "\200\002}U\012state_dictccollections\nOrderedDict\n](]U\003a.bactorch._utils\n_rebuild_"
        "tensor\n((U\007storagectorch.cuda\nFloatStorage\nU\0010U\006cuda:"
        "0K\002NtQK\000K\002\205K\001\205tRae\205Rs.\200\002]U\0010a.\002\0\0\0\0\0\0\0\0\0\200?"
        "\0\0\0@";
    memcpy(file, head, sizeof head - 1);
    memcpy(file + sizeof head - 1, data, sizeof data - 1);
    OK_CALL(chex_torch_file_open(made(file, sizeof head + sizeof data - 2), &set, &err));
    BAIL_UNLESS(set.count == 1, "%s", err.text);
    float values[2];
    memcpy(values, set.tensors[0].data, sizeof values);
    OK(strcmp(set.tensors[0].name, "a.b") == 0 && set.tensors[0].rank == 1 &&
           set.tensors[0].dims[0] == 2 && values[0] == 1 && values[1] == 2,
       "a dictionary of Python 2 with a tensor of PyTorch 0.3");
    chex_tensor_set_release(&set);
}

/* Each level has two entries that are the level below: 2^30 paths. */
static void test_shared(void) {
    enum { LEVELS = 30 };
    char data[LEVELS * 96];
    size_t at = 0;
#define PUT(text) (memcpy(data + at, text, sizeof(text) - 1), at += sizeof(text) - 1)
    PUT("\x80\x02");
    for (int i = 0; i < LEVELS; i++) {
        PUT("chospital\nNet\n)\x81}(U\x0b_parameters}U\x08_modules}");
        if (i > 0) {
            PUT("(U\001ah");
            data[at++] = (char)(i - 1);
            PUT("U\001bh");
            data[at++] = (char)(i - 1);
            PUT("u");
        }
        PUT("ub");
        data[at++] = 'q';
        data[at++] = (char)i;
    }
    PUT(".");
    refuse_data("modules that share modules, 2^30 paths", data, at, "too many objects in objects");
}

int main(void) {
    dir_make();
    chex_log_init("torch_file", CHEX_LOG_ERROR);
    net = tiny_net(3);
    state = malloc(net->state_count * sizeof *state);
    BAIL_UNLESS(state, "memory");
    test_recorded();
    test_refused();
    test_one_channel();
    test_cut();
    test_changed();
    test_doubles();
    test_pickles();
    test_deep();
    test_objects();
    test_python2();
    test_shared();
    free(state);
    chex_net_destroy(net);
    dir_remove();
    return tap_done();
}

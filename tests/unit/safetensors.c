/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: files of the Python package (tests/data/safetensors, made by
 * tests/peers/make_safetensors.py) are read, our own come back, and hostile headers are refused.
 */
#include "model/safetensors.h"

#include <inttypes.h>

#include "base/log.h"
#include "dir.h"
#include "tap.h"
#include "tiny_net.h"

static struct chex_error err;

#define LAYER TINY_LAYER
static struct chex_net *net;
static float *state;

static const char *recorded(const char *name) {
    return data_path("safetensors/%s.safetensors", name);
}
static void clear(void) { tiny_clear(net, state); }
static bool holds_recorded(bool head) { return tiny_holds_recorded(net, state, head); }
static bool untouched(void) { return tiny_untouched(net, state); }

static enum chex_status read_file(const char *path, bool *head_out) {
    struct chex_tensor_set set;
    CHEX_TRY(chex_safetensors_open(path, &set, NULL, &err));
    const enum chex_status st = chex_tensor_set_load(&set, net, state, head_out, &err);
    chex_tensor_set_release(&set);
    return st;
}

static void test_recorded(void) {
    static const struct {
        const char *file;
        bool head;
    } good[] = {{"f32", true}, {"f16", true},        {"bf16", true},
                {"f64", true}, {"names-2018", true}, {"head-5", false}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        bool head = !good[i].head;
        clear();
        OK_CALL(read_file(recorded(good[i].file), &head));
        OK(head == good[i].head && holds_recorded(head), "%s: every value", good[i].file);
    }
}

static void test_round_trip(void) {
    const char *path = dir_path("ours.safetensors");
    float *other = malloc(net->state_count * sizeof *other);
    BAIL_UNLESS(other, "memory");
    for (size_t i = 0; i < net->state_count; i++)
        other[i] = (float)i * 0.37f - 3;
    OK_CALL(chex_safetensors_write(path, net, other, 41, NULL, NULL, 0, &err));
    bool head = false;
    OK_CALL(read_file(path, &head));
    OK(head && memcmp(state, other, net->state_count * sizeof *state) == 0, "what was written");
    char *data = NULL;
    size_t size = 0;
    uint64_t header = 1;
    BAIL_UNLESS(chex_fs_read(path, 1 << 20, &data, &size, NULL) == CHEX_OK, "%s", path);
    memcpy(&header, data, 8);
    int64_t counter = 0;
    memcpy(&counter, data + 8 + header, sizeof counter);
    OK(header % 8 == 0 && counter == 41 && strstr(data + 8, "norm1.num_batches_tracked"),
       "aligned data, num_batches_tracked 41");
    free(data);
    free(other);
    OK_STATUS(chex_safetensors_write("/dev/full/x", net, state, 1, NULL, NULL, 0, &err), CHEX_E_ENV,
              err, "/dev/full");
}

static void test_about(void) {
    char *names[] = {(char[]){"Mass"}, (char[]){"A \"b\", c"}, (char[]){"Edema"}};
    const struct chex_safetensors_about said = {.model = (char[]){"tiny"},
                                                .resize = (char[]){"pillow-bilinear"},
                                                .split = (char[]){"train"},
                                                .source_digest = (char[]){"ab"},
                                                .members = (char[]){"train 0"},
                                                .class_names = names,
                                                .classes = 3,
                                                .image_size = 224,
                                                .stored_size = 256};
    struct chex_safetensors_about a;
    const char *path = dir_path("about.safetensors");
    OK_CALL(chex_safetensors_write(path, net, state, 1, &said, NULL, 0, &err));
    OK_CALL(chex_safetensors_open(path, NULL, &a, &err));
    OK(!strcmp(a.model, "tiny") && !strcmp(a.resize, "pillow-bilinear") &&
           !strcmp(a.split, "train") && !strcmp(a.source_digest, "ab") &&
           !strcmp(a.members, "train 0") && a.image_size == 224 && a.stored_size == 256,
       "what the file says of itself comes back");
    static const char *const ours[] = {"Mass", "A \"b\", c", "Edema"}, *const swapped[] = {
                                                                           "Edema", "A \"b\", c",
                                                                           "Mass"};
    OK(chex_safetensors_may_be(&a, ours, 3) && !chex_safetensors_may_be(&a, swapped, 3) &&
           !chex_safetensors_may_be(&a, ours, 2),
       "named classes are compared, in their order");
    chex_safetensors_about_release(&a);
    clear();
    OK_CALL(read_file(path, NULL));
    int bias = chex_net_find_param(net, "classifier.bias");
    OK(state[net->params[bias].offset] == -77, "a head that is not wanted");
    OK_CALL(chex_safetensors_open(recorded("f32"), NULL, &a, &err));
    OK(!a.model && !a.resize && !a.split && !a.source_digest && !a.classes && !a.image_size &&
           chex_safetensors_may_be(&a, swapped, 3),
       "the Python package's file says nothing, and may be anything");
    OK_STATUS(chex_safetensors_open("/nowhere/x", NULL, &a, &err), CHEX_E_DATA, err, "/nowhere/x");
}

/* A file of the given header and `body` zero bytes. length: what the file says of its header. */
static void put_header(const char *path, uint64_t length, const char *header, size_t header_bytes,
                       size_t body) {
    static const char zeros[1000];
    FILE *f = fopen(path, "wb");
    BAIL_UNLESS(f && fwrite(&length, 8, 1, f) == 1 &&
                    fwrite(header, 1, header_bytes, f) == header_bytes &&
                    fwrite(zeros, 1, body, f) == body && fclose(f) == 0,
                "%s", path);
}

/* Metadata that strangers may write. */
static void test_about_foreign(void) {
    static const char *const foreign[] = {
        "7",
        "[]",
        "{\"classes\":3}",
        "{\"classes\":\"14\",\"image_size\":\"large\",\"resize\":\"\"}",
        "{\"classes\":\"[\\\"a\\\",7]\",\"image_size\":\"-3\"}",
        "{\"classes\":\"[]\",\"image_size\":\"99999999999999999999\"}"};
    const char *path = dir_path("foreign.safetensors");
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        struct chex_safetensors_about a;
        char *header = chex_fs_format("{\"__metadata__\":%s}", foreign[i]);
        put_header(path, strlen(header), header, strlen(header), 0);
        free(header);
        OK_CALL(chex_safetensors_open(path, NULL, &a, &err));
        OK(!a.classes && !a.image_size && !a.resize, "%s counts as not said", foreign[i]);
        chex_safetensors_about_release(&a);
    }
}

static void refuse(const char *what, uint64_t length, const char *header, size_t header_bytes,
                   size_t body, const char *needle) {
    const char *path = dir_path("bad.safetensors");
    put_header(path, length, header, header_bytes, body);
    bool head = true;
    clear();
    printf("# %s\n", what);
    OK_STATUS(read_file(path, &head), CHEX_E_DATA, err, needle);
    OK(untouched() && strstr(err.text, "bad.safetensors"), "%s: file named, state as it was", what);
}

static void refuse_header(const char *what, const char *header, size_t body, const char *needle) {
    refuse(what, strlen(header), header, strlen(header), body, needle);
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #from "," #to \
    "]}"

static void test_lengths(void) {
    refuse("header longer than the file", 1000, "{}", 2, 0,
           "not a safetensors file, or truncated; expected");
    refuse("header of 2^63 bytes", (uint64_t)1 << 63, "{}", 2, 0, "truncated");
    refuse("header of 2^64 - 1 bytes", UINT64_MAX, "{}", 2, 0, "truncated");
    refuse("no header", 0, "", 0, 0, "header");
    refuse_header("not JSON", "hello", 0, "header, byte");
    refuse_header("not an object", "[1]", 0, "not a JSON object");
    refuse_header("not UTF-8", "{\"\xff\xfe\":1}", 0, "header, byte");
    refuse_header("empty", "{}", 0, "no tensor 'features.conv0.weight' (required by tiny)");
    refuse_header(
        "of a model around the network",
        "{" T("wrapper.features.conv0.weight", "F32", "4,3,3,3", 0, 432) "}", 432,
        "(required by tiny); the file has an unknown tensor 'wrapper.features.conv0.weight'");
    char deep[20000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"a\":", 5);
    refuse("deep JSON", sizeof deep, deep, sizeof deep, 0, "maximum parsing depth");
    bool head;
    OK_STATUS(read_file("/nowhere/x.safetensors", &head), CHEX_E_DATA, err,
              "/nowhere/x.safetensors");
    OK_STATUS(read_file(dir_put_text("short.safetensors", "abc"), &head), CHEX_E_DATA, err,
              "3 bytes");
}

static void test_entries(void) {
    refuse_header("beyond the end", "{" T("a", "F32", "4", 0, 16) "}", 15, "truncated?");
    refuse_header("huge offset",
                  "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
                  "[9223372036854775800,9223372036854775804]}}",
                  16, "truncated?");
    refuse_header("number too large",
                  "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":"
                  "[0,18446744073709551616]}}",
                  16, "header, byte");
    refuse_header("negative", "{" T("a", "F32", "1", -4, 0) "}", 16, "begin and an end");
    refuse_header("backwards", "{" T("a", "F32", "1", 8, 4) "}", 16, "begin and an end");
    refuse_header("overlap", "{" T("a", "F32", "2", 0, 8) "," T("b", "F32", "2", 4, 12) "}", 12,
                  "overlaps");
    refuse_header("same bytes", "{" T("a", "F32", "2", 0, 8) "," T("b", "F32", "2", 0, 8) "}", 8,
                  "overlaps");
    refuse_header("hole", "{" T("a", "F32", "1", 0, 4) "," T("b", "F32", "1", 8, 12) "}", 12,
                  "unused bytes");
    refuse_header("bytes after", "{" T("a", "F32", "1", 0, 4) "}", 12, "end at byte 4");
    refuse_header("duplicate", "{" T("a", "F32", "1", 0, 4) "," T("a", "F32", "1", 4, 8) "}", 8,
                  "duplicate");
    refuse_header("shape against bytes", "{" T("a", "F32", "3", 0, 8) "}", 8, "disagree");
    refuse_header("shape overflow", "{" T("a", "F32", "4294967296,4294967296", 0, 8) "}", 8,
                  "shape");
    refuse_header("byte overflow", "{" T("a", "F32", "4611686018427387904", 0, 0) "}", 0,
                  "disagree");
    refuse_header("rank 9", "{" T("a", "F32", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4, "shape");
    refuse_header("fractional shape", "{" T("a", "F32", "1.5", 0, 4) "}", 4, "shape");
    refuse_header("no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype");
    refuse_header("entry of another kind", "{\"a\":7}", 4, "no dtype");
    refuse_header("no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "begin and an end");
    refuse_header("wrong shape", "{" T("features.conv0.weight", "F32", "2,2", 0, 16) "}", 16,
                  "has shape [2,2], expected [4,3,3,3]");
    refuse_header("one parameter by two names",
                  "{" T(LAYER "norm1.bias", "F32", "4", 0, 16) "," T("module." LAYER "norm.1.bias",
                                                                     "F32", "4", 16, 32) "}",
                  32, "are one parameter");
    refuse_header("whole numbers", "{" T("features.conv0.weight", "I64", "4,3,3,3", 0, 864) "}",
                  864, "is I64, expected F32, F16, BF16 or F64");
}

/* A not-a-number among good values: copy of a recorded file with its last float replaced. */
static void test_not_finite(void) {
    char *data = NULL;
    size_t size = 0;
    bool head;
    MUST(chex_fs_read(recorded("f32"), 1 << 20, &data, &size, &err));
    float nan_value = NAN;
    memcpy(data + size - sizeof nan_value, &nan_value, sizeof nan_value);
    const char *path = dir_put("nan.safetensors", data, size);
    clear();
    OK_STATUS(read_file(path, &head), CHEX_E_DATA, err, "nan");
    OK(untouched(), "state as it was");
    free(data);
}

int main(void) {
    dir_make();
    chex_log_init("safetensors", CHEX_LOG_ERROR);
    net = tiny_net(3);
    state = malloc(net->state_count * sizeof *state);
    BAIL_UNLESS(state, "memory");
    test_recorded();
    test_round_trip();
    test_about();
    test_about_foreign();
    test_lengths();
    test_entries();
    test_not_finite();
    free(state);
    chex_net_destroy(net);
    dir_remove();
    return tap_done();
}

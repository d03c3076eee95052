/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of PyTorch files. A file that is read has tensors whose every element can be read; any
 * other is refused in one line. Inputs that begin with neither format go to the pickle reader, as
 * the data of a file before PyTorch 1.6.
 */
#include <string.h>

#include "base/log.h"
#include "fuzz.h"
#include "model/torch_file.h"

/* Loads every tensor into a network of one parameter of its shape, if it is small. */
static void load(const struct chex_tensor_set *set, const struct chex_tensor *t) {
    struct chex_tensor_set one = {
        .path = set->path, .tensors = (struct chex_tensor *)t, .count = 1};
    struct chex_param p = {.kind = CHEX_PARAM_BN_BIAS, .rank = (int)t->rank, .count = 1};
    struct chex_op op = {.in = 0, .weight = CHEX_NET_NONE};
    const struct chex_net net = {
        .model = "one", .params = &p, .param_total = 1, .ops = &op, .op_count = 1};
    struct chex_error err = {0};
    if (t->rank > 4 || strlen(t->name) >= sizeof p.name)
        return;
    for (size_t i = 0; i < t->rank; i++) {
        if (t->dims[i] > 64)
            return;
        p.dims[i] = (int)t->dims[i];
        p.count *= t->dims[i];
    }
    strcpy(p.name, t->name);
    float *state = calloc(p.count + 1, sizeof *state);
    struct chex_net named = net;
    named.state_count = p.count;
    FUZZ_CHECK(state);
    const enum chex_status st = chex_tensor_set_load(&one, &named, state, NULL, &err);
    FUZZ_CHECK(st == CHEX_OK || (st == CHEX_E_DATA && err.text[0]));
    free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char head[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9"
                               "\x03.\x80\x02}U\x0dlittle_endian\x88s.";
    struct chex_tensor_set set;
    struct chex_error err = {0};
    chex_log_init("fuzz", CHEX_LOG_ERROR);
    const bool whole = size >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, head, 4) == 0);
    const size_t before = whole ? 0 : sizeof head - 1;
    const enum chex_status st =
        chex_torch_file_open(fuzz_file(head, before, data, size), &set, &err);
    FUZZ_CHECK(st == CHEX_OK || ((st == CHEX_E_DATA || st == CHEX_E_RESOURCE) && err.text[0] &&
                                 !strchr(err.text, '\n')));
    if (st != CHEX_OK)
        return 0;
    for (size_t i = 0; i < set.count; i++)
        load(&set, &set.tensors[i]);
    (void)chex_tensor_set_outputs(&set);
    chex_tensor_set_release(&set);
    return 0;
}

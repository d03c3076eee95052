/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of parameter names of other programs.
 */
#include "model/parameter_names.h"

#include <string.h>

#include "model/net.h"

/* Prefixes of a module that holds the network. They are removed from the start, repeatedly. So are
 * names of networks with a dot, as in arnoweng/CheXNet, model.py: DenseNet121.densenet121. */
static const char *const wrappers[] = {
    "module.",    /* torch.nn.DataParallel and DistributedDataParallel */
    "_orig_mod.", /* torch.compile */
    "model.",     /* torchxrayvision's ResNet; modules of PyTorch Lightning */
    "net.",       "network.", "backbone.",
};

/* Parts of a name that are replaced once. `after`: only in a name that has this before it; NULL:
 * only at the start. */
static const struct {
    const char *after, *from, *to;
} replacements[] = {
    /* torchvision until 2018, and its ImageNet files until today */
    {"denselayer", ".norm.1.", ".norm1."},
    {"denselayer", ".norm.2.", ".norm2."},
    {"denselayer", ".conv.1.", ".conv1."},
    {"denselayer", ".conv.2.", ".conv2."},
    /* a head in nn.Sequential: (linear, sigmoid) of arnoweng/CheXNet, (dropout, linear) */
    {NULL, "classifier.0.", "classifier."},
    {NULL, "classifier.1.", "classifier."},
    {NULL, "fc.0.", "fc."},
    {NULL, "fc.1.", "fc."},
};

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* The length of the first prefix of a name; 0: none. */
static size_t wrapper_length(const char *name) {
    const size_t length = strcspn(name, ".");
    for (size_t i = 0; name[length] && i < chex_net_count; i++)
        if (strlen(chex_net_names[i]) == length && starts_with(name, chex_net_names[i]))
            return length + 1;
    for (size_t i = 0; i < CHEX_COUNT(wrappers); i++)
        if (starts_with(name, wrappers[i]))
            return strlen(wrappers[i]);
    return 0;
}

static const char *unwrap(const char *name) {
    for (size_t length; (length = wrapper_length(name)) > 0;)
        name += length;
    return name;
}

/* The place of `from` in the name, or NULL. */
static char *find(char *name, const char *after, const char *from) {
    if (!after)
        return starts_with(name, from) ? name : NULL;
    char *start = strstr(name, after);
    return start ? strstr(start, from) : NULL;
}

bool chex_parameter_name(const char *name, char *out, size_t size) {
    name = unwrap(name);
    if (strlen(name) >= size)
        return false;
    strcpy(out, name);
    for (size_t i = 0; i < CHEX_COUNT(replacements); i++) {
        const char *from = replacements[i].from, *to = replacements[i].to;
        char *at = find(out, replacements[i].after, from);
        if (!at)
            continue;
        memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1); /* shorter */
        memcpy(at, to, strlen(to));
        break;
    }
    return true;
}

bool chex_parameter_is_extra(const char *name) {
    name = unwrap(name);
    return strstr(name, "num_batches_tracked") || strcmp(name, "op_threshs") == 0 ||
           starts_with(name, "chexnet.");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses --uncertain of chex-train.
 */
#include "label/uncertain_policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "label/classes.h"
#include "label/values.h"

/* "ignore", "zeros", "ones", "smooth", "smooth:X". */
static enum chex_status parse_policy(const char *text, const char *word,
                                     struct chex_uncertain_policy *out, struct chex_error *err) {
    static const struct {
        const char *name;
        struct chex_uncertain_policy policy;
    } policies[] = {{"ignore", {CHEX_LABEL_UNCERTAIN, -1}},
                    {"zeros", {0, -1}},
                    {"ones", {1, -1}},
                    {"smooth", {CHEX_LABEL_UNCERTAIN, CHEX_SMOOTH_DEFAULT}}};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++)
        if (strcmp(word, policies[i].name) == 0) {
            *out = policies[i].policy;
            return CHEX_OK;
        }
    char *end = NULL;
    const char *number = strncmp(word, "smooth:", 7) == 0 ? word + 7 : NULL;
    const double target = number ? strtod(number, &end) : -1;
    if (number && end != number && !*end && target >= 0 && target <= 1) {
        *out = (struct chex_uncertain_policy){CHEX_LABEL_UNCERTAIN, (float)target};
        return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_USAGE,
                          "--uncertain '%.200s': '%.60s', expected ignore, zeros, ones, smooth or "
                          "smooth:X with X from 0 to 1",
                          text, word);
}

/* One word of the list: POLICY (only the first) or FINDING=POLICY. */
static enum chex_status parse_word(const char *text, char *word, bool first,
                                   const char *const *names, int classes,
                                   struct chex_uncertain_policy *policies, bool *named,
                                   struct chex_error *err) {
    char *equals = strchr(word, '=');
    struct chex_uncertain_policy policy;
    if (!equals && !first)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--uncertain '%.200s': '%.60s', expected FINDING=POLICY: only the "
                              "first policy may have no finding",
                              text, word);
    CHEX_TRY(parse_policy(text, equals ? equals + 1 : word, &policy, err));
    if (equals)
        *equals = '\0';
    const int only = equals ? chex_class_in_list(word, names, classes) : -1;
    if (equals && only < 0)
        return chex_class_not_in_list("--uncertain", "the data", word, names, classes, err);
    if (equals && named[only])
        return chex_error_set(err, CHEX_E_USAGE, "--uncertain '%.200s': %s has two policies", text,
                              names[only]);
    for (int c = 0; c < classes; c++)
        if (!equals || c == only)
            policies[c] = policy;
    if (equals)
        named[only] = true;
    return CHEX_OK;
}

enum chex_status chex_uncertain_policy_parse(const char *text, const char *const *names,
                                             int classes, struct chex_uncertain_policy *policies,
                                             struct chex_error *err) {
    for (int c = 0; c < classes; c++)
        policies[c] = (struct chex_uncertain_policy){CHEX_LABEL_UNCERTAIN, -1};
    if (!text || !*text)
        return CHEX_OK;
    CHEX_AUTO_FREE bool *named = chex_alloc_zeroed((size_t)classes, sizeof *named);
    for (const char *at = text; at;) {
        const size_t n = strcspn(at, ",");
        CHEX_AUTO_FREE char *word = strndup(at, n);
        if (!named || !word)
            return chex_error_memory(err, "--uncertain");
        CHEX_TRY(parse_word(text, word, at == text, names, classes, policies, named, err));
        at = at[n] ? at + n + 1 : NULL;
    }
    return CHEX_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the control groups of base/cgroup.h.
 *
 * Lines of /proc/self/cgroup: "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1.
 */
#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Whether the name is in a list such as "cpu,cpuacct". */
static bool lists(const char *list, const char *name) {
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if (n == strlen(name) && strncmp(list, name, n) == 0)
            return true;
    }
    return false;
}

void chex_cgroup_each(const char *root, const char *controller,
                      void (*fn)(void *arg, const char *folder, bool v2), void *arg) {
    char line[PATH_BYTES + 256], folder[2 * sizeof line + 64];
    snprintf(folder, sizeof folder, "%.*s/proc/self/cgroup", PATH_BYTES, root);
    FILE *f = fopen(folder, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *group = names ? strchr(++names, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const bool v2 = !*names;
        if (!v2 && !lists(names, controller))
            continue;
        if (strcmp(group, "/") == 0)
            *group = '\0';
        for (char *end = group + strlen(group); end; end = strrchr(group, '/')) {
            *end = '\0';
            snprintf(folder, sizeof folder, "%.*s/sys/fs/cgroup%s%s%s", PATH_BYTES, root,
                     v2 ? "" : "/", names, group);
            fn(arg, folder, v2);
        }
    }
    if (f)
        fclose(f);
}

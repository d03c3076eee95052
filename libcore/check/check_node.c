/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the node itself: its type, the errors of NVIDIA's driver in the kernel log (Xid), and
 * the fabric manager of a node with NVSwitches.
 *
 * A line of the log: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "check/checks.h"
#include "check/measure.h"

enum chex_verdict chex_check_gpu_verdict(const struct chex_check_context *c) {
    return c->mode == CHEX_MODE_JOB && !c->root && !c->gpu.allotted ? CHEX_WARN : CHEX_FAIL;
}

/* ---- node-type ---- */

static void probe_type(const struct chex_check_context *c, struct chex_check_result *r) {
    char type[200];
    const char *pattern = chex_check_expected_type(c->expected);
    chex_check_node_type_text(chex_check_root(c), type, sizeof type);
    chex_check_expect(r, "one of \"node-types\" of --expect, if it has them");
    chex_check_found(r, "%s%s%s", type, pattern ? "; type " : "", pattern ? pattern : "");
    if (pattern && !pattern[0])
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "nothing is expected of this node: add its type, or look for what it has "
                          "lost");
}
CHEX_CHECK(node_type, .name = "node-type", .question = "of what type is this node?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_type, .recorded = true);

/* ---- gpu-xid ---- */

/* Counts the errors of a log since boot. The device gives one message a read, EAGAIN at the end,
 * and EPIPE for messages that were overwritten. */
static void count_lines(FILE *log, json_t *counts_out) {
    char line[8192], gpu[20], name[64];
    int number;
    setvbuf(log, NULL, _IOFBF, sizeof line);
    for (errno = 0; fgets(line, sizeof line, log) || errno == EPIPE; errno = 0) {
        const char *at = ferror(log) ? NULL : strstr(line, "NVRM: Xid (PCI:");
        clearerr(log);
        if (!at || sscanf(at, "NVRM: Xid (PCI:%19[0-9a-fA-F:.]): %d", gpu, &number) != 2)
            continue;
        snprintf(name, sizeof name, "GPU %s Xid %d", gpu, number);
        const json_int_t before = json_integer_value(json_object_get(counts_out, name));
        json_object_set_new(counts_out, name, json_integer(before + 1));
    }
}

static const char *count_xids(const char *root, json_t *counts_out) {
    if (!chex_fs_exists(chex_path(root, "proc/driver/nvidia/version").text))
        return "no NVIDIA driver";
    const int fd = open(chex_path(root, "dev/kmsg").text, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *log = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!log)
        return errno == ENOENT ? "there is no kernel log"
                               : "the kernel log is not readable by this user "
                                 "(kernel.dmesg_restrict)";
    count_lines(log, counts_out);
    fclose(log);
    return NULL;
}

/* Faults are what NVIDIA's catalogue of Xid errors answers with a reset of the GPU or a restart of
 * the node. Retired rows and parts (63, 156), many single-bit errors (92) and contained memory
 * errors (94) only warn. All others come from programs, follow from these, or are of NVLink 5,
 * whose answer needs more than the number. */
static double most_xids(const char *name) {
    static const int faults[] = {46,  48,  62,  64,  74,  79,  95, 109,
                                 110, 119, 120, 136, 140, 143, 158};
    static const int weak[] = {63, 92, 94, 156};
    const int number = atoi(strrchr(name, ' '));
    for (size_t k = 0; k < CHEX_COUNT(faults); k++)
        if (faults[k] == number)
            return 1;
    for (size_t k = 0; k < CHEX_COUNT(weak); k++)
        if (weak[k] == number)
            return 10;
    return INFINITY;
}

CHEX_CHECK(gpu_xid, .name = "gpu-xid", .question = "has the driver logged errors of GPUs (Xid)?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .recorded = true,
           .count = count_xids, .most_a_day = most_xids, .since_boot = true);

/* ---- fabric-manager ---- */

/* Whether a process of this name runs. The kernel keeps 15 characters of a name. */
static bool runs(const char *root, const char *wanted) {
    char file[300], name[32];
    bool found = false;
    DIR *proc = opendir(chex_path(root, "proc").text);
    for (struct dirent *e; proc && !found && (e = readdir(proc));) {
        snprintf(file, sizeof file, "proc/%s/comm", e->d_name);
        found = chex_fs_line(root, file, "", name, sizeof name) && strcmp(name, wanted) == 0;
    }
    if (proc)
        closedir(proc);
    return found;
}

static void probe_manager(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_fs_name switches[64];
    char init[16];
    const char *root = chex_check_root(c);
    const int count = chex_fs_names(root, "proc/driver/nvidia-nvswitch/devices", switches, 64);
    chex_check_expect(r, "it runs, if the node has NVSwitches");
    if (count == 0) {
        chex_check_skip(r, "no NVSwitch");
    } else if (runs(root, "nv-fabricmanage")) {
        chex_check_found(r, "%d NVSwitches, running", count);
    } else if (!chex_fs_line(root, "proc/1/comm", "", init, sizeof init) ||
               (strcmp(init, "systemd") != 0 && strcmp(init, "init") != 0)) {
        chex_check_skip(r, "processes of the node are hidden here");
    } else {
        chex_check_found(r, "%d NVSwitches, not running", count);
        chex_check_worsen(r, chex_check_gpu_verdict(c), CHEX_FAULT_NODE,
                          "start it on %s: systemctl start nvidia-fabricmanager, in the version of "
                          "the driver; until then --exclude=%s",
                          c->launch->host, c->launch->host);
    }
}
CHEX_CHECK(fabric_manager, .name = "fabric-manager", .question = "does the fabric manager run?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_manager,
           .recorded = true);

/* SPDX-License-Identifier: Apache-2.0
 *
 * The network and the log of a node: ports of several nodes beside each other, the lists of NCCL,
 * and the kernel log as a device. Files of nodes are written below a scratch folder.
 */
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "check/check.h"
#include "check/checks.h"
#include "tap.h"

static char scratch[] = "/tmp/chex-fabric-XXXXXX";

enum { NODES = 5 };
static char roots[NODES][64];

static void put(int node, const char *file, const char *text) {
    char *path = chex_fs_join(roots[node], file);
    struct chex_error err = {0};
    OK_STATUS(chex_fs_make_folder_of(path, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_write(path, text, strlen(text), &err), CHEX_OK, err, NULL);
    free(path);
}

static void make_nodes(void) {
    for (int i = 0; i < NODES; i++) {
        snprintf(roots[i], sizeof roots[i], "%s/n%d", scratch, i);
        put(i, "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
        put(i, "sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        put(i, "proc/cpuinfo", i == 4 ? "model name : B\n" : "model name : A\n");
    }
}

/* Probes the first n nodes, one rank on each, and compares them. */
static struct chex_check_result compare(int n) {
    static struct chex_check_result answers[NODES];
    const struct chex_check_result *all[NODES];
    struct chex_check_record records[NODES] = {{0}};
    const struct chex_launch launch = {.host = "here"};
    for (int i = 0; i < n; i++) {
        const struct chex_check_context c = {.launch = &launch, .root = roots[i]};
        answers[i] = (struct chex_check_result){.fault = CHEX_FAULT_NODE};
        chex_check_fabric_ports.probe(&c, &answers[i]);
        records[i].rank = records[i].node = i;
        records[i].nodes = n;
        snprintf(records[i].host, sizeof records[i].host, "n%d", i);
        all[i] = &answers[i];
    }
    struct chex_check_result merged = answers[0];
    chex_check_fabric_ports.across(records, all, n, &merged);
    return merged;
}

static void test_across(void) {
    struct chex_check_result r = compare(4);
    OK(r.verdict == CHEX_PASS, "equal nodes pass: %s", r.found);
    put(2, "sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (2X NDR)\n");
    r = compare(4);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE &&
           strstr(r.found, "rank 2 (n2): mlx5_0:1 200 Gb/sec (2X NDR)") &&
           strstr(r.remedy, "--exclude=n2"),
       "a slower port is named with its node: %s; %s", r.found, r.remedy);
    OK(compare(5).verdict == CHEX_PASS, "nodes with different processors are not compared");
    char *port = chex_fs_join(roots[2], "sys/class/infiniband/mlx5_0");
    OK_STATUS(chex_fs_remove_tree(port, NULL), CHEX_OK, (struct chex_error){0}, NULL);
    free(port);
    r = compare(4);
    OK(r.verdict == CHEX_FAIL && strstr(r.found, "rank 2 (n2): no InfiniBand or RoCE adapter"),
       "so is an adapter that is gone: %s", r.found);
}

/* The device gives one message a read and ends with EAGAIN. */
static void test_device(void) {
    struct chex_launch launch = {.host = "here"};
    const struct chex_check_context c = {.launch = &launch, .root = roots[0]};
    struct chex_check_result r = {.fault = CHEX_FAULT_NODE};
    char *kmsg = chex_fs_join(roots[0], "dev/kmsg");
    put(0, "proc/driver/nvidia/version", "NVRM\n");
    put(0, "dev/kmsg", "x\n");
    OK(unlink(kmsg) == 0 && symlink("/dev/kmsg", kmsg) == 0, "the log is the device");
    const int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK);
    chex_check_probe_counts(&c, &chex_check_gpu_xid, &r);
    OK(fd < 0 ? r.verdict == CHEX_SKIP && strstr(r.found, "kernel log") : r.found[0] != '\0',
       "the device is read to its end, or the reason is given: %s", r.found);
    if (fd >= 0)
        close(fd);
    free(kmsg);
}

/* What NCCL takes of the ports mlx5_0:1, mlx5_1:1, mlx5_10:1 and mlx5_10:2. */
static const char *taken(const char *list) {
    static struct chex_check_result r;
    static char text[200];
    const struct chex_check_context c = {.root = roots[1]};
    r = (struct chex_check_result){.fault = CHEX_FAULT_USER};
    setenv("NCCL_IB_HCA", list, 1);
    chex_check_interfaces.probe(&c, &r);
    snprintf(text, sizeof text, "%.*s", (int)(strstr(r.found, ", sockets") - r.found), r.found);
    return strchr(text, ' ') + 1;
}

static void test_lists(void) {
    static const char *const ports[] = {"mlx5_1/ports/1", "mlx5_10/ports/1", "mlx5_10/ports/2"};
    static const struct {
        const char *list, *wanted;
    } rows[] = {{"", "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_10:2"},
                {"mlx5_1", "mlx5_1:1 mlx5_10:1 mlx5_10:2"},
                {"=mlx5_1", "mlx5_1:1"},
                {"mlx5_1:1", "mlx5_1:1 mlx5_10:1"},
                {"=mlx5_10:2,mlx5_0", "mlx5_0:1 mlx5_10:2"},
                {"^mlx5_1", "mlx5_0:1"},
                {"^=mlx5_1", "mlx5_0:1 mlx5_10:1 mlx5_10:2"},
                {"^=mlx5_10:2", "mlx5_0:1 mlx5_1:1 mlx5_10:1"},
                {"mlx5_0x", "no InfiniBand"}};
    char file[128];
    for (size_t i = 0; i < CHEX_COUNT(ports); i++) {
        snprintf(file, sizeof file, "sys/class/infiniband/%s/state", ports[i]);
        put(1, file, "4: ACTIVE\n");
    }
    for (size_t i = 0; i < CHEX_COUNT(rows); i++)
        OK(strcmp(taken(rows[i].list), rows[i].wanted) == 0, "NCCL_IB_HCA=%s takes %s",
           rows[i].list, taken(rows[i].list));
    unsetenv("NCCL_IB_HCA");
}

int main(void) {
    BAIL_UNLESS(mkdtemp(scratch), "no scratch folder");
    make_nodes();
    test_across();
    test_device();
    test_lists();
    (void)chex_fs_remove_tree(scratch, NULL);
    return tap_done();
}

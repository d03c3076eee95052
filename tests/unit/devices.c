/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank takes which GPU, over described views; against all permutations where they can be
 * counted.
 */
#include "launch/devices.h"

#include "dir.h"
#include "tap.h"

static struct chex_error err;

/* "1b:4 5d:0" is a rank's view: bus, and how many of its CPUs are close. */
static struct chex_gpu_candidate seat(int rank, const char *view) {
    struct chex_gpu_candidate s = {.rank = rank};
    unsigned bus;
    int close, used;
    while (sscanf(view, "%x:%d%n", &bus, &close, &used) == 2) {
        snprintf(s.gpus[s.count].pci_bus_id, CHEX_PCI_BYTES, "0000:%02x:00.0", bus);
        s.gpus[s.count++].near_cpus = close;
        view += used;
    }
    return s;
}

struct row {
    const char *what;
    const char *views[8]; /* of each rank */
    const char *taken;    /* buses in the order of ranks, or NULL: refused */
    bool share;
};

static const struct row rows[] = {
    {"one rank, one GPU", {"1b:0"}, "1b"},
    {"one rank takes the first of two", {"1b:0 5d:0"}, "1b"},
    {"or the closer one", {"1b:0 5d:8"}, "5d"},
    {"ranks that see their own only, in any order", {"5d:0", "1b:0"}, "5d 1b"},
    {"ranks that see all take them in the order of buses", {"1b:4 5d:4", "1b:4 5d:4"}, "1b 5d"},
    {"the order in which CUDA lists them does not matter", {"5d:0 1b:0", "1b:0 5d:0"}, "1b 5d"},
    {"the second socket's rank gets the second socket's GPU", {"1b:0 5d:8", "1b:8 5d:0"}, "5d 1b"},
    {"two sockets, four GPUs",
     {"1b:4 2c:4 9a:0 ab:0", "1b:0 2c:0 9a:4 ab:4", "1b:4 2c:4 9a:0 ab:0", "1b:0 2c:0 9a:4 ab:4"},
     "1b 9a 2c ab"},
    {"who has a choice leaves the only one to who has none", {"1b:8 5d:0", "1b:8"}, "5d 1b"},
    {"a chain of such moves", {"1b:0 5d:0", "1b:0 5d:0 9a:0", "1b:0"}, "5d 9a 1b"},
    {"fewer ranks than GPUs", {"1b:0 2c:0 9a:0", "1b:0 2c:0 9a:0"}, "1b 2c"},
    {"two ranks and one GPU", {"1b:0", "1b:0"}, NULL},
    {"three ranks that see two", {"1b:0 5d:0", "1b:0 5d:0", "1b:0 5d:0"}, NULL},
    {"two that see the same one of two", {"1b:0", "1b:0", "5d:0"}, NULL},
    {"MPS: two ranks and one GPU", {"1b:0", "1b:0"}, "1b 1b", true},
    {"MPS: evenly", {"1b:8 5d:0", "1b:8 5d:0", "1b:8 5d:0", "1b:8 5d:0"}, "1b 1b 5d 5d", true},
    {"MPS: ranks share no GPU without need", {"1b:8 5d:0", "1b:8 5d:0"}, "1b 5d", true},
};

static void run_row(const struct row *w) {
    struct chex_gpu_candidate seats[8];
    int n = 0, chosen[8];
    char got[64] = "";
    for (; n < 8 && w->views[n]; n++)
        seats[n] = seat(n, w->views[n]);
    enum chex_status st = chex_gpu_assign(seats, n, w->share, chosen, &err);
    for (int i = 0; st == CHEX_OK && i < n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.2s", i ? " " : "",
                 seats[i].gpus[chosen[i]].pci_bus_id + 5);
    if (!w->taken) {
        OK(st == CHEX_E_ENV && strstr(err.text, "would share GPU 0000:"), "%s: %s", w->what,
           err.text);
        return;
    }
    if (strcmp(w->what, "MPS: evenly") == 0) { /* which two is the order's affair */
        int first = 0;
        for (int i = 0; i < n; i++)
            first += strncmp(got + 3 * i, "1b", 2) == 0;
        OK(st == CHEX_OK && first == 2, "%s: %s", w->what, got);
        return;
    }
    OK(st == CHEX_OK && strcmp(got, w->taken) == 0, "%s: %s%s", w->what, got, err.text);
}

/* The most CPUs that any way brings close to their GPUs; -1: there is none. */
static int best_of(const struct chex_gpu_candidate *seats, int n, int i, unsigned taken) {
    int best = -1;
    if (i == n)
        return 0;
    for (int k = 0; k < seats[i].count; k++) {
        const unsigned bit = 1u << (seats[i].gpus[k].pci_bus_id[6] - '0');
        const int rest = taken & bit ? -1 : best_of(seats, n, i + 1, taken | bit);
        if (rest >= 0 && rest + seats[i].gpus[k].near_cpus > best)
            best = rest + seats[i].gpus[k].near_cpus;
    }
    return best;
}

static void exhaustive(void) {
    int wrong = 0, refused = 0;
    unsigned state = 12345;
    for (int t = 0; t < 3000; t++) {
        struct chex_gpu_candidate seats[6];
        const int n = 1 + t % 6, m = 1 + t / 6 % 7;
        int chosen[6], sum = 0;
        unsigned taken = 0;
        for (int i = 0; i < n; i++) {
            char view[128] = "";
            for (int j = 0; j < m; j++) {
                state = state * 1103515245u + 12345u;
                if (state >> 16 & 3 || (j == m - 1 && !view[0])) /* each sees three of four */
                    snprintf(view + strlen(view), sizeof view - strlen(view), "%x:%u ", j,
                             state >> 20 & 3);
            }
            seats[i] = seat(i, view);
        }
        const int best = best_of(seats, n, 0, 0);
        const enum chex_status st = chex_gpu_assign(seats, n, false, chosen, NULL);
        for (int i = 0; st == CHEX_OK && i < n; i++) {
            const unsigned bit = 1u << (seats[i].gpus[chosen[i]].pci_bus_id[6] - '0');
            wrong += (taken & bit) != 0;
            taken |= bit;
            sum += seats[i].gpus[chosen[i]].near_cpus;
        }
        wrong += st == CHEX_OK ? sum != best : best >= 0 || st != CHEX_E_ENV;
        refused += st != CHEX_OK;
    }
    OK(wrong == 0 && refused > 100 && refused < 2000,
       "3000 drawn nodes: as close as the best of all ways, refused (%d) only where there is none",
       refused);
}

static void names(void) {
    char id[CHEX_PCI_BYTES];
    OK(strcmp(chex_gpu_pci_id("00000000:1B:00.0", id), "0000:1b:00.0") == 0, "NVML's bus id");
    OK(strcmp(chex_gpu_pci_id("0000:1B:00.0", id), "0000:1b:00.0") == 0, "CUDA's");
    OK(strcmp(chex_gpu_pci_id("00010000:01:00.0", id), "10000:01:00.0") == 0, "a long domain");
    OK(!*chex_gpu_pci_id("1b:00.0", id) && !*chex_gpu_pci_id("", id) &&
           !*chex_gpu_pci_id("0000:1b:00.0 y", id),
       "what is no bus id");
    OK(chex_gpu_same("a", "GPU-1", "b", "1") && !chex_gpu_same("a", "GPU-1", "a", "MIG-2") &&
           chex_gpu_same("a", "", "a", "GPU-1") && !chex_gpu_same("a", "", "b", ""),
       "UUIDs first, then bus ids");
    struct chex_gpu_list list = {3, {{"10000:01:00.0"}, {"0000:5d:00.0"}, {"0000:1b:00.0"}}};
    chex_gpu_sort(&list);
    OK(list.gpus[0].pci_bus_id[5] == '1' && list.gpus[1].pci_bus_id[5] == '5', "sorted by bus");
}

static void parts(void) {
    struct chex_gpu_candidate seats[2] = {seat(0, "1b:0"), seat(1, "1b:0")};
    int chosen[2] = {-1, -1};
    snprintf(seats[0].gpus[0].uuid, CHEX_UUID_BYTES, "MIG-b");
    snprintf(seats[1].gpus[0].uuid, CHEX_UUID_BYTES, "MIG-a");
    OK_CALL(chex_gpu_assign(seats, 2, false, chosen, &err));
    OK(chosen[0] == 0 && chosen[1] == 0, "two parts of one GPU are two");
    seats[1].count = 0;
    OK_STATUS(chex_gpu_assign(seats, 2, false, chosen, &err), CHEX_E_ENV, err,
              "rank 1 sees no GPU");
    struct chex_gpu_candidate *many = calloc(CHEX_GPU_RANKS + 1, sizeof *many);
    int *taken = calloc(CHEX_GPU_RANKS + 1, sizeof *taken), same = 0;
    if (!many || !taken)
        exit(1);
    for (int i = 0; i <= CHEX_GPU_RANKS; i++)
        many[i] = seat(i, "0:9 1:9 2:9 3:9 4:0 5:0 6:0 7:0");
    OK_CALL(chex_gpu_assign(many, CHEX_GPU_RANKS, true, taken, &err));
    for (int i = 0; i < CHEX_GPU_RANKS; i++)
        same += taken[i] == 0;
    OK(same == CHEX_GPU_RANKS / 8, "64 ranks under MPS: 8 on each of 8");
    OK_STATUS(chex_gpu_assign(many, CHEX_GPU_RANKS + 1, true, taken, &err), CHEX_E_ENV, err,
              "65 ranks (expected 1 to 64)");
    free(many);
    free(taken);
}

static void mps(void) {
    char text[32];
    dir_make();
    setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1);
    OK(!chex_gpu_mps(), "no MPS daemon");
    const char *path = dir_path("nvidia-cuda-mps-control.pid");
    snprintf(text, sizeof text, "%ld\n", (long)getpid());
    OK_CALL(chex_fs_write(path, text, strlen(text), &err));
    OK(chex_gpu_mps(), "its process is alive");
    OK_CALL(chex_fs_write(path, "999999999\n", 10, &err));
    OK(!chex_gpu_mps(), "a file that a dead one left");
    dir_remove();
}

int main(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        run_row(&rows[i]);
    exhaustive();
    names();
    parts();
    mps();
    return tap_done();
}

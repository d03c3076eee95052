/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of settings of NCCL, MPI and HDF5, and where each setting comes from. They are always
 * printed. Settings that are known to slow training down get a warning, which is the user's to fix.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "check/checks.h"

extern char **environ;

static void append(struct chex_check_result *r, const char *text, const char *origin) {
    chex_check_found_more(r, "%s%s (%s)", r->found[0] ? ", " : "", text, origin);
}

/* Appends the variables whose names begin with one of the prefixes, except those that skip()
 * selects. */
static void from_environment(struct chex_check_result *r, const char *const *prefixes,
                             bool (*skip)(const char *)) {
    for (char **e = environ; *e; e++)
        for (const char *const *p = prefixes; *p; p++)
            if (strncmp(*e, *p, strlen(*p)) == 0 && !(skip && skip(*e)))
                append(r, *e, "environment");
}

/* Appends the lines NAME=value or name = value of a settings file. */
static void from_file(struct chex_check_result *r, const char *path) {
    char line[512];
    int fd = -1;
    FILE *f = chex_fs_open(path, &fd, NULL, NULL) == CHEX_OK ? fdopen(fd, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        char *start = line + strspn(line, " \t");
        start[strcspn(start, "\n")] = '\0';
        if (*start && *start != '#' && strchr(start, '='))
            append(r, start, path);
    }
    if (f)
        fclose(f);
}

static void from_home(struct chex_check_result *r, const char *name) {
    char path[4096];
    const char *home = getenv("HOME");
    if (home && snprintf(path, sizeof path, "%s/%s", home, name) < (int)sizeof path)
        from_file(r, path);
}

static void none_set(struct chex_check_result *r) {
    if (!r->found[0])
        chex_check_found(r, "none set");
}

static bool disables(const char *name) {
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

static void probe_nccl(const struct chex_check_context *c, struct chex_check_result *r) {
    static const char *const prefixes[] = {"NCCL_", NULL};
    (void)c;
    chex_check_expect(r, "nothing that turns fast paths off; equal on all ranks");
    from_file(r, "/etc/nccl.conf");
    from_home(r, ".nccl.conf");
    from_environment(r, prefixes, NULL);
    none_set(r);
    static const char *const off[] = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++)
        if (disables(off[i]))
            chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                              "%s slows every step down; unset it unless you need it", off[i]);
}
CHEX_CHECK(nccl_env, .name = "nccl-env",
           .question = "which settings of NCCL are in force, and from where?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_USER, .probe = probe_nccl, .across = chex_check_same);

/* Whether Open MPI's mpirun sets this variable, to another value for each rank or run. */
static bool set_by_mpirun(const char *variable) {
    static const char *const own[] = {
        "OMPI_MCA_ess_",          "OMPI_MCA_orte_",
        "OMPI_MCA_pmix=",         "OMPI_MCA_shmem_RUNTIME_",
        "OMPI_MCA_initial_wdir=", "PMIX_MCA_mca_base_component_show_load_errors="};
    if (!getenv("OMPI_COMM_WORLD_RANK"))
        return false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strncmp(variable, own[i], strlen(own[i])) == 0)
            return true;
    return strncmp(variable, "OMPI_", 5) == 0 && strncmp(variable, "OMPI_MCA_", 9) != 0;
}

/* Whether the launcher sets this variable for each rank. */
static bool set_by_launcher(const char *variable) {
    return set_by_mpirun(variable) || strncmp(variable, "SLURM_PMIX_MAPPING_SERV=", 24) == 0 ||
           strcmp(variable, "PMIX_MCA_psec=native") == 0 ||
           strcmp(variable, "PMIX_MCA_psec=munge") == 0 ||
           (strncmp(variable, "PMIX_", 5) == 0 && strncmp(variable, "PMIX_MCA_", 9) != 0);
}

static void probe_mpi(const struct chex_check_context *c, struct chex_check_result *r) {
    static const char *const prefixes[] = {"OMPI_", "PMIX_", "PRTE_MCA_", "SLURM_PMIX_", NULL};
    (void)c;
    chex_check_expect(r, "shared memory and a network in use; equal on all ranks");
    from_home(r, ".openmpi/mca-params.conf");
    from_environment(r, prefixes, set_by_launcher);
    none_set(r);
    const char *btl = getenv("OMPI_MCA_btl");
    if (btl && btl[0] != '^' && !strstr(btl, "vader") && !strstr(btl, "sm"))
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "OMPI_MCA_btl=%s disables shared memory (vader); unset it", btl);
    const char *fence = getenv("SLURM_PMIX_FENCE");
    if (fence && strcmp(fence, "tree") == 0)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "the tree fence of Slurm's PMIx may not wait for other nodes: unset "
                          "SLURM_PMIX_FENCE, or set it to ring");
}
CHEX_CHECK(mpi_env, .name = "mpi-env",
           .question = "which settings of MPI and PMIx are in force, and from where?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_mpi,
           .across = chex_check_same);

/* The variable overrides the locking mode that our code selects when it opens a file. */
static void probe_hdf5_env(const struct chex_check_context *c, struct chex_check_result *r) {
    const char *value = getenv("HDF5_USE_FILE_LOCKING");
    (void)c;
    chex_check_expect(r, "unset, FALSE or BEST_EFFORT");
    chex_check_found(r, "%s", value ? value : "unset");
    if (value && (strcmp(value, "TRUE") == 0 || strcmp(value, "1") == 0))
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "HDF5_USE_FILE_LOCKING=%s fails on file systems without locks: unset it",
                          value);
}
CHEX_CHECK(hdf5_env, .name = "hdf5-env", .question = "may HDF5 lock files?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_hdf5_env,
           .across = chex_check_same);

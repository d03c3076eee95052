/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of settings of NCCL, MPI, UCX and HDF5, where each setting comes from, and which network
 * they choose. They are always printed. Settings that slow training down or contradict each other
 * or the node get a warning, which is the user's to fix.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/text.h"
#include "check/checks.h"

extern char **environ;

enum library { NCCL, MPI, UCX };
enum { SETTINGS = 64 };

/* Texts that are too long are cut. */
struct setting {
    char name[64], value[560], origin[128]; /* origin: "environment", or the path of a file */
    const struct setting *in_force;         /* of the same name: itself, or one before it */
};

/* In order of precedence, the first ones if there are more. */
struct settings {
    int count;
    struct setting all[SETTINGS];
};

/* Whether Open MPI's mpirun sets this variable, to another value for each rank or run. */
static bool set_by_mpirun(const char *variable) {
    static const char *const own[] = {
        "OMPI_MCA_ess_",          "OMPI_MCA_orte_",
        "OMPI_MCA_pmix=",         "OMPI_MCA_shmem_RUNTIME_",
        "OMPI_MCA_initial_wdir=", "PMIX_MCA_mca_base_component_show_load_errors="};
    if (!getenv("OMPI_COMM_WORLD_RANK"))
        return false;
    for (size_t i = 0; i < CHEX_COUNT(own); i++)
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

/* Where a library finds its settings. */
static const struct {
    const char *prefixes[8];            /* of variables */
    bool (*skip)(const char *variable); /* variables that are no settings */
    const char *files[4];    /* "~/": the home folder; "$NAME": the file or folder of a variable */
    const char *file_prefix; /* of names in files */
} libraries[] = {
    [NCCL] = {.prefixes = {"NCCL_"},
              .files = {"$NCCL_CONF_FILE", "~/.nccl.conf", "/etc/nccl.conf"},
              .file_prefix = ""},
    [MPI] = {.prefixes = {"CHEX_MPI=", "OMPI_", "MPIR_CVAR_", "I_MPI_", "PMIX_", "PRTE_MCA_",
                          "SLURM_PMIX_"},
             .skip = set_by_launcher,
             .files = {"~/.openmpi/mca-params.conf", "$OPAL_PREFIX/etc/openmpi-mca-params.conf",
                       "/etc/openmpi/openmpi-mca-params.conf"},
             .file_prefix = "OMPI_MCA_"},
    [UCX] = {.prefixes = {"UCX_"},
             .files = {"~/ucx.conf", "$UCX_CONFIG_DIR/ucx.conf", "/etc/ucx/ucx.conf"},
             .file_prefix = ""},
};

/* Adds "name=value" or "name = value". */
static void add(struct settings *s, const char *prefix, const char *text, const char *origin) {
    const int name = (int)strcspn(text, " \t=");
    const char *value = strchr(text, '=');
    if (!value || s->count == SETTINGS)
        return;
    struct setting *added = &s->all[s->count++];
    snprintf(added->name, sizeof added->name, "%s%.*s", prefix, name, text);
    snprintf(added->value, sizeof added->value, "%s", value + 1 + strspn(value + 1, " \t"));
    snprintf(added->origin, sizeof added->origin, "%s", origin);
    for (added->in_force = s->all; strcmp(added->in_force->name, added->name) != 0;)
        added->in_force++;
}

static void add_file(struct settings *s, const char *prefix, const char *path, const char *origin) {
    char line[1024];
    int fd = -1;
    FILE *f = chex_fs_open(path, &fd, NULL, NULL) == CHEX_OK ? fdopen(fd, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        const char *start = line + strspn(line, " \t");
        for (char *end = line + strcspn(line, "\n"); end >= line && strchr(" \t\r\n", *end); end--)
            *end = '\0';
        if (*start != '#')
            add(s, prefix, start, origin);
    }
    if (f)
        fclose(f);
}

/* root: in front of /etc. */
static void read_all(const char *root, enum library of, struct settings *out) {
    out->count = 0;
    for (char **e = environ; *e; e++)
        for (const char *const *p = libraries[of].prefixes; *p; p++)
            if (strncmp(*e, *p, strlen(*p)) == 0 && !(libraries[of].skip && libraries[of].skip(*e)))
                add(out, "", *e, "environment");
    for (const char *const *file = libraries[of].files; *file; file++) {
        char path[4096], variable[32];
        const char *rest = *file + strcspn(*file, "/"), *folder = root;
        snprintf(variable, sizeof variable, "%.*s", (int)(rest - *file), *file);
        if (variable[0])
            folder = getenv(variable[0] == '$' ? variable + 1 : "HOME");
        if (folder && snprintf(path, sizeof path, "%s%s", folder, rest) < (int)sizeof path)
            add_file(out, libraries[of].file_prefix, path, variable[0] ? path : *file);
        file += folder && !*rest; /* NCCL_CONF_FILE replaces the user's file */
    }
}

/* The value in force. NULL: none, or an empty one. */
static const char *value_of(const struct settings *s, const char *name) {
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->all[i].name, name) == 0)
            return s->all[i].value[0] ? s->all[i].value : NULL;
    return NULL;
}

static bool is_on(const struct settings *s, const char *name) {
    const char *value = value_of(s, name);
    return value && strcmp(value, "0") != 0;
}

/* Variables of NCCL that scripts set, and those that are two letters from one of these, without
 * NCCL_ in front. */
static const char nccl_names[] =
    " ALGO BUFFSIZE COLLNET_ENABLE COMM_BLOCKING COMM_ID CONF_FILE CROSS_NIC CUMEM_ENABLE DEBUG"
    " DEBUG_FILE DEBUG_SUBSYS DMABUF_ENABLE GRAPH_FILE HOSTID IB_ADAPTIVE_ROUTING IB_DISABLE"
    " IB_GID_INDEX IB_HCA IB_MERGE_NICS IB_PCI_RELAXED_ORDERING IB_PKEY IB_QPS_PER_CONNECTION"
    " IB_RETRY_CNT IB_SL IB_TC IB_TIMEOUT IGNORE_CPU_AFFINITY LAUNCH_MODE MAX_CTAS MAX_NCHANNELS"
    " MAX_NRINGS MIN_CTAS MIN_NCHANNELS MIN_NRINGS MNNVL_ENABLE NET NET_GDR_LEVEL NET_GDR_READ"
    " NET_PLUGIN NSOCKS_PERTHREAD NTHREADS NVB_DISABLE NVLS_ENABLE P2P_DISABLE P2P_LEVEL PROTO"
    " PXN_DISABLE RAS_ADDR RAS_ENABLE RINGS SHM_DISABLE SOCKET_FAMILY SOCKET_IFNAME"
    " SOCKET_NTHREADS TOPO_FILE TUNER_PLUGIN ";

/* Whether a name differs by at most two letters from one of these, and is none of them. */
static bool is_misspelt(const char *name, char *meant_out, size_t size) {
    char word[72];
    struct chex_text_nearest nearest = {.word = name};
    snprintf(word, sizeof word, " %.64s ", name + strlen("NCCL_"));
    if (strstr(nccl_names, word))
        return false;
    for (const char *p = nccl_names + 1; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        snprintf(word, sizeof word, "NCCL_%.*s", (int)strcspn(p, " "), p);
        if (chex_text_offer(&nearest, word))
            snprintf(meant_out, size, "%s", word);
    }
    return nearest.best && nearest.distance <= 2;
}

/* Prints the settings. Warns of a name with different values in two places. */
static void read_settings(const struct chex_check_context *c, enum library of, struct settings *s,
                          struct chex_check_result *r) {
    read_all(chex_check_root(c), of, s);
    for (int i = 0; i < s->count; i++) {
        const struct setting *a = &s->all[i], *used = a->in_force;
        chex_check_found_more(r, "%s%s=%s (%s%s)", i ? ", " : "", a->name, a->value, a->origin,
                              a == used ? "" : ", not used");
        if (strcmp(a->value, used->value) != 0 && !strstr(a->name, "_DEBUG"))
            chex_check_warn_user(r, "%s is %s in %s and %s in %s: remove one of them", a->name,
                                 used->value, used->origin, a->value, a->origin);
    }
    if (s->count == 0)
        chex_check_found(r, "none set");
}

static int active_ports(const struct chex_check_context *c) {
    struct chex_fabric f;
    int active = 0;
    chex_fabric_read(chex_check_root(c), &f);
    for (int i = 0; i < f.ports; i++)
        active += f.links[i].up;
    return active;
}

static void probe_nccl(const struct chex_check_context *c, struct chex_check_result *r) {
    static const char *const off[] = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"};
    struct settings s;
    char meant[72];
    chex_check_expect(r, "nothing that turns fast paths off; equal on all ranks");
    read_settings(c, NCCL, &s, r);
    for (int i = 0; i < s.count; i++)
        if (is_misspelt(s.all[i].name, meant, sizeof meant))
            chex_check_warn_user(r, "%s is not known: is %s meant?", s.all[i].name, meant);
    for (size_t i = 0; i < CHEX_COUNT(off); i++)
        if (is_on(&s, off[i]))
            chex_check_warn_user(r, "%s slows every step down; unset it unless you need it",
                                 off[i]);
    const int ports = is_on(&s, "NCCL_IB_DISABLE") ? active_ports(c) : 0;
    if (ports)
        chex_check_warn_user(r, "NCCL_IB_DISABLE beside %d active ports: unset it", ports);
}
CHEX_CHECK(nccl_env, .name = "nccl-env",
           .question = "which settings of NCCL are in force, and from where?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_USER, .probe = probe_nccl, .across = chex_check_same,
           .recorded = true);

static void probe_mpi(const struct chex_check_context *c, struct chex_check_result *r) {
    struct settings s, ucx;
    chex_check_expect(r, "shared memory and a network in use; equal on all ranks");
    read_settings(c, MPI, &s, r);
    read_all(chex_check_root(c), UCX, &ucx);
    const char *btl = value_of(&s, "OMPI_MCA_btl");
    const char *pml = value_of(&s, "OMPI_MCA_pml");
    const char *fence = value_of(&s, "SLURM_PMIX_FENCE");
    if (btl && btl[0] != '^' && strchr(btl, '^'))
        chex_check_warn_user(r, "OMPI_MCA_btl=%s: ^ can only be the first character", btl);
    else if (btl && btl[0] != '^' && !strstr(btl, "vader") && !strstr(btl, "sm"))
        chex_check_warn_user(r, "OMPI_MCA_btl=%s disables shared memory (vader); unset it", btl);
    if (pml && strcmp(pml, "ob1") == 0 && value_of(&ucx, "UCX_TLS"))
        chex_check_warn_user(r, "OMPI_MCA_pml=ob1 uses no UCX, and UCX_TLS is set: unset one");
    if (fence && strcmp(fence, "tree") == 0)
        chex_check_warn_user(r, "the tree fence of Slurm's PMIx may not wait for other nodes: "
                                "unset SLURM_PMIX_FENCE, or set it to ring");
}
CHEX_CHECK(mpi_env, .name = "mpi-env",
           .question = "which settings of MPI and PMIx are in force, and from where?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_mpi,
           .across = chex_check_same, .recorded = true);

/* Whether a list of UCX has a word that begins with one of the texts. */
static bool lists(const char *list, const char *const *starts) {
    if (*list == '^')
        return true;
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        for (const char *const *s = starts; *s; s++)
            if (strncmp(list, *s, strlen(*s)) == 0)
                return true;
    return false;
}

/* Ranks may differ: UCX_NET_DEVICES is often set for each. */
static void probe_ucx(const struct chex_check_context *c, struct chex_check_result *r) {
    static const char *const shared[] = {"all", "sm", "shm", "posix", "sysv", "cma", NULL};
    static const char *const self[] = {"all", "self", "sm", "shm", NULL};
    static const char *const fast[] = {"all", "ib", "rc", "ud", "dc", NULL};
    struct settings s;
    chex_check_expect(r, "shared memory and the fastest network in use");
    read_settings(c, UCX, &s, r);
    const char *tls = value_of(&s, "UCX_TLS");
    const int ports = tls && !lists(tls, fast) ? active_ports(c) : 0;
    if (tls && !lists(tls, shared))
        chex_check_warn_user(r, "UCX_TLS=%s lacks %ssm, the shared memory of a node", tls,
                             lists(tls, self) ? "" : "self and ");
    if (ports)
        chex_check_warn_user(r, "UCX_TLS=%s does not use the %d active ports: add rc", tls, ports);
}
CHEX_CHECK(ucx_env, .name = "ucx-env",
           .question = "which settings of UCX are in force, and from where?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_USER, .probe = probe_ucx, .recorded = true);

/* The variable overrides the locking mode that our code selects when it opens a file. */
static void probe_hdf5_env(const struct chex_check_context *c, struct chex_check_result *r) {
    const char *value = getenv("HDF5_USE_FILE_LOCKING");
    (void)c;
    chex_check_expect(r, "unset, FALSE or BEST_EFFORT");
    chex_check_found(r, "%s", value ? value : "unset");
    if (value && (strcmp(value, "TRUE") == 0 || strcmp(value, "1") == 0))
        chex_check_warn_user(
            r, "HDF5_USE_FILE_LOCKING=%s fails on file systems without locks: unset it", value);
}
CHEX_CHECK(hdf5_env, .name = "hdf5-env", .question = "may HDF5 lock files?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_hdf5_env,
           .across = chex_check_same);

/* ---- interfaces ---- */

/* Whether a list of NCCL takes a link. "^" in front excludes, "=" makes names exact instead of
 * prefixes. The name of an adapter may be followed by ":PORT". */
static bool takes(const char *list, const char *name) {
    const bool excludes = *list == '^';
    list += excludes;
    const bool exact = *list == '=';
    list += exact;
    const size_t device = strcspn(name, ":");
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        const size_t bare = strcspn(list, ":,");
        const char *port = name + device;
        if (bare <= device && strncmp(name, list, bare) == 0 && (!exact || bare == device) &&
            (bare == n || (strlen(port) == n - bare && strncmp(port, list + bare, n - bare) == 0)))
            return !excludes;
    }
    return excludes;
}

/* What NCCL would use of the links that are up. */
struct choice {
    char names[160];
    int count, down;     /* taken; taken by the list, but down */
    double best, missed; /* greatest rate of those taken, and of the others */
};

static struct choice choose(const struct chex_fabric_link *links, int n, const char *list) {
    struct choice ch = {.count = 0};
    struct chex_text_line line = {ch.names, sizeof ch.names, 0};
    for (int i = 0; i < n; i++) {
        const bool taken = takes(list, links[i].name);
        double *rate = taken ? &ch.best : &ch.missed;
        ch.down += taken && !links[i].up;
        if (!links[i].up)
            continue;
        if (taken)
            chex_text_append(&line, "%s%s", ch.count++ ? " " : "", links[i].name);
        *rate = links[i].gbit_per_s > *rate ? links[i].gbit_per_s : *rate;
    }
    return ch;
}

/* variable: of NCCL, with the value `list`. */
static void judge_choice(const struct choice *ch, const char *variable, const char *list,
                         struct chex_check_result *r) {
    if (ch->count == 0 && ch->down == 0)
        chex_check_warn_user(r, "%s=%s matches nothing of this node: unset it", variable, list);
    else if (ch->count == 0)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE, "all that %s=%s takes is down", variable,
                          list);
    else if (ch->best > 0 && ch->best < ch->missed)
        chex_check_warn_user(r, "%s=%s takes %.4g Gb/s, and there are %.4g Gb/s: unset it",
                             variable, list, ch->best, ch->missed);
}

/* Judges the names of UCX_NET_DEVICES. Patterns are not looked at. */
static void judge_devices(const struct chex_fabric *f, const char *list,
                          struct chex_check_result *r) {
    char exact[96];
    list += *list == '^';
    for (int n; *list; list += n + (list[n] == ',')) {
        n = (int)strcspn(list, ",");
        snprintf(exact, sizeof exact, "=%.*s", n, list);
        const struct choice ch = choose(f->links, f->count, exact);
        if (ch.count + ch.down == 0 && !strpbrk(exact, "*?[") && strcmp(exact, "=all") != 0)
            chex_check_warn_user(r, "UCX_NET_DEVICES has %s, and this node has not", exact + 1);
    }
}

static void probe_interfaces(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_fabric f;
    struct settings nccl, ucx;
    chex_fabric_read(chex_check_root(c), &f);
    read_all(chex_check_root(c), NCCL, &nccl);
    read_all(chex_check_root(c), UCX, &ucx);
    const char *hca = value_of(&nccl, "NCCL_IB_HCA");
    const char *ifname = value_of(&nccl, "NCCL_SOCKET_IFNAME");
    const char *devices = value_of(&ucx, "UCX_NET_DEVICES");
    const bool disabled = is_on(&nccl, "NCCL_IB_DISABLE");
    const struct choice ports = choose(f.links, f.ports, hca ? hca : "^");
    struct choice sockets = choose(f.links + f.ports, f.count - f.ports, ifname ? ifname : "ib");
    if (!ifname && sockets.count == 0)
        sockets = choose(f.links + f.ports, f.count - f.ports, "^docker,lo,virbr");
    chex_check_expect(r, "the fastest that are up");
    chex_check_found(r, "NCCL: %s, sockets %s; UCX: %s",
                     disabled      ? "no InfiniBand (NCCL_IB_DISABLE)"
                     : ports.count ? ports.names
                                   : "no InfiniBand",
                     sockets.count ? sockets.names : "none", devices ? devices : "all");
    if (ports.count && !disabled)
        sockets.missed = 0; /* sockets carry little then */
    if (ifname)
        judge_choice(&sockets, "NCCL_SOCKET_IFNAME", ifname, r);
    if (hca && !disabled)
        judge_choice(&ports, "NCCL_IB_HCA", hca, r);
    if (devices)
        judge_devices(&f, devices, r);
}
CHEX_CHECK(interfaces, .name = "interfaces",
           .question = "which ports and interfaces would NCCL and UCX use?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_USER, .probe = probe_interfaces, .recorded = true);

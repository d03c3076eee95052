/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of library versions: does the running version fit the one at build time?
 *
 * A library that is older than the headers, or has another major version, is the most common cause
 * of crashes after a system update. If LD_LIBRARY_PATH or LD_PRELOAD is set, the fault is the
 * user's.
 */
#include <dlfcn.h>
#include <hdf5.h>
#include <hwloc.h>
#include <jansson.h>
#include <pmix.h>
#include <pmix_version.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/module.h"
#include "check/checks.h"
#include "launch/coll.h"

/* The fault of a wrong library: the user's if LD_LIBRARY_PATH or LD_PRELOAD is set. */
static enum chex_fault library_fault(const struct chex_check_context *c) {
    static const char *const names[] = {"LD_LIBRARY_PATH", "LD_PRELOAD"};
    for (size_t i = 0; !chex_check_of_node(c->mode) && i < 2; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return CHEX_FAULT_USER;
    }
    return CHEX_FAULT_NODE;
}

/* Compares the first `parts` numbers of two dotted versions. */
static bool same_parts(const char *a, const char *b, int parts) {
    for (int i = 0; i < parts; i++) {
        char *end_a, *end_b;
        if (strtol(a, &end_a, 10) != strtol(b, &end_b, 10))
            return false;
        a = *end_a == '.' ? end_a + 1 : end_a;
        b = *end_b == '.' ? end_b + 1 : end_b;
    }
    return true;
}

/* Compares the first `parts` numbers of two versions. If they differ, the verdict is `bad`. */
static void compare(const struct chex_check_context *c, struct chex_check_result *r,
                    const char *library, const char *built, const char *found, int parts,
                    enum chex_verdict bad) {
    chex_check_expect(r, "%s, as built, or one that agrees in the first %s", built,
                      parts == 1 ? "number" : "two numbers");
    chex_check_found(r, "%s", found);
    if (!same_parts(built, found, parts))
        chex_check_worsen(r, bad, library_fault(c),
                          "build chexnet with the %s of this machine, or take the other %s out of "
                          "LD_LIBRARY_PATH",
                          library, library);
}

static void probe_chexnet(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    chex_check_expect(r, "%s", CHEXNET_VERSION);
    chex_check_found(r, "%s, %s", CHEXNET_VERSION, CHEXNET_COMPILER);
}
CHEX_CHECK(chexnet, .name = "chexnet", .question = "which chexnet is this, the same on every node?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_chexnet,
           .across = chex_check_same);

#define VERSION_CHECK(id, library)                                                                 \
    CHEX_CHECK(id, .name = #id, .question = "is " library " the one we were built for?",           \
               .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_##id,                \
               .across = chex_check_same)

static void probe_hdf5(const struct chex_check_context *c, struct chex_check_result *r) {
    char built[32], found[32];
    unsigned major = 0, minor = 0, release = 0;
    H5get_libversion(&major, &minor, &release);
    snprintf(built, sizeof built, "%d.%d.%d", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    snprintf(found, sizeof found, "%u.%u.%u", major, minor, release);
    compare(c, r, "HDF5", built, found, 2, CHEX_FAIL);
}
VERSION_CHECK(hdf5, "HDF5");

/* PMIx_Get_version: "OpenPMIx 4.2.2 (PMIx Standard: ...)". 5.0.0 and 5.0.1 cannot
 * communicate with other versions. */
static void probe_pmix(const struct chex_check_context *c, struct chex_check_result *r) {
    char built[32], found[64] = "";
    const char *text = PMIx_Get_version(), *digits = strpbrk(text, "0123456789");
    snprintf(built, sizeof built, "%d.%d.%d", (int)PMIX_VERSION_MAJOR, (int)PMIX_VERSION_MINOR,
             (int)PMIX_VERSION_RELEASE);
    if (digits)
        snprintf(found, sizeof found, "%.*s", (int)strspn(digits, "0123456789."), digits);
    compare(c, r, "PMIx", built, found, 1, CHEX_WARN);
    Dl_info where;
    /* ISO C has no cast from a function pointer to void *, so a union converts it. */
    union {
        const char *(*function)(void);
        void *address;
    } of = {PMIx_Get_version};
    if (dladdr(of.address, &where) && where.dli_fname)
        chex_check_found(r, "%s, %s", found, where.dli_fname);
    if (strncmp(found, "5.0.0", 5) == 0 || strncmp(found, "5.0.1", 5) == 0)
        chex_check_worsen(r, CHEX_WARN, library_fault(c),
                          "PMIx 5.0.0 and 5.0.1 do not work with other versions; use 5.0.2");
}
VERSION_CHECK(pmix, "the PMIx client");

static void probe_hwloc(const struct chex_check_context *c, struct chex_check_result *r) {
    char built[32], found[32];
    const unsigned b = HWLOC_API_VERSION, f = hwloc_get_api_version();
    snprintf(built, sizeof built, "%u.%u.%u", b >> 16, b >> 8 & 255, b & 255);
    snprintf(found, sizeof found, "%u.%u.%u", f >> 16, f >> 8 & 255, f & 255);
    compare(c, r, "hwloc", built, found, 1, CHEX_FAIL);
    if (f >= 0x20500 && f < 0x20700)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "hwloc 2.5 and 2.6 are known to crash under Slurm's PMIx; use 2.7.1");
}
VERSION_CHECK(hwloc, "hwloc (interface version)");

static void probe_libpng(const struct chex_check_context *c, struct chex_check_result *r) {
    compare(c, r, "libpng", PNG_LIBPNG_VER_STRING, png_get_libpng_ver(NULL), 2, CHEX_FAIL);
}
VERSION_CHECK(libpng, "libpng");

static void probe_zlib(const struct chex_check_context *c, struct chex_check_result *r) {
    compare(c, r, "zlib", ZLIB_VERSION, zlibVersion(), 1, CHEX_FAIL);
}
VERSION_CHECK(zlib, "zlib");

static void probe_jansson(const struct chex_check_context *c, struct chex_check_result *r) {
    compare(c, r, "jansson", JANSSON_VERSION, jansson_version_str(), 1, CHEX_FAIL);
}
VERSION_CHECK(jansson, "jansson");

/* The state of a loadable module. LACKS: a library that it needs is missing. BROKEN: any other
 * error of the loader. */
enum part { PART_LOADS, PART_ABSENT, PART_LACKS, PART_BROKEN };

/* Loads a module. lacks: name of a missing library, which the loader puts before the colon. */
static enum part load_part(const char *name, char *lacks, size_t size, struct chex_error *why) {
    static const char missing[] = ": cannot open shared object file: No such file";
    void *version;
    if (chex_coll_module_symbol(name, "chexnet_module_version", &version, why) == CHEX_OK)
        return PART_LOADS;
    if (!chex_module_installed(name))
        return PART_ABSENT;
    const char *end = strstr(why->text, missing), *start = end;
    if (!end)
        return PART_BROKEN;
    while (start > why->text && start[-1] != ' ')
        start--;
    snprintf(lacks, size, "%.*s", (int)(end - start), start);
    return PART_LACKS;
}

/* A missing module fails only if it is needed: that of MPI, with several nodes. A broken module,
 * such as one of another build, at least warns. */
static void judge_part(const struct chex_check_context *c, enum part part, bool needed,
                       const char *lacks, const struct chex_error *why,
                       struct chex_check_result *r) {
    if (part == PART_BROKEN)
        chex_check_worsen(r, needed ? CHEX_FAIL : CHEX_WARN, library_fault(c), "%s", why->text);
    else if (needed && part == PART_LACKS)
        chex_check_worsen(r, CHEX_FAIL, library_fault(c),
                          "install %s on this node, or name its folder in LD_LIBRARY_PATH", lacks);
    else if (needed && part == PART_ABSENT)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "build chexnet with CHEX_WITH_MPI=ON, or load one that has it");
}

/* Loads each module, of the two for MPI the one that the ranks would use, and reports the loader's
 * error. The check `gpu` reports a missing cuda module. */
static void probe_modules(const struct chex_check_context *c, struct chex_check_result *r) {
    static const char *const words[] = {"loads", "not installed", "lacks ", ""}; /* enum part */
    const char *parts[] = {"mpi", "cuda", "dicom", "slurm"};
    const bool several = c->mode == CHEX_MODE_JOB && chex_coll_needs_mpi(c->launch);
    const struct chex_coll_impl *mpi = NULL;
    struct chex_error no_mpi = {0};
    if (chex_coll_load_mpi(c->launch, &mpi, &no_mpi) == CHEX_OK && strcmp(mpi->name, "mpich") == 0)
        parts[0] = "mpich";
    chex_check_expect(r, "%s", several ? "mpi or mpich, for several nodes" : "none is needed here");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct chex_error why = {0};
        char lacks[128] = "";
        const enum part part = load_part(parts[i], lacks, sizeof lacks, &why);
        chex_check_found_more(r, "%s%s %s%s", i ? ", " : "", parts[i], words[part],
                              part == PART_BROKEN ? why.text : lacks);
        judge_part(c, part, several && !mpi && i == 0, lacks, &why, r);
    }
    if (several && !mpi && r->verdict == CHEX_PASS)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER, "%s", no_mpi.text);
}
CHEX_CHECK(modules, .name = "modules", .question = "which parts are installed and can be loaded?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_modules,
           .across = chex_check_same);

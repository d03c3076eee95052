/* SPDX-License-Identifier: Apache-2.0
 *
 * SPANK plugin: options of srun, sbatch and salloc for jobs that train. Does nothing unless asked.
 *
 *   --chexnet-preflight[=1|2]  runs chex-env in each task before the program. If a check fails,
 *                              the task ends with chex-env's status and the program does not start.
 *   --chexnet-stage=DIR        copies DIR to node-local disk, once per node and job.
 *   --chexnet-env              sets thread and NCCL variables that have no value.
 *
 * What runs where:
 *
 *   process            user  function              does
 *   srun, sbatch       user  init, callback        registers the options, checks the values
 *   slurmstepd         root  init, callback        reads plugstack.conf's arguments, the values
 *   task, before exec  root  task_init_privileged  makes BASE/JOBID, which belongs to the user
 *   task, before exec  user  task_init             preflight, copy, variables
 *   slurmd's epilog    root  job_epilog            reads the arguments; a child with the user's
 *                                                  rights empties BASE/JOBID, within a minute;
 *                                                  removes it
 *
 * As root only BASE (from plugstack.conf) and numbers from Slurm make paths. BASE is writable by
 * root alone, so no other user can make names in it. Each name is opened without following links.
 * What the user has put into BASE/JOBID is removed by a child with the user's rights. Root reads no
 * variable of the job and no file of the user.
 *
 * slurm_error and the spank_ functions belong to the process that loads the plugin.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The names that Slurm looks up; all others stay hidden (spank_chexnet.map). */
SPANK_PLUGIN(chexnet, 1)

enum { STATUS_FAILED = 1, STATUS_ENVIRONMENT = 4 }; /* exit statuses of the commands */
enum { SETTINGS = 32 };

/* Arguments of the line in plugstack.conf. */
static const char *prefix;             /* prefix=: chexnet's installation; NULL: own_prefix */
static const char *base;               /* stage=: node-local folder; NULL: no staging */
static const char *settings[SETTINGS]; /* set=NAME=VALUE: more for --chexnet-env */
static int setting_count;
static int limit_s =
    60; /* limit=: the most that the epilog waits for the removal of staged files */

/* Values of the options. */
static int level; /* 0: no preflight */
static const char *source;
static bool set_variables;

/* ---- options ---- */

enum { OPTION_PREFLIGHT, OPTION_STAGE, OPTION_ENV };

/* An optional value that was not given is NULL in srun, "" in slurmstepd, and "(null)" in an srun
 * that has the option from sbatch. */
static bool given(const char *value) { return value && *value && strcmp(value, "(null)") != 0; }

static int take_option(int option, const char *value, int remote) {
    (void)remote;
    if (option == OPTION_ENV) {
        set_variables = true;
    } else if (option == OPTION_STAGE) {
        if (!base || !given(value)) {
            slurm_error("--chexnet-stage: %s", base ? "expected a folder"
                                                    : "not available on this cluster: stage= is "
                                                      "missing in plugstack.conf");
            return -1;
        }
        source = strdup(value);
    } else if (!given(value) || strcmp(value, "1") == 0) {
        level = 1;
    } else if (strcmp(value, "2") == 0) {
        level = 2;
    } else {
        slurm_error("--chexnet-preflight=%s: expected 1 or 2; level 3 starts MPI, so it needs a "
                    "step of its own: srun chex-env --level 3",
                    value);
        return -1;
    }
    return 0;
}

static struct spank_option options[] = {
    {"chexnet-preflight", "1|2", "run chex-env in each task before the program", 2,
     OPTION_PREFLIGHT, take_option},
    {"chexnet-stage", "dir", "copy a folder of shards to node-local disk until the job ends", 1,
     OPTION_STAGE, take_option},
    {"chexnet-env", NULL, "set thread and NCCL variables that have no value", 0, OPTION_ENV,
     take_option},
};

/* Reads the arguments of the line in plugstack.conf. */
static bool read_arguments(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        value = value ? value + 1 : "";
        if (strncmp(argv[i], "prefix=/", 8) == 0) {
            prefix = value;
        } else if (strncmp(argv[i], "stage=/", 7) == 0) {
            base = value;
        } else if (strncmp(argv[i], "set=", 4) == 0 && strchr(value, '=') > value &&
                   setting_count < SETTINGS) {
            settings[setting_count++] = value;
        } else if (strncmp(argv[i], "limit=", 6) == 0 && atoi(value) > 0) {
            limit_s = atoi(value);
        } else {
            slurm_error("spank_chexnet: plugstack.conf: %s: expected prefix=/FOLDER, "
                        "stage=/FOLDER, limit=SECONDS or set=NAME=VALUE",
                        argv[i]);
            return false;
        }
    }
    return true;
}

int slurm_spank_init(spank_t sp, int argc, char **argv) {
    if (!read_arguments(argc, argv))
        return -1;
    const spank_context_t context = spank_context();
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR && context != S_CTX_REMOTE)
        return 0;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
            return -1;
    return 0;
}

/* ---- helpers ---- */

/* True in tasks of srun. Batch scripts, interactive shells and the external step also call the
 * task functions; the options are meant for the steps inside. */
static bool is_step(spank_t sp) {
    uint32_t step;
    return spank_get_item(sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
           step <= SLURM_MAX_NORMAL_STEP_ID;
}

/* Ends this task before its program starts. stderr is the task's own. */
__attribute__((noreturn, format(printf, 2, 3))) static void end_task(int status, const char *fmt,
                                                                     ...) {
    va_list args;
    va_start(args, fmt);
    dprintf(STDERR_FILENO, "spank_chexnet: ");
    vdprintf(STDERR_FILENO, fmt, args);
    dprintf(STDERR_FILENO, "\n");
    va_end(args);
    _exit(status);
}

/* Waits for a child. Returns its exit status, or 128 + the signal that ended it. */
static int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return STATUS_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Waits for a child that leads a process group, and kills the group after `seconds`. The child has
 * a user's rights, so the user can stop it, and a file system can hold it even after the kill. */
static void wait_briefly(pid_t pid, int seconds) {
    const struct timespec pause = {.tv_nsec = 20000000};
    for (int tries = 50 * (seconds + 2); tries > 0 && waitpid(pid, NULL, WNOHANG) == 0; tries--) {
        if (tries == 100)
            kill(-pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
}

/* Runs a program with the rights of this process and the given environment. */
static int run(const char *path, const char *const *argv, const char *const *env) {
    const pid_t pid = fork();
    if (pid == 0) {
        execve(path, (char *const *)argv, (char *const *)env);
        dprintf(STDERR_FILENO, "spank_chexnet: cannot run %s: %s\n", path, strerror(errno));
        _exit(STATUS_ENVIRONMENT);
    }
    return pid < 0 ? STATUS_FAILED : wait_for(pid);
}

static const char *const no_environment[] = {"PATH=/usr/bin:/bin", NULL};

/* ---- BASE and BASE/JOBID ---- */

/* Opens BASE. -1 with the reason: it is not root's alone. */
static int open_base(const char **why_out) {
    struct stat st;
    const int fd = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *why_out = fd < 0 ? strerror(errno) : NULL;
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_uid == 0 && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return fd;
    *why_out = "must belong to root and be writable by root alone";
    close(fd);
    return -1;
}

static void job_name(spank_t sp, char name[static 16]) {
    uint32_t job = 0;
    spank_get_item(sp, S_JOB_ID, &job);
    snprintf(name, 16, "%u", (unsigned)job);
}

/* As root. Several tasks of a node may do this at once: whoever comes second finds the folder. */
int slurm_spank_task_init_privileged(spank_t sp, int argc, char **argv) {
    char name[16];
    const char *why;
    struct stat st;
    uid_t uid;
    gid_t gid;
    (void)argc, (void)argv;
    if (!source || !is_step(sp))
        return 0;
    const int parent = open_base(&why);
    if (parent < 0)
        end_task(STATUS_ENVIRONMENT, "%s: %s", base, why);
    job_name(sp, name);
    if (spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_GID, &gid) != ESPANK_SUCCESS)
        end_task(STATUS_FAILED, "Slurm does not name the user of job %s", name);
    const bool made = mkdirat(parent, name, 0700) == 0 || errno == EEXIST;
    const int fd =
        made ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) != 0 || (st.st_uid == 0 && fchown(fd, uid, gid) != 0))
        end_task(STATUS_ENVIRONMENT, "%s/%s: %s", base, name, strerror(errno));
    if (st.st_uid != 0 && st.st_uid != uid)
        end_task(STATUS_ENVIRONMENT, "%s/%s belongs to user %u", base, name, (unsigned)st.st_uid);
    close(fd);
    close(parent);
    return 0;
}

/* In a child of the epilog: gives up root for good, then empties the current folder. Folders
 * without access are opened first. find follows no link and stays on this file system. */
__attribute__((noreturn)) static void empty_as(uid_t uid, gid_t gid) {
    const char *const open_all[] = {"find",   ".",     "-xdev", "-type", "d",  "!", "-perm",
                                    "-u=rwx", "-exec", "chmod", "u+rwx", "{}", ";", NULL};
    const char *const delete_all[] = {"find", ".", "-xdev", "-mindepth", "1", "-delete", NULL};
    if (setgroups(0, NULL) != 0 || setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0 ||
        (uid != 0 && setuid(0) == 0))
        _exit(STATUS_FAILED);
    run("/usr/bin/find", open_all, no_environment);
    _exit(run("/usr/bin/find", delete_all, no_environment));
}

/* As root, on each node of the job, after its processes have ended. */
int slurm_spank_job_epilog(spank_t sp, int argc, char **argv) {
    char name[16];
    const char *why;
    struct stat st;
    uid_t uid;
    /* Slurm does not call slurm_spank_init in the epilog. */
    const int parent = read_arguments(argc, argv) && base ? open_base(&why) : -1;
    if (parent < 0)
        return 0;
    job_name(sp, name);
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && spank_get_item(sp, S_JOB_UID, &uid) == ESPANK_SUCCESS) {
        const uid_t owner = st.st_uid == 0 ? 0 : uid; /* root's: no task took it over */
        const pid_t pid = fork();
        if (pid == 0) {
            if (setsid() < 0 || fchdir(fd) != 0)
                _exit(STATUS_FAILED);
            empty_as(owner, st.st_gid);
        }
        if (pid > 0)
            wait_briefly(pid, limit_s);
        if (unlinkat(parent, name, AT_REMOVEDIR) != 0)
            slurm_error("spank_chexnet: %s/%s: %s", base, name, strerror(errno));
    }
    if (fd >= 0)
        close(fd);
    close(parent);
    return 0; /* a rest on the disk is logged; it does not drain the node */
}

/* ---- in the task, as the user ---- */

/* The installation that holds this file, PREFIX/lib/chexnet/spank_chexnet.so; elsewhere the
 * configured one. */
static void own_prefix(char path[static PATH_MAX]) {
    static const char below[] = "/" CHEXNET_MODULE_SUBDIR "/";
    Dl_info own;
    char *name = NULL;
    snprintf(path, PATH_MAX, "%s", CHEXNET_PREFIX);
    if (dladdr(options, &own) == 0 || !(name = realpath(own.dli_fname, NULL)))
        return;
    const size_t dir = (size_t)(strrchr(name, '/') + 1 - name), n = sizeof below - 1;
    if (dir >= n && strncmp(name + dir - n, below, n) == 0)
        snprintf(path, PATH_MAX, "%.*s", (int)(dir - n), name);
    free(name);
}

/* After the last PMIx client of a node has finished, PMIx drops what its shared memory says about
 * the ranks, and MPI_Init of a second client fails ("getting local rank: Not found"; seen with PMIx
 * 4.2 and Open MPI 4.1). So the program reads it through its connection (gds "hash"). */
static void preflight(spank_t sp, const char *const *env) {
    char own[PATH_MAX], path[PATH_MAX + 16];
    /* The file is for the status of the program, and so is PMI's connection, which serves one
     * program of a task: chex-env starts as under srun --mpi=none. */
    const char *const argv[] = {"env", "-u",      "CHEX_STATUS_FILE",     "-u", "PMI_FD",
                                path,  "--level", level == 1 ? "1" : "2", NULL};
    own_prefix(own);
    snprintf(path, sizeof path, "%s/bin/chex-env", prefix ? prefix : own);
    const int status = run("/usr/bin/env", argv, env);
    if (status != 0)
        _exit(status);
    spank_setenv(sp, "PMIX_MCA_gds", "hash", 0);
}

/* Sets a variable that has no value. Appends it to `text`, which lists what was set. */
static void set(spank_t sp, const char *name, const char *value, char *text, size_t size) {
    const size_t n = strlen(text);
    if (spank_setenv(sp, name, value, 0) == ESPANK_SUCCESS)
        snprintf(text + n, size - n, " %s=%s", name, value);
}

/* Copies the source to BASE/JOBID/KEY and sets CHEXNET_STAGED, and CHEX_DATA if it has no value.
 * The first task of the node copies; the others wait for the lock. KEY depends on the source, so a
 * second step may stage another folder. */
static void stage(spank_t sp, bool speaks) {
    char name[16], real[PATH_MAX], to[PATH_MAX], part[PATH_MAX + 8], lock[PATH_MAX + 8];
    char from[PATH_MAX + 2];
    uint64_t key = 14695981039346656037u; /* FNV-1a */
    if (!realpath(source, real))
        end_task(STATUS_ENVIRONMENT, "--chexnet-stage=%s: %s", source, strerror(errno));
    for (const char *c = real; *c; c++)
        key = (key ^ (unsigned char)*c) * 1099511628211u;
    job_name(sp, name);
    snprintf(to, sizeof to, "%s/%s/%016llx", base, name, (unsigned long long)key);
    snprintf(part, sizeof part, "%s.part", to);
    snprintf(lock, sizeof lock, "%s.lock", to);
    snprintf(from, sizeof from, "%s/.", real);
    const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0)
        end_task(STATUS_ENVIRONMENT, "%s: %s", lock, strerror(errno));
    if (access(to, F_OK) != 0) {
        const char *const remove[] = {"rm", "-rf", "--", part, NULL};
        const char *const copy[] = {"cp", "-RL", "--", from, part, NULL};
        if (run("/bin/rm", remove, no_environment) != 0 ||
            run("/bin/cp", copy, no_environment) != 0 || rename(part, to) != 0) {
            run("/bin/rm", remove, no_environment);
            end_task(STATUS_ENVIRONMENT, "--chexnet-stage=%s: not copied to %s/%s", source, base,
                     name);
        }
    }
    close(fd);
    spank_setenv(sp, "CHEXNET_STAGED", to, 1);
    char text[PATH_MAX + 16] = "";
    set(sp, "CHEX_DATA", to, text, sizeof text);
    if (speaks)
        dprintf(STDERR_FILENO, "spank_chexnet: staged %s to %s;%s%s\n", real, to,
                text[0] ? " set" : " CHEX_DATA has a value", text);
}

/* One thread per CPU that the task is bound to; NCCL prints warnings; then the site's settings. */
static void set_unset(spank_t sp, bool speaks) {
    static const char *const threads[] = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                          "MKL_NUM_THREADS"};
    char text[4096] = "", count[16], name[256];
    cpu_set_t *cpus = CPU_ALLOC(65536);
    const size_t bytes = CPU_ALLOC_SIZE(65536);
    if (cpus && sched_getaffinity(0, bytes, cpus) == 0) {
        snprintf(count, sizeof count, "%d", CPU_COUNT_S(bytes, cpus));
        for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++)
            set(sp, threads[i], count, text, sizeof text);
    }
    CPU_FREE(cpus);
    for (int i = 0; i < setting_count; i++) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(settings[i], "="), settings[i]);
        set(sp, name, strchr(settings[i], '=') + 1, text, sizeof text);
    }
    set(sp, "NCCL_DEBUG", "WARN", text, sizeof text);
    if (speaks)
        dprintf(STDERR_FILENO, "spank_chexnet: set%s\n",
                text[0] ? text : " nothing: all variables have values");
}

int slurm_spank_task_init(spank_t sp, int argc, char **argv) {
    uint32_t task = 0;
    char **env = NULL;
    (void)argc, (void)argv;
    if ((level == 0 && !source && !set_variables) || !is_step(sp))
        return 0;
    if (spank_get_item(sp, S_JOB_ENV, &env) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_TASK_GLOBAL_ID, &task) != ESPANK_SUCCESS)
        end_task(STATUS_FAILED, "Slurm does not give the environment of the task");
    if (level > 0)
        preflight(sp, (const char *const *)env);
    if (source)
        stage(sp, task == 0);
    if (set_variables)
        set_unset(sp, task == 0);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * One process at a time: a second is refused, and the error names the first. The lock of a dead
 * process is free.
 */
#include "base/lockfile.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "tap.h"

static struct chex_error err;
static char dir[] = "lockfile-XXXXXX";

static enum chex_status take(int *fd) {
    return chex_lockfile_take(dir, "lock", "the folder", "take another", fd, &err);
}

/* A lock whose text cannot be written: files of this process may have no bytes. */
static void check_failed_write(const char *path) {
    struct rlimit before, none;
    int fd;
    BAIL_UNLESS(getrlimit(RLIMIT_FSIZE, &before) == 0, "no limits");
    none = before;
    none.rlim_cur = 0;
    signal(SIGXFSZ, SIG_IGN);
    fflush(stdout);
    setrlimit(RLIMIT_FSIZE, &none);
    const enum chex_status st = take(&fd);
    setrlimit(RLIMIT_FSIZE, &before);
    OK(st == CHEX_E_ENV && fd == -1 && access(path, F_OK) != 0,
       "a lock that cannot be written leaves no file: %s", err.text);
}

/* The folder is removed, and made again by another process. */
static void check_replaced(const char *path) {
    int fd, other;
    OK_CALL(take(&fd));
    OK_CALL(chex_lockfile_confirm(dir, "lock", "the folder", fd, &err));
    unlink(path);
    OK_CALL(chex_lockfile_confirm(dir, "lock", "the folder", fd, &err));
    OK_CALL(take(&other));
    OK_STATUS(chex_lockfile_confirm(dir, "lock", "the folder", fd, &err), CHEX_E_ENV, err,
              "the folder was removed while this run used it, and holds another run now");
    chex_lockfile_release(dir, "lock", fd, false);
    chex_lockfile_release(dir, "lock", other, true);
}

/* A process that holds the lock until it is killed. */
static pid_t holder(void) {
    int ready[2];
    char byte = 0;
    BAIL_UNLESS(pipe(ready) == 0, "no pipe");
    pid_t pid = fork();
    if (pid == 0) {
        int fd = -1;
        byte = take(&fd) == CHEX_OK;
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    BAIL_UNLESS(pid > 0 && read(ready[0], &byte, 1) == 1 && byte, "no holder");
    close(ready[0]);
    close(ready[1]);
    return pid;
}

int main(void) {
    char wanted[64], *path;
    int fd = -1;
    setenv("SLURM_JOB_ID", "4711", 1);
    BAIL_UNLESS(mkdtemp(dir) && (path = chex_fs_join(dir, "lock")), "no folder");
    pid_t pid = holder();
    snprintf(wanted, sizeof wanted, "the folder is in use by process %d on ", (int)pid);
    OK(chex_lockfile_check(dir, "lock", "the folder", "take another", &err) == CHEX_E_ENV &&
           strstr(err.text, wanted),
       "a process that only checks gets the same error: %s", err.text);
    OK(take(&fd) == CHEX_E_ENV && fd == -1 && strstr(err.text, wanted) &&
           strstr(err.text, ", job 4711: wait for that run to end, or take another"),
       "a second process is refused: %s", err.text);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    OK(chex_lockfile_check(dir, "lock", "", "", &err) == CHEX_OK,
       "looking finds a killed one gone");
    OK(chex_lockfile_check(dir, "none", "", "", &err) == CHEX_OK &&
           chex_lockfile_check("nowhere", "lock", "", "", &err) == CHEX_OK,
       "no process has the lock if there is no file or folder");
    OK(take(&fd) == CHEX_OK && fd >= 0, "a killed holder gives way");
    chex_lockfile_release(dir, "lock", fd, false);
    OK(access(path, F_OK) == 0, "the file stays where that is asked for");
    OK(take(&fd) == CHEX_OK, "released, it can be taken again");
    chex_lockfile_release(dir, "lock", fd, true);
    OK(access(path, F_OK) != 0, "and goes where that is asked for");
    check_failed_write(path);
    check_replaced(path);
    rmdir(dir);
    OK(take(&fd) == CHEX_OK, "a folder that is missing is made");
    chex_lockfile_release(dir, "lock", fd, true);
    chex_lockfile_release(dir, "lock", -1, true);
    rmdir(dir);
    free(path);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: peak_rss FILE COMMAND...
 * Runs the command and writes the most memory it had at once, in KiB, to FILE; 0 where a
 * sanitizer's own memory cannot be separated from it. The exit status is the command's.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KNOWN = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { KNOWN = 0 };
#else
enum { KNOWN = 1 };
#endif
#else
enum { KNOWN = 1 };
#endif

int main(int argc, char **argv) {
    struct rusage used;
    int status;
    if (argc < 3) {
        fprintf(stderr, "usage: peak_rss FILE COMMAND...\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child) {
        perror("peak_rss");
        return 1;
    }
    FILE *f = fopen(argv[1], "w");
    if (!f || fprintf(f, "%ld\n", KNOWN ? used.ru_maxrss : 0L) < 0 || fclose(f) != 0) {
        perror(argv[1]);
        return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

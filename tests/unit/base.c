/* SPDX-License-Identifier: Apache-2.0
 *
 * Units, errors, files, random numbers, the thread pool, hashes, progress on a terminal.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"
#include "tap.h"

static void units(void) {
    uint64_t v = 0;
    double f = 0;
    int64_t i = 0;
    OK(chex_parse_bytes("64K", &v) && v == 65536, "64K");
    OK(chex_parse_bytes("1.5GiB", &v) && v == 1610612736u, "1.5GiB");
    OK(!chex_parse_bytes("0.3", &v) && !chex_parse_bytes("4Q", &v) && !chex_parse_bytes("-1", &v) &&
           !chex_parse_bytes("", &v) && !chex_parse_bytes("9999999T", &v),
       "sizes that are none");
    OK(chex_parse_duration("30m", &v) && v == 1800000, "30m");
    OK(!chex_parse_duration("30", &v) && !chex_parse_duration("1w", &v), "a duration needs a unit");
    OK(!chex_parse_f64("nan", &f) && !chex_parse_f64("0x10", &f) && !chex_parse_f64("1e999", &f) &&
           !chex_parse_f64("1 ", &f),
       "numbers that are none");
    OK(!chex_parse_f64("-0x10", &f) && !chex_parse_f64("+0X1p3", &f) &&
           !chex_parse_bytes("+0x10", &v) && chex_parse_f64("-0.5", &f) && f == -0.5,
       "nor is a hexadecimal one with a sign");
    OK(chex_parse_i64("-5", &i) && i == -5 && !chex_parse_i64("99999999999999999999", &i),
       "integers");
}

static void formats(void) {
    char text[32];
    static const struct {
        double seconds;
        const char *text;
    } known[] = {{0.00123, "1.2 ms"}, {0.134, "134 ms"}, {1.34, "1.3 s"},
                 {59.9, "59.9 s"},    {83.2, "1m23s"},   {7384, "2h03m"}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        OK(strcmp(chex_format_duration(text, sizeof text, known[i].seconds), known[i].text) == 0,
           "%g s: %s", known[i].seconds, known[i].text);
}

static void terminal_columns(void) {
    OK(chex_text_columns("Schr\xc3\xa4g") == 6 && chex_text_field("Schr\xc3\xa4g", 10) == 11 &&
           chex_text_columns("") == 0 && chex_text_field("Mass", 10) == 10,
       "a terminal's columns are characters, not bytes");
}

static void errors(void) {
    struct chex_error err;
    char big[2000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    errno = 42;
    chex_error_set(&err, CHEX_E_DATA, "%s", big);
    OK(errno == 42 && strlen(err.text) == sizeof err.text - 1 &&
           strcmp(err.text + sizeof err.text - 4, "...") == 0,
       "errno survives and a cut is marked");
    OK(chex_error_errno(&err, CHEX_E_ENV, ENOSPC, "file %s", "f") == CHEX_E_RESOURCE,
       "a full disk is status 9: %s", err.text);
    OK(chex_error_errno(&err, CHEX_E_DATA, EMFILE, "file %s", "f") == CHEX_E_ENV,
       "a limit of open files is no fault of the data: %s", err.text);
    chex_error_set(&err, CHEX_E_DATA, "inner");
    chex_error_prefix(&err, CHEX_E_DATA, "outer");
    OK(strcmp(err.text, "outer: inner") == 0, "prefix");
    OK(chex_error_set(NULL, CHEX_E_LOST, "nobody listens") == CHEX_E_LOST, "NULL is allowed");
}

static void random_numbers(void) {
    /* Known answers of Philox4x32-10 (the authors' kat_vectors). */
    struct chex_rng4 z = chex_rng_block(0, 0, 0, 0, 0);
    OK(z.v[0] == 0x6627e8d5u && z.v[1] == 0xe169c58du && z.v[2] == 0xbc57ac4cu &&
           z.v[3] == 0x9b00dbd8u,
       "Philox of zeros");
    struct chex_rng4 o = chex_rng_block(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    OK(o.v[0] == 0x408f276du && o.v[1] == 0x41c83b0eu && o.v[2] == 0xa20bc7c6u &&
           o.v[3] == 0x6d5451fdu,
       "Philox of ones");
    OK(chex_rng_unit(UINT32_MAX) < 1 && chex_rng_unit(0) == 0, "unit interval is half open");
    OK(chex_rng_below(UINT32_MAX, 7) == 6 && chex_rng_below(0, 7) == 0, "below");
}

static void count_item(void *arg, size_t item, int worker) {
    (void)worker;
    atomic_fetch_add((atomic_size_t *)arg, item + 1);
}

static void pool(void) {
    struct chex_error err;
    for (int threads = 1; threads <= 4; threads++) {
        struct chex_pool *p = NULL;
        OK_STATUS(chex_pool_create(threads, &p, &err), CHEX_OK, err, NULL);
        bool right = true;
        for (size_t round = 0; round < 300; round++) {
            atomic_size_t sum = 0;
            chex_pool_run(p, round, count_item, &sum);
            right = right && sum == round * (round + 1) / 2;
        }
        OK(right, "%d threads run each item once", threads);
        chex_pool_destroy(p);
    }
    chex_pool_destroy(NULL);
}

/* A machine of 1,500 CPUs: the kernel refuses smaller sets. */
static bool large_machine;
int sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set) {
    if (!large_machine) {
        memset(set, 0, bytes);
        return syscall(SYS_sched_getaffinity, pid, bytes, set) < 0 ? -1 : 0;
    }
    if (bytes < 2048 / 8) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(bytes, set);
    for (size_t i = 0; i < 1500; i++)
        CPU_SET_S(i, bytes, set);
    return 0;
}

static void cpus(void) {
    OK(chex_cpu_count() >= 1, "this process may use %d CPUs", chex_cpu_count());
    large_machine = true;
    OK(chex_cpu_count() == 1500, "and of a large machine %d", chex_cpu_count());
    large_machine = false;
}

static void files(void) {
    char dir[] = "/tmp/chex-fs-XXXXXX";
    struct chex_error err;
    BAIL_UNLESS(mkdtemp(dir), "mkdtemp");
    char *deep = chex_fs_join(dir, "a/b/c"), *file = chex_fs_join(deep, "f");
    OK_STATUS(chex_fs_mkdirs(deep, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_write(file, "hello", 5, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_mkdirs(file, &err), CHEX_E_ENV, err, "cannot make folder");
    char *data = NULL;
    size_t size = 0;
    OK_STATUS(chex_fs_read(file, 100, &data, &size, &err), CHEX_OK, err, NULL);
    OK(size == 5 && strcmp(data, "hello") == 0, "what was written is read");
    free(data);
    OK_STATUS(chex_fs_read(file, 4, &data, &size, &err), CHEX_E_DATA, err, "limit of 4");
    OK_STATUS(chex_fs_read(deep, 4, &data, &size, &err), CHEX_E_DATA, err, "regular");
    OK_STATUS(chex_fs_read("/nonexistent", 4, &data, &size, &err), CHEX_E_DATA, err, "No such");
    uint64_t room = 0;
    char *missing = chex_fs_join(deep, "not/yet/there");
    OK_STATUS(chex_fs_free_bytes(missing, &room, &err), CHEX_OK, err, NULL);
    OK(room > 0, "free space of a folder that is not there yet");
    OK_STATUS(chex_fs_check_mkdirs(missing, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_check_mkdirs(deep, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_check_mkdirs("relative", &err), CHEX_OK, err, NULL);
    OK(!chex_fs_exists(missing) && !chex_fs_exists("relative"), "looking makes nothing");
    char *under = chex_fs_join(file, "x/y");
    struct chex_error made = {0};
    chex_fs_mkdirs(under, &made);
    OK_STATUS(chex_fs_check_mkdirs(under, &err), CHEX_E_ENV, err, made.text);
    OK_STATUS(chex_fs_check_create(file, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_check_create(missing, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_fs_check_create(under, &err), CHEX_E_ENV, err, "cannot make folder");
    OK_STATUS(chex_fs_make_folder_of(under, &err), CHEX_E_ENV, err, "cannot make folder");
    OK_STATUS(chex_fs_check_create(deep, &err), CHEX_E_ENV, err, "it is a folder");
    char *pipe = chex_fs_join(deep, "pipe");
    OK(mkfifo(pipe, 0600) == 0, "a pipe");
    OK_STATUS(chex_fs_check_create(pipe, &err), CHEX_E_ENV, err, "pipe: it is a device or a pipe");
    OK_STATUS(chex_fs_write(pipe, "hello", 5, &err), CHEX_E_ENV, err, "it is a device or a pipe");
    struct stat still;
    OK(stat(pipe, &still) == 0 && S_ISFIFO(still.st_mode), "which is not replaced by a file");
    char *temp = chex_fs_temp_name(pipe);
    OK(!chex_fs_exists(temp), "and nothing is left beside it");
    free(temp);
    free(pipe);
    free(under);
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    OK(!chex_fs_exists(dir), "the tree is gone");
    OK_STATUS(chex_fs_remove_tree(dir, &err), CHEX_OK, err, NULL);
    free(missing);
    free(deep);
    free(file);
}

/* Whatever vectors are used, at any length and alignment: the digest of the library. */
static void hashes(void) {
    enum { MOST = 70000 };
    uint8_t *data = malloc(MOST);
    BAIL_UNLESS(data, "no memory");
    for (uint32_t i = 0; i < MOST; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 21);
    bool same = true;
    for (size_t n = 0; n < 3000; n += 1 + n / 64)
        same = same && chex_hash64(data + n % 9, n) == XXH3_64bits(data + n % 9, n);
    for (size_t n = 65500; n < 65600; n++)
        same = same && chex_hash64(data + n % 9, n) == XXH3_64bits(data + n % 9, n);
    OK(same, "chex_hash64 is XXH3");
    char hex[CHEX_HASH128_HEX_BYTES];
    chex_hash128_hex("", 0, hex);
    OK(strcmp(hex, "99aa06d3014798d86001c324468d497f") == 0, "XXH3-128 of nothing");
    free(data);
}

/* What a terminal of so many columns is sent for one drawing of the progress. */
static bool drawn(int master, int slave, unsigned short columns, char *out, size_t size) {
    const struct winsize w = {.ws_row = 24, .ws_col = columns};
    const int saved = dup(STDERR_FILENO);
    if (saved < 0 || ioctl(slave, TIOCSWINSZ, &w) != 0 || dup2(slave, STDERR_FILENO) < 0)
        return false;
    struct chex_progress *p = chex_progress_create("epoch 1/15", "img", 78468, true);
    usleep(150000);
    chex_progress_set(p, 12352, "loss 0.7292, data wait 12.5 %");
    chex_progress_destroy(p, false);
    dup2(saved, STDERR_FILENO);
    close(saved);
    static const char wiped[] = "\r\033[K"; /* before the line, and at the end */
    size_t length = 0;
    do {
        const ssize_t n = read(master, out + length, size - 1 - length);
        if (n <= 0)
            return false;
        length += (size_t)n;
        out[length] = '\0';
    } while (length < 10 || strcmp(out + length - strlen(wiped), wiped) != 0);
    return true;
}

/* A line that is too long for the terminal ends between two of its facts. */
static void progress(void) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    char text[1024];
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
        OK(true, "no pseudo-terminal here # SKIP");
        return;
    }
    const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    BAIL_UNLESS(slave >= 0, "a pseudo-terminal");
    setenv("TERM", "xterm", 1);
    OK(drawn(master, slave, 80, text, sizeof text) && strstr(text, "loss 0.7292\r") &&
           !strstr(text, "data"),
       "80 columns: no fact is cut");
    OK(drawn(master, slave, 95, text, sizeof text) && strstr(text, "12.5 %\r") &&
           !strstr(text, "[#"),
       "95 columns: the facts go before the bar");
    OK(drawn(master, slave, 130, text, sizeof text) && strstr(text, "12.5 %\r") &&
           strstr(text, "[#"),
       "130 columns: all of it");
    close(slave);
    close(master);
}

int main(void) {
    units();
    formats();
    terminal_columns();
    errors();
    random_numbers();
    pool();
    cpus();
    files();
    OK(chex_mem_alloc_aligned(SIZE_MAX, 8) == NULL, "an overflowing size is refused");
    hashes();
    progress();
    return tap_done();
}

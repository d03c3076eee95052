/* SPDX-License-Identifier: Apache-2.0
 *
 * Units, errors, files, random numbers, the thread pool, hashes, progress on a terminal.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/units.h"
#include "dir.h"
#include "tap.h"

static struct chex_error err;

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

static bool shown_as(const char *text, const char *expected) {
    char out[64];
    return strcmp(chex_text_printable(text, out, sizeof out), expected) == 0;
}

static void printable_texts(void) {
    char out[12];
    OK(shown_as("Schr\xc3\xa4g \xe2\x82\xac \\ \"x\"", "Schr\xc3\xa4g \xe2\x82\xac \\ \"x\""),
       "UTF-8 text is printed as it is");
    OK(shown_as("\033[31mred\r\n\x7f", "\\x1B[31mred\\x0D\\x0A\\x7F") && shown_as("a\xc2\x9b"
                                                                                  "31m",
                                                                                  "a\\xC2\\x9B31m"),
       "control characters are escaped, C1 too");
    OK(shown_as("M\xfcller\xe2\x82", "M\\xFCller\\xE2\\x82"),
       "bytes that are no UTF-8 are escaped");
    OK(shown_as("\xe2\x80\xaegnp.exe", "\\xE2\\x80\\xAEgnp.exe"),
       "a character that turns the writing direction is escaped");
    OK(!strcmp(chex_text_printable("1234567\xc3\xa4", out, sizeof out), "1234567...") &&
           !strcmp(chex_text_printable("123456\xc3\xa4", out, sizeof out), "123456\xc3\xa4") &&
           !strcmp(chex_text_printable("123456\x01", out, sizeof out), "123456..."),
       "a long text is cut between characters");
}

static bool nearest_is(const char *word, const char *expected) {
    static const char *const words[] = {"batch-size", "epochs", "epsilon", "lr"};
    struct chex_text_nearest n = {.word = word};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        chex_text_offer(&n, words[i]);
    return expected ? n.best && !strcmp(n.best, expected) : !n.best;
}

static void misspelt_words(void) {
    OK(nearest_is("batchsize", "batch-size") && nearest_is("bacth-size", "batch-size") &&
           nearest_is("epoch", "epochs") && nearest_is("rl", "lr") && nearest_is("ir", "lr"),
       "letters that are dropped, exchanged or changed");
    OK(nearest_is("batch", "batch-size") && nearest_is("eps", "epsilon"), "the start of a word");
    OK(nearest_is("weights", NULL) && nearest_is("", NULL) && nearest_is("x", "lr") == false &&
           nearest_is("a-word-that-is-longer-than-any-option-could-ever-be", NULL),
       "no word is close");
}

/* What chex_text_put_cell() writes. */
static bool cell_is(const char *text, const char *expected) {
    char cell[64] = "";
    FILE *f = fmemopen(cell, sizeof cell, "w");
    if (!f)
        return false;
    chex_text_put_cell(f, text);
    return fclose(f) == 0 && strcmp(cell, expected) == 0;
}

static void csv_cells(void) {
    OK(cell_is("00000001_000.png", "00000001_000.png") && cell_is("", "") &&
           cell_is("a,\"b\"", "\"a,\"\"b\"\"\"") && cell_is("it's", "it's") &&
           cell_is("'a'", "'a'"),
       "a cell is quoted where it must be");
    OK(cell_is("=1+1", "\"'=1+1\"") && cell_is("+1", "\"'+1\"") && cell_is("-1", "\"'-1\"") &&
           cell_is("@SUM(1)", "\"'@SUM(1)\"") && cell_is("a=1", "a=1"),
       "a cell that would be a formula gets an apostrophe");
    OK(cell_is("a\033[m\nb\xff", "a\\x1B[m\\x0Ab\\xFF"), "a cell has no control characters");
    OK(!strcmp(chex_text_of_cell("'=1+1"), "=1+1") && !strcmp(chex_text_of_cell("''=1"), "'=1") &&
           cell_is("'=1", "\"''=1\"") && !strcmp(chex_text_of_cell("'a'"), "'a'") &&
           !strcmp(chex_text_of_cell("a"), "a") && !strcmp(chex_text_of_cell(""), ""),
       "the apostrophe can be taken off again");
}

static void errors(void) {
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
    OK(chex_error_memory(&err, "%d rows", 3) == CHEX_E_RESOURCE &&
           strcmp(err.text, "3 rows: out of memory") == 0,
       "lack of memory is status 9 and says what for");
    OK(chex_error_memory(&err, NULL) == CHEX_E_RESOURCE && strcmp(err.text, "out of memory") == 0,
       "or only that there is none");
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

/* Items from 5 on fail; `arg` counts the items that began. */
static enum chex_status fail_from_5(void *arg, size_t item, int worker, struct chex_error *e) {
    (void)worker;
    atomic_fetch_add((atomic_size_t *)arg, 1);
    return item < 5 ? CHEX_OK : chex_error_set(e, CHEX_E_DATA, "item %zu", item);
}

static void pool_errors(void) {
    for (int threads = 0; threads <= 4; threads += 2) {
        struct chex_pool *p = NULL;
        atomic_size_t begun = 0;
        if (threads)
            OK_STATUS(chex_pool_create(threads, &p, &err), CHEX_OK, err, NULL);
        OK_STATUS(chex_pool_try_on(p, 1000, fail_from_5, &begun, &err), CHEX_E_DATA, err, "item 5");
        OK(begun < 1000, "%d threads begin no item long after a failure", threads);
        chex_pool_destroy(p);
    }
}

static void pool(void) {
    const int counts[] = {1, 2, 3, 4, 32, 33, 100};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        const int threads = counts[i];
        struct chex_pool *p = NULL;
        OK_CALL(chex_pool_create(threads, &p, &err));
        bool right = true;
        for (size_t round = 0; round < 300; round++) {
            atomic_size_t sum = 0;
            const size_t items = round % 3 ? round : round % 7; /* short loops wake fewer threads */
            chex_pool_run(p, items, count_item, &sum);
            right = right && sum == items * (items + 1) / 2;
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

static int temporaries_in(const char *folder) {
    int n = 0;
    DIR *d = opendir(folder);
    BAIL_UNLESS(d, "%s", folder);
    for (struct dirent *e; (e = readdir(d));)
        n += chex_fs_is_temp(e->d_name, NULL);
    closedir(d);
    return n;
}

/* None of these calls may wait; the FIFO has no writer. */
static void refuse_irregular(const char *folder, const char *fifo) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char *data;
    int fd = -1, s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s/s", folder);
    BAIL_UNLESS(s >= 0 && bind(s, (struct sockaddr *)&at, sizeof at) == 0, "socket");
    OK_STATUS(chex_fs_open(fifo, &fd, NULL, &err), CHEX_E_DATA, err,
              "not a regular file (a FIFO; expected a file)");
    OK_STATUS(chex_fs_open(at.sun_path, &fd, NULL, &err), CHEX_E_DATA, err, "(a socket;");
    OK_STATUS(chex_fs_open("/dev/zero", &fd, NULL, &err), CHEX_E_DATA, err, "(a device;");
    OK_STATUS(chex_fs_open(folder, &fd, NULL, &err), CHEX_E_DATA, err, "(a folder;");
    OK_STATUS(chex_fs_read(fifo, 9, &data, NULL, &err), CHEX_E_DATA, err, "(a FIFO;");
    OK(fd == -1, "no descriptor is given for a file that is refused");
    close(s);
}

static void temporary_files(void) {
    static const char *const others[] = {"out.tmp.doc", "out.tmp.", "out2.tmp.7", "xout.tmp.7"};
    const char *path = dir_path("out"), *name = dir_path("alias");
    char *temp[2] = {NULL, NULL}, *data = NULL;
    int fd[2] = {-1, -1}, left = 0;
    for (int i = 0; i < 2; i++)
        OK_CALL(chex_fs_temp(path, &temp[i], &fd[i], &err));
    OK(strcmp(temp[0], temp[1]) != 0 && temporaries_in(dir) == 2, "%s and %s differ", temp[0],
       temp[1]);
    OK(write(fd[0], "new", 3) == 3 && close(fd[0]) == 0, "a temporary file can be written");
    OK_CALL(chex_fs_commit(temp[0], path, &err));
    close(fd[1]);
    for (size_t i = 0; i < 4; i++)
        dir_put(others[i], "", 0);
    chex_fs_remove_temps(path);
    for (size_t i = 0; i < 4; i++) {
        left += chex_fs_exists(dir_path("%s", others[i]));
        unlink(dir_path("%s", others[i]));
    }
    OK(left == 4 && temporaries_in(dir) == 0, "leftovers are removed, others stay");
    OK_CALL(chex_fs_alias(path, name, &err));
    OK(chex_fs_read(name, 9, &data, NULL, &err) == CHEX_OK && strcmp(data, "new") == 0,
       "an alias has the content of the file");
    free(data);
    free(temp[0]);
    free(temp[1]);
}

static void files(void) {
    dir_make();
    const char *deep = dir_path("a/b/c"), *file = dir_path("a/b/c/f");
    const char *missing = dir_path("a/b/c/not/yet/there"), *under = dir_path("a/b/c/f/x/y");
    const char *pipe = dir_path("a/b/c/pipe");
    OK_CALL(chex_fs_mkdirs(deep, &err));
    OK_CALL(chex_fs_write(file, "hello", 5, &err));
    OK_STATUS(chex_fs_mkdirs(file, &err), CHEX_E_ENV, err, "cannot make folder");
    char *data = NULL;
    size_t size = 0;
    OK_CALL(chex_fs_read(file, 100, &data, &size, &err));
    OK(size == 5 && strcmp(data, "hello") == 0, "what was written is read");
    free(data);
    OK_STATUS(chex_fs_read(file, 4, &data, &size, &err), CHEX_E_DATA, err, "limit of 4");
    OK_STATUS(chex_fs_read(deep, 4, &data, &size, &err), CHEX_E_DATA, err, "regular");
    OK_STATUS(chex_fs_read("/nonexistent", 4, &data, &size, &err), CHEX_E_DATA, err, "No such");
    uint64_t room = 0;
    OK_CALL(chex_fs_free_bytes(missing, &room, &err));
    OK(room > 0, "free space of a folder that is not there yet");
    OK_CALL(chex_fs_check_mkdirs(missing, &err));
    OK_CALL(chex_fs_check_mkdirs(deep, &err));
    OK_CALL(chex_fs_check_mkdirs("relative", &err));
    OK(!chex_fs_exists(missing) && !chex_fs_exists("relative"), "looking makes nothing");
    struct chex_error made = {0};
    chex_fs_mkdirs(under, &made);
    OK_STATUS(chex_fs_check_mkdirs(under, &err), CHEX_E_ENV, err, made.text);
    OK_CALL(chex_fs_check_create(file, &err));
    OK_CALL(chex_fs_check_create(missing, &err));
    OK_STATUS(chex_fs_check_create(under, &err), CHEX_E_ENV, err, "cannot make folder");
    OK_STATUS(chex_fs_make_folder_of(under, &err), CHEX_E_ENV, err, "cannot make folder");
    OK_STATUS(chex_fs_check_create(deep, &err), CHEX_E_ENV, err, "it is a folder");
    OK(mkfifo(pipe, 0600) == 0, "a pipe");
    OK_STATUS(chex_fs_check_create(pipe, &err), CHEX_E_ENV, err, "pipe: it is a device or a pipe");
    OK_STATUS(chex_fs_write(pipe, "hello", 5, &err), CHEX_E_ENV, err, "it is a device or a pipe");
    struct stat still;
    OK(stat(pipe, &still) == 0 && S_ISFIFO(still.st_mode), "which is not replaced by a file");
    OK(temporaries_in(deep) == 0, "and no temporary file is left");
    refuse_irregular(deep, pipe);
    temporary_files();
    OK_CALL(chex_fs_remove_tree(dir, &err));
    OK(!chex_fs_exists(dir), "the tree is gone");
    OK_CALL(chex_fs_remove_tree(dir, &err));
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
    printable_texts();
    misspelt_words();
    csv_cells();
    errors();
    random_numbers();
    pool();
    pool_errors();
    cpus();
    files();
    OK(chex_alloc_aligned(SIZE_MAX, 8) == NULL, "an overflowing size is refused");
    hashes();
    progress();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Spools: what was put comes back; nothing half-written has a name; damage is said.
 */
#include <fcntl.h>

#include "dir.h"
#include "ingest/spool.h"
#include "tap.h"

static struct chex_error err;

enum { ROW = 300, ROWS = 1500 };

static void fill(uint8_t *row, size_t i) {
    for (size_t k = 0; k < ROW; k++)
        row[k] = (uint8_t)(i * 7 + k);
}

/* ROWS rows, every tenth is bad. */
static void write_spool(const char *path, const char *fault) {
    struct chex_spool_writer *w = NULL;
    uint8_t row[ROW];
    OK_CALL(chex_spool_create(path, ROW, &w, &err));
    bool fine = true;
    for (size_t i = 0; i < ROWS; i++) {
        char name[32];
        size_t at;
        snprintf(name, sizeof name, "images/%zu.png", i);
        fine = fine && chex_spool_add(w, name, i + 1, &at, &err) == CHEX_OK && at == i;
    }
    for (size_t i = ROWS; i-- > 0;) { // in any order
        fill(row, i);
        fine = fine && (i % 10 ? chex_spool_put(w, i, row, (uint64_t[]){i, ~i}, 7, 9, &err)
                               : chex_spool_reject(w, i, "too dark", &err)) == CHEX_OK;
    }
    OK(fine && !chex_fs_exists(path), "no name before the end");
    OK_CALL(chex_spool_finish(w, fault, &err));
}

static void check_content(const char *path, const char *fault) {
    struct chex_spool *s = NULL;
    uint8_t row[ROW], want[ROW];
    OK_CALL(chex_spool_open(path, ROW, &s, &err));
    size_t wrong = 0;
    for (size_t i = 0; i < chex_spool_count(s); i++) {
        const struct chex_spool_row *r = chex_spool_get(s, i);
        char name[32];
        snprintf(name, sizeof name, "images/%zu.png", i);
        wrong += strcmp(r->name, name) != 0 || r->bytes != i + 1;
        if (i % 10 == 0) {
            wrong += !r->reason || strcmp(r->reason, "too dark") != 0;
            continue;
        }
        fill(want, i);
        wrong += r->reason || r->hash[0] != i || r->hash[1] != ~(uint64_t)i ||
                 chex_spool_read(s, i, row, &err) != CHEX_OK || memcmp(row, want, ROW) != 0;
    }
    const char *said = chex_spool_fault(s);
    OK(chex_spool_count(s) == ROWS && wrong == 0, "%d rows come back", ROWS);
    OK(fault ? said && strcmp(said, fault) == 0 : !said, "fault: %s", said ? said : "none");
    chex_spool_close(s);
}

static void change(const char *path, off_t at) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char byte;
    BAIL_UNLESS(pread(fd, &byte, 1, at) == 1, "cannot read");
    byte ^= 1;
    BAIL_UNLESS(pwrite(fd, &byte, 1, at) == 1, "cannot write");
    close(fd);
}

static void check_damage(const char *path) {
    struct chex_spool *s = NULL;
    uint8_t row[ROW];
    off_t index = 4096 + (off_t)ROWS * ROW;
    change(path, 4096 + ROW);
    OK_CALL(chex_spool_open(path, ROW, &s, &err));
    OK_STATUS(chex_spool_read(s, 1, row, &err), CHEX_E_FAIL, err, "images/1.png are damaged");
    chex_spool_close(s);
    change(path, index + 50);
    OK_STATUS(chex_spool_open(path, ROW, &s, &err), CHEX_E_FAIL, err, "checksum of its index");
    OK_STATUS(chex_spool_open(path, ROW + 1, &s, &err), CHEX_E_FAIL, err, "no spool of this run");
    BAIL_UNLESS(truncate(path, index + 20) == 0, "cannot cut");
    OK_STATUS(chex_spool_open(path, ROW, &s, &err), CHEX_E_FAIL, err, "does not fit its size");
    BAIL_UNLESS(truncate(path, 20) == 0, "cannot cut");
    OK_STATUS(chex_spool_open(path, ROW, &s, &err), CHEX_E_FAIL, err, "ends too early");
}

int main(void) {
    struct chex_spool_writer *w = NULL;
    dir_make();
    const char *path = dir_path("spool-a");
    write_spool(path, NULL);
    check_content(path, NULL);
    unlink(path);
    write_spool(path, "a.tar: cut");
    check_content(path, "a.tar: cut");
    check_damage(path);
    unlink(path);
    MUST(chex_spool_create(path, ROW, &w, &err));
    chex_spool_abandon(w);
    OK(rmdir(dir) == 0, "an abandoned spool leaves nothing");
    return tap_done();
}

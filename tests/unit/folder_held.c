/* SPDX-License-Identifier: Apache-2.0
 *
 * Images within other files: archives are put aside, files of their own go before held ones, and
 * bytes come out of a container.
 */
#include <sys/stat.h>

#include "dir.h"
#include "ingest/folder.h"
#include "tap.h"

static struct chex_error err;

static void make_tree(void) {
    static const char *const folders[] = {"a", "b", "b/c"};
    static const char *const files[] = {"a/1.png", "b/1.png", "b/c/2.png",
                                        "x.tar",   "b/Y.TGZ", "a/.3.png"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        BAIL_UNLESS(mkdir(dir_path("%s", folders[i]), 0777) == 0, "cannot make %s", folders[i]);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        dir_put_text(files[i], "bytes");
}

static bool ends(const struct chex_folder_file *f, const char *tail) {
    size_t n = f ? strlen(f->path) : 0, k = strlen(tail);
    return f && n >= k && strcmp(f->path + n - k, tail) == 0;
}

int main(void) {
    struct chex_folder *f = NULL;
    const struct chex_folder_file *rival;
    struct chex_image_reader *reader = NULL;
    const struct chex_container *container = NULL;
    const uint8_t *data = NULL;
    size_t n;
    dir_make();
    make_tree();
    OK_STATUS(chex_folder_open("/nonexistent", &f, &err), CHEX_E_DATA, err,
              "cannot read image folder");
    OK_STATUS(chex_folder_open("/nonexistent.tar", &f, &err), CHEX_E_DATA, err,
              "cannot read image folder");
    OK_CALL(chex_folder_open(dir, &f, &err));
    const struct chex_folder_file *archives = chex_folder_archives(f, &n);
    OK(chex_folder_count(f) == 3 && n == 2 && ends(&archives[0], "/b/Y.TGZ") &&
           ends(&archives[1], "/x.tar"),
       "3 files and 2 archives, none hidden");
    OK(!chex_folder_find(f, "3.png", &rival) && !rival, "what is not there");

    const char *path = dir_put_text("x.tar", "0123456789");
    OK_CALL(chex_folder_add_container(f, path, &container, &err));
    struct chex_folder_file resident = {.bytes = 4, .container = container, .offset = 3};
    MUST(chex_folder_add(f, &resident, path, "in/2.png", &err));
    MUST(chex_folder_add(f, &resident, path, "in/3.png", &err));
    resident.offset = 8;
    MUST(chex_folder_add(f, &resident, path, "in/4.png", &err));
    resident.bytes = 0;
    MUST(chex_folder_add(f, &resident, path, "in/5.png", &err));
    chex_folder_sort(f);
    OK(ends(chex_folder_find(f, "2.png", &rival), "/b/c/2.png") && !rival,
       "a file of its own goes before a member");
    const struct chex_folder_file *member = chex_folder_find(f, "3.png", &rival);
    OK(ends(member, "/x.tar/in/3.png") && !rival, "a member");
    OK(chex_folder_find(f, "3", &rival) == member && !rival, "a member without its ending");
    OK(ends(chex_folder_find(f, "2", &rival), "/b/c/2.png") && !rival, "a file without its ending");
    OK(chex_folder_find(f, "in/3.png", &rival) == member && !rival, "a member by its path");
    MUST(chex_image_reader_create(&reader, &err));
    chex_folder_prefetch(member);
    OK_CALL(chex_folder_read(member, reader, &data, &n, &err));
    OK(n == 4 && memcmp(data, "3456", 4) == 0, "its bytes");
    member = chex_folder_find(f, "2.png", &rival);
    OK_CALL(chex_folder_read(member, reader, &data, &n, &err));
    OK(n == 5 && memcmp(data, "bytes", 5) == 0, "a file's bytes");
    member = chex_folder_find(f, "4.png", &rival);
    OK_STATUS(chex_folder_read(member, reader, &data, &n, &err), CHEX_E_DATA, err,
              "in/4.png: the file that holds it shrank");
    member = chex_folder_find(f, "5.png", &rival);
    OK_STATUS(chex_folder_read(member, reader, &data, &n, &err), CHEX_E_DATA, err,
              "in/5.png: empty file");
    chex_image_reader_destroy(reader);
    chex_folder_close(f);
    OK_CALL(chex_folder_open(path, &f, &err));
    chex_folder_archives(f, &n);
    OK(chex_folder_count(f) == 0 && n == 1, "one archive as the folder");
    chex_folder_close(f);
    OK(chex_fs_remove_tree(dir, &err) == CHEX_OK, "cleaned up");
    return tap_done();
}

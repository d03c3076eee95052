/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/folder.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>

#include "dir.h"
#include "tap.h"

static struct chex_error err;

static void put(const char *name) {
    char *path = chex_fs_join(dir, name);
    MUST(chex_fs_make_folder_of(path, &err));
    dir_put_text(name, "x");
    free(path);
}

static void link_to(const char *name, const char *link) {
    BAIL_UNLESS(symlink(dir_path("%s", name), dir_path("%s", link)) == 0, "no symbolic link");
}

/* Whether `path` finds the file `want` (NULL: none), and another one as well where `rival`. */
static void finds(const struct chex_folder *f, const char *path, const char *want, bool rival) {
    const struct chex_folder_file *other;
    const struct chex_folder_file *found = chex_folder_find(f, path, &other);
    const char *got = found ? found->path + strlen(dir) + 1 : "nothing";
    OK(!strcmp(got, want ? want : "nothing") && (other != NULL) == rival, "%s finds %s%s", path,
       got, other ? " and more" : "");
}

/* A folder that cannot be listed to its end: the call after so many fails; -1: none. */
static int calls_left = -1;
struct dirent *readdir(DIR *d) {
    static struct dirent *(*real)(DIR *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "readdir");
    if (calls_left == 0) {
        errno = EIO;
        return NULL;
    }
    calls_left -= calls_left > 0;
    return real(d);
}

static void check_cut_listing(void) {
    struct chex_folder *f = NULL;
    calls_left = 4;
    OK_STATUS(chex_folder_open(dir, &f, &err), CHEX_E_ENV, err, "cannot read image folder");
    calls_left = -1;
}

int main(void) {
    struct chex_folder *f = NULL;
    static const char *const names[] = {
        "a.png",
        "images_001/b.png",
        "train/patient1/study1/view1.jpg",
        "train/patient1/study2/view1.jpg",
        "train/patient11/study1/view1.jpg",
        "valid/patient2/study1/view1.jpg",
        "x/c.png",
        "y/c.png",
        "ids/abc.dicom",
        "ids/abcd.png",
        "ids/two.jpg",
        "ids/two.png",
        "ids/ab",
        "ids/ab.png",
        "ids/uno.jpg",
        "more/deep/ids/uno.jpg",
        "x/d.png",
        "more/x/d.png",
    };
    dir_make();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        put(names[i]);
    put("zz/d.png");
    link_to("images_001/b.png", "zz/b.png");
    link_to("x/c.png", "zz/c.png");
    link_to("nowhere.png", "zz/gone.png");
    link_to("", "zz/loop");
    OK_CALL(chex_folder_open(dir, &f, &err));
    OK(chex_folder_count(f) == sizeof names / sizeof names[0] + 3,
       "all files, whatever their depth, and links");
    size_t unread = 0;
    chex_folder_unread(f, &unread);
    const struct chex_folder_file *dangling = chex_folder_find_unread(f, "zz/gone");
    OK(unread == 2 && dangling && !strcmp(dangling->path + dangling->below, "zz/gone.png") &&
           !strcmp(dangling->unread, "a link to a file that does not exist") &&
           !chex_folder_find_unread(f, "b.png"),
       "dangling links and links to a folder above are listed with a reason");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        finds(f, names[i], names[i], false);
    finds(f, "b.png", "images_001/b.png", false);
    finds(f, "elsewhere/b.png", "images_001/b.png", false);
    OK(!chex_folder_find_whole(f, "elsewhere/b.png", NULL) &&
           !chex_folder_find_whole(f, "patient3/study1/view1.jpg", NULL) &&
           chex_folder_find_whole(f, "patient2/study1/view1.jpg", NULL) &&
           chex_folder_find_whole(f, "b.png", NULL),
       "with the whole path, a file of that name elsewhere is another image");
    finds(f, "patient1/study1/view1.jpg", "train/patient1/study1/view1.jpg", false);
    finds(f, "1/study1/view1.jpg", "train/patient11/study1/view1.jpg", true);
    finds(f, "study1/view1.jpg", "train/patient11/study1/view1.jpg", true);
    finds(f, "patient2/study2/view1.jpg", "train/patient11/study1/view1.jpg", true);
    finds(f, "c.png", "x/c.png", true);
    finds(f, "z/c.png", "x/c.png", true);
    finds(f, "y/c.png", "y/c.png", false);
    finds(f, "abc", "ids/abc.dicom", false);
    finds(f, "ids/abcd", "ids/abcd.png", false);
    finds(f, "two", "ids/two.jpg", true);
    finds(f, "deep/ids/uno.jpg", "more/deep/ids/uno.jpg", false);
    finds(f, "deep/ids/uno", "more/deep/ids/uno.jpg", false);
    finds(f, "ids/uno", "ids/uno.jpg", false);
    finds(f, "x/d.png", "x/d.png", false);
    OK(chex_folder_find_whole(f, "deep/ids/uno", NULL) &&
           !chex_folder_find_whole(f, "none/ids/uno", NULL),
       "the whole path without the ending");
    finds(f, "ab", "ids/ab", false);
    finds(f, "b", "images_001/b.png", false);
    finds(f, "abc.png", NULL, false);
    finds(f, "", NULL, false);
    chex_folder_close(f);
    check_cut_listing();
    dir_remove();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of earlier versions, made of files of this one: texts of variable length and no seal.
 */
#ifndef CHEX_TESTS_H5_EARLIER_H
#define CHEX_TESTS_H5_EARLIER_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Gives a text attribute a variable length; true if it had a fixed one. */
static inline bool h5_make_variable(hid_t file, const char *name) {
    hid_t a = H5Aopen(file, name, H5P_DEFAULT), type = H5Aget_type(a), space = H5Aget_space(a);
    const size_t width = H5Tget_size(type), count = (size_t)H5Sget_simple_extent_npoints(space);
    const bool fixed = H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0;
    if (fixed) {
        char *flat = calloc(count, width), **texts = calloc(count, sizeof *texts);
        hid_t variable = H5Tcopy(H5T_C_S1);
        H5Tset_size(variable, H5T_VARIABLE);
        H5Tset_cset(variable, H5T_CSET_UTF8);
        H5Aread(a, type, flat);
        for (size_t i = 0; i < count; i++)
            texts[i] = strndup(flat + i * width, width);
        H5Aclose(a);
        H5Adelete(file, name);
        a = H5Acreate2(file, name, variable, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(a, variable, texts);
        for (size_t i = 0; i < count; i++)
            free(texts[i]);
        free(texts);
        free(flat);
        H5Tclose(variable);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(a);
    return fixed;
}

/* Makes a shard or checkpoint of the form that versions up to 0.1.0 wrote; HDF5 removes the seal.
 * The number of texts that were changed. */
static inline int h5_make_earlier(const char *path) {
    static const char *const names[] = {"format",        "classes", "resize",       "split",
                                        "source_digest", "model",   "tool_version", "meta"};
    int changed = 0;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    for (size_t i = 0; file >= 0 && i < sizeof names / sizeof names[0]; i++)
        changed += H5Aexists(file, names[i]) > 0 && h5_make_variable(file, names[i]);
    H5Fclose(file);
    return changed;
}

#endif

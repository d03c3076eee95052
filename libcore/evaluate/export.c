/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval export: writes the parameters of a checkpoint as a safetensors file, or the network as
 * an ONNX model, with the checkpoint's description as metadata. Or the features of all images of a
 * set, the input of the network's head, as a file of infer/feature_file.h. For this all ranks
 * compute; rank 0 holds and writes the features, so the file does not depend on the number of
 * ranks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/h5_private.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "base/textfile.h"
#include "evaluate/ensemble_files.h"
#include "evaluate/evaluate.h"
#include "evaluate/network.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "infer/feature_file.h"
#include "infer/features.h"
#include "model/onnx.h"
#include "model/weights.h"

static enum chex_status check_options(const struct chex_eval_settings *s, struct chex_error *err) {
    if (!s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export needs --%s",
                              s->checkpoint ? "output FILE.safetensors or FILE.onnx"
                                            : "checkpoint FILE");
    if (!chex_text_ends_with(s->output, ".safetensors") && !chex_text_ends_with(s->output, ".onnx"))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--output %s: expected the name of a file that ends in .safetensors or "
            ".onnx",
            s->output);
    return chex_eval_files_check(s, err);
}

/* Stays {0} if the file does not recalibrate. */
static enum chex_status copy_calibration(const struct chex_deployment *d,
                                         struct chex_onnx_calibration *out,
                                         struct chex_error *err) {
    if (!chex_deployment_recalibrates(d))
        return CHEX_OK;
    out->slope = chex_alloc_zeroed((size_t)d->classes, sizeof *out->slope);
    out->intercept = chex_alloc_zeroed((size_t)d->classes, sizeof *out->intercept);
    CHEX_ALLOCATED(out->slope && out->intercept, err, "the recalibration");
    for (int c = 0; c < d->classes; c++) {
        out->slope[c] = (float)d->calibration[c].slope;
        out->intercept[c] = (float)d->calibration[c].intercept;
    }
    return CHEX_OK;
}

static enum chex_status write_onnx(const struct chex_eval_settings *s,
                                   const struct chex_eval_network *n,
                                   const struct chex_safetensors_about *about,
                                   struct chex_error *err) {
    const int size = chex_eval_image_size(s, n, EVAL_IMAGE_PX);
    CHEX_AUTO_FREE int *sides = chex_alloc_zeroed((size_t)n->net->buffer_count, sizeof *sides);
    CHEX_TRY(sides ? chex_net_shapes(n->net, size, sides, err) : chex_error_memory(err, NULL));
    if (!s->image_size && !n->about.image_size)
        chex_warn("%s does not say at what image size it was trained: %d px is taken; --image-size "
                  "says another",
                  s->checkpoint, size);
    struct chex_onnx_calibration calibration = {0};
    const struct chex_onnx_ensemble ensemble = {n->member, n->networks, n->mean == CHEX_MEAN_LOGIT};
    enum chex_status st = copy_calibration(n->deployment, &calibration, err);
    if (st == CHEX_OK)
        st = chex_onnx_write(s->output, n->net, n->state, size, about, n->member ? &ensemble : NULL,
                             calibration.slope ? &calibration : NULL, err);
    free(calibration.slope);
    free(calibration.intercept);
    return st;
}

/* A copy through export would lose what the file holds besides parameters. */
static enum chex_status refuse_copy(const struct chex_eval_settings *s, struct chex_error *err) {
    if (s->classes || !chex_text_ends_with(s->output, ".safetensors") ||
        !chex_fs_exists(s->checkpoint) || chex_fs_is_dir(s->checkpoint) ||
        chex_weights_format(s->checkpoint) != CHEX_WEIGHTS_SAFETENSORS)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "--checkpoint %s is safetensors already: copy it",
                          s->checkpoint);
}

enum chex_status chex_evaluate_export(const struct chex_eval_settings *s, struct chex_error *err) {
    CHEX_TRY(check_options(s, err));
    struct chex_eval_network n = {0};
    struct chex_safetensors_about about = {0};
    int lock = -1;
    enum chex_status st = chex_eval_network_open(s, 0, &n, err);
    if (st == CHEX_OK)
        st = refuse_copy(s, err);
    if (st == CHEX_OK)
        st = chex_eval_network_about(&n, &about, err);
    if (st == CHEX_OK)
        st = chex_eval_file_lock(s->output, &lock, err);
    if (st == CHEX_OK)
        st = chex_text_ends_with(s->output, ".onnx")
                 ? write_onnx(s, &n, &about, err)
                 : chex_safetensors_write(s->output, n.net, n.state, n.step, &about, NULL, 0, err);
    chex_eval_file_unlock(s->output, lock);
    free(about.ensemble);
    if (st == CHEX_OK)
        chex_info("%s: %zu parameters of %s", s->output, n.net->param_count, n.net->model);
    chex_eval_network_release(&n);
    return st;
}

/* ---- features ---- */

struct table {
    const struct chex_eval_split *e;
    const struct chex_set *set; /* all rows */
    int count;
    const float *features; /* (rows, count) */
};

/* Texts of each row. */
enum column { IMAGE, PATIENT, SPLIT, COLUMNS };
static const char *const column_names[COLUMNS] = {"image_id", "patient_id", "split"};

static const char *text_of(const struct table *t, size_t row, int column) {
    size_t at;
    const struct chex_shard *s = chex_set_locate(t->set, row, &at);
    return column == IMAGE     ? chex_shard_image_id(s, at)
           : column == PATIENT ? chex_shard_patient_id(s, at)
                               : chex_shard_split(s);
}

/* The table of ids, then the array into `to`. The array appears last, and one that is replaced goes
 * before the table appears: none ever has the ids of another. */
static enum chex_status write_npy(const struct table *t, const char *path, FILE *to,
                                  struct chex_error *err) {
    static const unsigned char start[] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
    CHEX_AUTO_FREE char *table = chex_feature_csv_path(path);
    struct chex_textfile csv;
    char header[118];
    CHEX_TRY(table ? chex_textfile_open(table, &csv, err) : chex_error_memory(err, NULL));
    fprintf(csv.f, "image_id,patient_id,split\n");
    for (size_t i = 0; i < t->set->rows; i++)
        for (int c = 0; c < COLUMNS; c++) {
            chex_text_put_cell(csv.f, text_of(t, i, c));
            fputc(c + 1 < COLUMNS ? ',' : '\n', csv.f);
        }
    snprintf(header, sizeof header,
             "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", t->set->rows,
             t->count);
    fwrite(start, 1, sizeof start, to);
    fprintf(to, "%-117s\n", header);
    fwrite(t->features, (size_t)t->count * sizeof *t->features, t->set->rows, to);
    enum chex_status st = CHEX_OK;
    if (fflush(csv.f) != 0 || fflush(to) != 0 || (unlink(path) != 0 && errno != ENOENT))
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return chex_textfile_close(&csv, st, err);
}

static enum chex_status write_column(const struct table *t, int column, hid_t file,
                                     const char *path, struct chex_error *err) {
    const size_t rows = t->set->rows;
    size_t width = 1;
    for (size_t i = 0; i < rows; i++)
        width = strlen(text_of(t, i, column)) > width ? strlen(text_of(t, i, column)) : width;
    CHEX_AUTO_FREE char *data = chex_alloc_zeroed(rows, width);
    CHEX_ALLOCATED(data, err, "%s", path);
    for (size_t i = 0; i < rows; i++)
        memcpy(data + i * width, text_of(t, i, column), strlen(text_of(t, i, column)));
    return chex_h5_write_strings(file, column_names[column], width, rows, data, path, err);
}

static enum chex_status write_about(const struct table *t, hid_t file, const char *path,
                                    struct chex_error *err) {
    const struct chex_eval_network *n = t->e->network;
    char digest[CHEX_HASH128_HEX_BYTES];
    chex_hash128_hex(n->state, n->net->state_count * sizeof *n->state, digest);
    const char *const texts[][2] = {
        {"format", "chexnet-features"},
        {"tool_version", CHEXNET_VERSION},
        {"network", n->net->model},
        {"weights_digest", digest},
        {"precision", chex_precision_names[t->e->engine->config.precision]},
        {"source_digest", chex_set_source_digest(t->set)},
        {"resize", chex_set_resize(t->set)}};
    for (size_t i = 0; i < CHEX_COUNT(texts); i++)
        CHEX_TRY(chex_h5_write_text(file, texts[i][0], texts[i][1], path, err));
    CHEX_TRY(chex_h5_write_i64(file, "version", 1, path, err));
    return chex_h5_write_i64(file, "image_size", t->e->image_size, path, err);
}

static enum chex_status write_datasets(const struct table *t, const char *path, hid_t *file,
                                       struct chex_error *err) {
    const hsize_t dims[2] = {t->set->rows, (hsize_t)t->count};
    CHEX_TRY(chex_h5_file_create(path, 0, file, err));
    CHEX_TRY(chex_h5_write_dataset(*file, "features", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, dims,
                                   t->features, path, err));
    for (int c = 0; c < COLUMNS; c++)
        CHEX_TRY(write_column(t, c, *file, path, err));
    CHEX_TRY(write_about(t, *file, path, err));
    return chex_h5_file_close(file, path, err);
}

static enum chex_status write_h5(const struct table *t, const char *path, struct chex_error *err) {
    hid_t file = H5I_INVALID_HID;
    chex_h5_enter();
    const enum chex_status st = write_datasets(t, path, &file, err);
    chex_h5_close(file);
    return chex_h5_finish(st, path, err);
}

/* Rank 0. */
static enum chex_status write_files(const struct chex_eval_split *e, const float *features,
                                    struct chex_error *err) {
    const char *path = e->s->features_output, *dir = e->set->dir;
    struct chex_set *all = NULL;
    int lock = -1;
    const struct chex_splits splits = e->split == CHEX_ALL
                                          ? (struct chex_splits){0, CHEX_SPLIT_COUNT}
                                          : chex_splits_one(e->split);
    CHEX_TRY(chex_set_open_splits(dir, splits, 0, SIZE_MAX, NULL, NULL, &all, err));
    const struct table t = {e, all, chex_features_count(e->network->net), features};
    struct chex_textfile out = {0};
    enum chex_status st = chex_features_finite(features, all->rows, t.count, err);
    if (st == CHEX_OK)
        st = chex_eval_file_lock(path, &lock, err);
    if (st == CHEX_OK)
        st = chex_textfile_open(path, &out, err);
    if (st == CHEX_OK)
        st = chex_text_ends_with(path, ".h5") ? write_h5(&t, out.temp, err)
                                              : write_npy(&t, path, out.f, err);
    st = chex_textfile_close(&out, st, err);
    chex_eval_file_unlock(path, lock);
    if (st == CHEX_OK)
        chex_info("%s: %d features of each of %zu image%s, of %s", path, t.count, all->rows,
                  chex_text_s(all->rows), e->network->net->model);
    chex_set_close(all);
    return st;
}

/* Collective. */
static enum chex_status export_features(const struct chex_eval_split *e, struct chex_error *err) {
    struct chex_group *group = e->coll->group;
    CHEX_AUTO_FREE float *features = NULL;
    size_t rows;
    if (e->network->networks > 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--checkpoint %s: %d networks (expected one for --features)",
                              e->s->checkpoint, e->network->networks);
    CHEX_TRY(chex_features_of_split(e->engine, e->set, group, SIZE_MAX, &features, &rows, err));
    return chex_group_follow(group, 0, group->rank ? CHEX_OK : write_files(e, features, err), err);
}

static enum chex_status check_features(const struct chex_eval_settings *s, struct chex_error *err) {
    const char *const read[] = {s->checkpoint, NULL};
    CHEX_TRY(chex_eval_file_check(s, s->features_output, read, err));
    if (chex_text_ends_with(s->features_output, ".h5"))
        return CHEX_OK;
    CHEX_AUTO_FREE char *table = chex_feature_csv_path(s->features_output);
    return table ? chex_eval_file_check(s, table, read, err) : chex_error_memory(err, NULL);
}

enum chex_status chex_evaluate_export_features(const struct chex_opt_set *set,
                                               const struct chex_eval_settings *s,
                                               struct chex_error *err) {
    static const struct chex_eval_split_use use = {check_features, export_features,
                                                   .unpredicted = true};
    if (!s->data || !s->checkpoint)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval export --features needs --%s",
                              s->data ? "checkpoint FILE" : "data DIR");
    if (!chex_text_ends_with(s->features_output, ".h5") &&
        !chex_text_ends_with(s->features_output, ".npy"))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--features %s: expected a name that ends in .h5 or .npy",
                              s->features_output);
    if (s->common.json)
        CHEX_TRY(chex_text_for_json("--features", s->features_output, "--json", err));
    return chex_eval_split_run(set, s, &use, NULL, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes JPEG files with libjpeg-turbo.
 *
 * libjpeg reports an error through a callback that must not return, so the callback uses longjmp.
 * To make this safe, all state that a decode changes is in struct job, and setjmp is called only in
 * run_guarded(), which has no other locals. Every warning of libjpeg is treated as an error.
 */
#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

#include "image/grey.h"
#include "image/image_format.h"

/* Normal progressive files have about ten scans. A scan of a few bytes can cost a pass over the
 * whole image, so the number is limited. */
enum { MAX_SCANS = 100, MAX_COEFFICIENT_BYTES = 1 << 30 };

struct job {
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    jmp_buf fault;
    size_t size;
    const char *name;
    struct chex_image *image;
    struct chex_error *err;
    int target_px;
    enum chex_status status; /* not CHEX_OK: `err` already has the text of the fault */
    char message[JMSG_LENGTH_MAX];
};

static bool match(const uint8_t *data, size_t size) {
    return size >= 3 && data[0] == 0xff && data[1] == 0xd8 && data[2] == 0xff;
}

static struct job *job_of(j_common_ptr jpeg) { return (struct job *)jpeg->err; }

_Noreturn static void on_error(j_common_ptr jpeg) {
    struct job *job = job_of(jpeg);
    jpeg->err->format_message(jpeg, job->message);
    longjmp(job->fault, 1);
}

_Noreturn static void refuse(struct job *job, const char *message) {
    snprintf(job->message, sizeof job->message, "%s", message);
    longjmp(job->fault, 1);
}

/* A warning (level -1) means damaged data that libjpeg would conceal. Other levels are traces. */
static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0)
        on_error(jpeg);
}

static void on_progress(j_common_ptr common) {
    struct job *job = job_of(common);
    char text[64];
    if (job->jpeg.input_scan_number <= MAX_SCANS)
        return;
    snprintf(text, sizeof text, "more than %d scans", MAX_SCANS);
    refuse(job, text);
}

static void on_source(j_decompress_ptr jpeg) { (void)jpeg; }

/* Called if libjpeg needs more bytes. All bytes of the file were supplied at the start. */
static boolean on_source_empty(j_decompress_ptr jpeg) {
    refuse(job_of((j_common_ptr)jpeg), "the file ends early");
}

static void on_source_skip(j_decompress_ptr jpeg, long bytes) {
    struct jpeg_source_mgr *source = jpeg->src;
    if (bytes <= 0)
        return;
    if ((size_t)bytes > source->bytes_in_buffer)
        on_source_empty(jpeg);
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= (size_t)bytes;
}

/* Returns the smallest allowed scale in eighths (8, 4, 2 or 1), by the rule in image.h. */
static unsigned scale_of(uint64_t width, uint64_t height, int target_px) {
    uint64_t min_side = 4 * (uint64_t)target_px;
    unsigned eighths = 8;
    while (target_px > 0 && eighths > 1 && (width * (eighths / 2) + 7) / 8 >= min_side &&
           (height * (eighths / 2) + 7) / 8 >= min_side)
        eighths /= 2;
    return eighths;
}

static void check_kind(struct job *job) {
    const struct jpeg_decompress_struct *jpeg = &job->jpeg;
    char text[96];
    if (jpeg->data_precision != 8)
        snprintf(text, sizeof text, "%d bits a sample, expected 8", jpeg->data_precision);
    else if (jpeg->num_components == 4)
        snprintf(text, sizeof text, "4 components (CMYK or YCCK), expected 1 (grey) or 3 (colour)");
    else if (jpeg->num_components != 1 && jpeg->num_components != 3)
        snprintf(text, sizeof text, "%d components, expected 1 (grey) or 3 (colour)",
                 jpeg->num_components);
    else
        return;
    refuse(job, text);
}

static void check_size(struct job *job) {
    job->status = chex_image_check_size(job->name, job->jpeg.image_width, job->jpeg.image_height, 8,
                                        job->size, job->err);
    if (job->status != CHEX_OK)
        longjmp(job->fault, 1);
}

/* The coefficients of a file with several scans are in memory as a whole. */
static void check_coefficients(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    uint64_t bytes = 0;
    for (int i = 0; jpeg_has_multiple_scans(jpeg) && i < jpeg->num_components; i++)
        bytes += (uint64_t)jpeg->comp_info[i].width_in_blocks *
                 jpeg->comp_info[i].height_in_blocks * sizeof(JBLOCK);
    if (bytes <= MAX_COEFFICIENT_BYTES)
        return;
    job->status = chex_error_data(
        job->err, "%s: %u x %u pixels in %d components take more than %d bytes to decode",
        job->name, jpeg->image_width, jpeg->image_height, jpeg->num_components,
        MAX_COEFFICIENT_BYTES);
    longjmp(job->fault, 1);
}

static void reserve_pixels(struct job *job) {
    job->image->file_width = (int)job->jpeg.image_width;
    job->image->file_height = (int)job->jpeg.image_height;
    job->status = chex_image_reserve(job->image, (int)job->jpeg.output_width,
                                     (int)job->jpeg.output_height, job->err);
    if (job->status == CHEX_OK)
        return;
    job->status = chex_error_prefix(job->err, job->status, "%s", job->name);
    longjmp(job->fault, 1);
}

static void read_rows(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    size_t width = jpeg->output_width;
    bool colour = jpeg->out_color_space == JCS_RGB;
    JSAMPROW rgb =
        colour ? jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE, 3 * width) : NULL;
    while (jpeg->output_scanline < jpeg->output_height) {
        const size_t y = jpeg->output_scanline;
        JSAMPROW grey = job->image->pixels + y * width;
        if (jpeg_read_scanlines(jpeg, colour ? &rgb : &grey, 1) != 1)
            refuse(job, "no row where one was due");
        if (colour) {
            chex_grey_note_row(rgb, 3, width, y, &job->image->about);
            chex_grey_of_colour(rgb, 3, width, grey);
        }
    }
}

static void read_image(struct job *job) {
    struct jpeg_decompress_struct *jpeg = &job->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->src = &job->source;
    jpeg->progress = &job->progress;
    jpeg_read_header(jpeg, TRUE);
    check_kind(job);
    check_size(job);
    check_coefficients(job);
    jpeg->out_color_space = jpeg->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->scale_num = scale_of(jpeg->image_width, jpeg->image_height, job->target_px);
    jpeg->scale_denom = 8;
    jpeg_start_decompress(jpeg);
    reserve_pixels(job);
    read_rows(job);
    jpeg_finish_decompress(jpeg);
}

/* Decodes the image. False: a fault. */
static bool run_guarded(struct job *job) {
    if (setjmp(job->fault))
        return false;
    read_image(job);
    return true;
}

static enum chex_status fault(const struct job *job) {
    if (job->status != CHEX_OK)
        return job->status;
    bool no_memory = job->errors.msg_code == JERR_OUT_OF_MEMORY;
    enum chex_status st = no_memory ? CHEX_E_RESOURCE : CHEX_E_DATA;
    return chex_error_set(job->err, st, "%s: libjpeg: %s", job->name, job->message);
}

static enum chex_status decode(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               const char *name, struct chex_image *image, struct chex_error *err) {
    struct job job = {
        .source = {.next_input_byte = data,
                   .bytes_in_buffer = size,
                   .init_source = on_source,
                   .fill_input_buffer = on_source_empty,
                   .skip_input_data = on_source_skip,
                   .resync_to_restart = jpeg_resync_to_restart,
                   .term_source = on_source},
        .progress = {.progress_monitor = on_progress},
        .size = size,
        .name = name,
        .image = image,
        .err = err,
        .target_px = chex_image_reader_target(reader),
    };
    job.jpeg.err = jpeg_std_error(&job.errors);
    job.errors.error_exit = on_error;
    job.errors.emit_message = on_message;
    bool done = run_guarded(&job);
    jpeg_destroy_decompress(&job.jpeg);
    return done ? CHEX_OK : fault(&job);
}

const struct chex_image_format chex_image_format_jpeg = {"jpeg", match, decode};

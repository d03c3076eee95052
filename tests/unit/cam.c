/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps: their mean is the logit, their positions lie where the network looks, and
 * the picture shows what they say and nothing else.
 */
#include "infer/cam.h"

#include "base/alloc.h"
#include "dir.h"
#include "images.h"
#include "infer/cam_picture.h"
#include "tap.h"

static struct chex_error err;

enum { CLASSES = 14, PATCH = 16 };

/* ---- networks ---- */

struct place {
    double x, y;
};

static struct chex_engine *engine_for(const struct chex_net *net, int size,
                                      enum chex_precision precision) {
    const struct chex_engine_config config = {
        .net = net, .image_size = size, .batch = 1, .precision = precision, .threads = 2};
    struct chex_engine *e = NULL;
    float *state = chex_alloc_zeroed(net->state_count, sizeof *state);
    BAIL_UNLESS(state && chex_engine_create("cpu", &config, &e, &err) == CHEX_OK, "%s", err.text);
    chex_net_init_state(net, 1, 1, state);
    MUST(chex_engine_set(e, CHEX_STATE_PARAMS, state, &err));
    free(state);
    return e;
}

/* The maps of a grey image, with a bright patch about a place of it or without one (NULL). */
static struct chex_cam *maps_of(struct chex_engine *e, const struct place *patch) {
    const int size = e->config.image_size;
    float *pixels = chex_alloc_zeroed((size_t)size * (size_t)size, sizeof *pixels);
    struct chex_cam *cam = NULL;
    BAIL_UNLESS(pixels, "out of memory");
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            pixels[y * size + x] =
                patch && fabs(x - patch->x) < PATCH / 2.0 && fabs(y - patch->y) < PATCH / 2.0
                    ? 1
                    : 0.4f;
    MUST(chex_cam_create(e, pixels, &cam, &err));
    free(pixels);
    return cam;
}

/* Relative to the largest local logit: products and means in another order. */
static void mean_is_logit(const struct chex_cam *cam, const char *what) {
    const size_t positions = (size_t)cam->side * (size_t)cam->side, classes = (size_t)cam->classes;
    double worst = 0;
    for (size_t c = 0; c < classes; c++) {
        double sum = 0, most = 0;
        for (size_t p = 0; p < positions; p++) {
            sum += (double)cam->local[p * classes + c];
            most = fmax(most, fabs((double)cam->local[p * classes + c]));
        }
        worst = fmax(worst, fabs(sum / (double)positions - (double)cam->logit[c]) / most);
    }
    OK(worst < 1e-5, "%s: the mean over %d x %d positions is the logit, within %.1e", what,
       cam->side, cam->side, worst);
}

/* Where the patch moved the maps, on average over all classes: one class of a network that has
 * learnt nothing may answer to the patch beside it. */
static struct place centre_of_change(struct chex_engine *e, const struct chex_cam *without,
                                     struct place patch) {
    struct chex_cam *with = maps_of(e, &patch);
    double x = 0, y = 0, all = 0;
    for (int p = 0; p < with->side * with->side; p++)
        for (int c = 0; c < CLASSES; c++) {
            const double d =
                (double)(with->local[p * CLASSES + c] - without->local[p * CLASSES + c]);
            x += d * d * (p % with->side);
            y += d * d * (p / with->side);
            all += d * d;
        }
    const struct place at = {with->first_px + with->step_px * x / all,
                             with->first_px + with->step_px * y / all};
    chex_cam_destroy(with);
    return at;
}

/* Weights of chance are lopsided by up to 10 px; maps stretched over the image would be 25 off with
 * resnet50. */
static void follows_patch(struct chex_engine *e, const struct chex_cam *without,
                          struct place patch) {
    const struct place at = centre_of_change(e, without, patch);
    OK(fabs(at.x - patch.x) < 12 && fabs(at.y - patch.y) < 12,
       "%s: a patch at %.1f, %.1f moves the maps about %.1f, %.1f", e->config.net->model, patch.x,
       patch.y, at.x, at.y);
}

static void network(const char *model, double first) {
    const int size = TAP_SLOW_BUILD ? 160 : 224;
    struct chex_net *net = NULL;
    double first_px, step_px;
    MUST(chex_net_create(model, CLASSES, &net, &err));
    chex_cam_place(net, &first_px, &step_px);
    OK(first_px == first && step_px == 32, "%s: positions at %g + 32 i", model, first_px);
    struct chex_engine *e = engine_for(net, size, CHEX_FP32);
    struct chex_cam *plain = maps_of(e, NULL);
    const double left = size * 0.3, top = size * 0.5;
    OK(plain->side == size / 32 && plain->classes == CLASSES, "%d x %d positions", plain->side,
       plain->side);
    mean_is_logit(plain, model);
    follows_patch(e, plain, (struct place){left, top});
    follows_patch(e, plain, (struct place){size - 1 - left, top});
    follows_patch(e, plain, (struct place){size - 1 - left, left});
    chex_cam_destroy(plain);
    chex_engine_destroy(e);
    e = engine_for(net, 75, CHEX_BF16);
    struct chex_cam *half = maps_of(e, NULL);
    mean_is_logit(half, "bf16");
    chex_cam_destroy(half);
    chex_engine_destroy(e);
    chex_net_destroy(net);
}

/* ---- between positions ---- */

static float corners[] = {0, -1, 4, -1, 8, -1, 20, -1}; /* (2, 2, 2) */
static float logits[] = {8, -1};
static const struct chex_cam square = {2, 2, 10, 30, corners, logits};

static void interpolation(void) {
    OK(chex_cam_local(&square, 0, 10, 10) == 0 && chex_cam_local(&square, 0, 40, 10) == 4 &&
           chex_cam_local(&square, 0, 10, 40) == 8 && chex_cam_local(&square, 0, 40, 40) == 20,
       "a position has its own value");
    OK(chex_cam_local(&square, 0, 25, 10) == 2 && chex_cam_local(&square, 0, 10, 25) == 4 &&
           chex_cam_local(&square, 0, 25, 25) == 8,
       "between positions the value is linear along both axes");
    OK(chex_cam_local(&square, 0, -50, 0) == 0 && chex_cam_local(&square, 0, 99, 99) == 20 &&
           chex_cam_local(&square, 0, 99, 25) == 12,
       "beyond the outermost it stays");
    OK(chex_cam_local(&square, 1, 33, 17) == -1, "classes keep apart");
    float one[] = {3};
    const struct chex_cam single = {1, 1, 14, 32, one, one};
    OK(chex_cam_local(&single, 0, 0, 0) == 3 && chex_cam_local(&single, 0, 31, 14) == 3,
       "one position is everywhere");
    struct chex_cam_peak p = chex_cam_peak(&square, 0);
    OK(p.x == 40 && p.y == 40 && p.local == 20, "the peak");
    p = chex_cam_peak(&square, 1);
    OK(p.x == 10 && p.y == 10 && p.local == -1, "of equals the first");
    OK(chex_cam_top(&square, 0) == 12 && chex_cam_top(&square, 1) == 1,
       "the scale: the most evidence, at least 1");
}

static void coordinates(void) {
    const struct chex_cam_view v = chex_cam_view_of(1024, 2048, 256, 224);
    double x, y;
    chex_cam_to_file(&v, -0.5, -0.5, &x, &y);
    OK(x == 16 * 4 - 0.5 && y == 16 * 8 - 0.5, "the crop's corner in the file: %g, %g", x, y);
    chex_cam_to_network(&v, x, y, &x, &y);
    OK(x == -0.5 && y == -0.5, "and back");
    chex_cam_to_file(&v, 111.5, 111.5, &x, &y);
    OK(x == 511.5 && y == 1023.5, "the middle stays the middle");
}

/* ---- the picture ---- */

static void colours(void) {
    const struct chex_colour a = chex_inferno(0), b = chex_inferno(0.5), c = chex_inferno(1);
    OK(abs(a.r - 0) < 3 && abs(a.g - 0) < 3 && abs(a.b - 4) < 6, "inferno begins in black");
    OK(abs(b.r - 188) < 3 && abs(b.g - 55) < 3 && abs(b.b - 84) < 3, "goes through red");
    OK(abs(c.r - 252) < 3 && abs(c.g - 255) < 3 && abs(c.b - 164) < 6, "ends in pale yellow");
    double light = -1;
    int falls = 0;
    for (int i = 0; i <= 100; i++) {
        const struct chex_colour k = chex_inferno(i / 100.0);
        const double now = 0.2126 * k.r + 0.7152 * k.g + 0.0722 * k.b;
        falls += now < light - 1;
        light = now;
    }
    OK(falls == 0, "and gets lighter all the way");
}

enum { GREY = 100, SIDE = 512 };

static bool is_grey(const struct chex_cam_sheet *c, int x, int y) {
    const uint8_t *p = c->rgb + 3 * (y * c->width + x);
    return p[0] == GREY && p[1] == GREY && p[2] == GREY;
}

/* Four positions of a 64 px crop: evidence in the lower right corner alone. */
static float lower_right[] = {-9, -9, -9, -9, -9, -9, 15, -5.5};
static float image_logits[] = {-3, -8.125};

static struct chex_cam_picture picture_of(const struct chex_cam *cam,
                                          const struct chex_image *image, const int *drawn,
                                          int count) {
    static const char *const names[] = {"Mass", "N\xc3\xb3"
                                                "dulo"};
    static const double probabilities[] = {0.047, 0.0003};
    return (struct chex_cam_picture){.cam = cam,
                                     .image = image,
                                     .view = chex_cam_view_of(SIDE, SIDE, 80, 64),
                                     .class_names = names,
                                     .probabilities = probabilities,
                                     .drawn = drawn,
                                     .count = count,
                                     .alpha = 0.5};
}

static void picture(void) {
    static const int first[] = {0}, second[] = {1}, both[] = {0, 1};
    const struct chex_cam cam = {2, 2, 14, 32, lower_right, image_logits};
    struct chex_image image = {0};
    struct chex_cam_sheet c = {0};
    MUST(chex_image_reserve(&image, SIDE, SIDE, &err));
    memset(image.pixels, GREY, SIDE * SIDE);
    struct chex_cam_picture p = picture_of(&cam, &image, first, 1);
    OK_CALL(chex_cam_draw(&p, &c, &err));
    OK(c.width == SIDE && c.height == SIDE, "one tile alone has the size of the radiograph");
    int wrong = 0, coloured = 0, frame = 0;
    const double crop = 8.0 / 80 * SIDE; /* so much is cut off on each side */
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            const bool grey = is_grey(&c, x, y);
            const double edge = fmin(fmin(x, y), fmin(SIDE - 1 - x, SIDE - 1 - y));
            if (fabs(edge - crop) < 2)
                frame += !grey;
            else if (edge < crop || (x < SIDE / 4 && y < SIDE / 4))
                wrong += !grey;
            else
                coloured += !grey;
        }
    OK(!wrong, "without evidence, and outside of the crop, the radiograph is as it was");
    OK(coloured > SIDE * SIDE / 16 && coloured < SIDE * SIDE / 2, "evidence is coloured (%d px)",
       coloured);
    OK(frame > 3 * SIDE / 2, "what the network saw has a frame");
    const int x = SIDE * 3 / 4, y = SIDE * 3 / 4;
    const uint8_t *at = c.rgb + 3 * (y * c.width + x);
    OK(at[0] > GREY && at[0] > at[2], "in warm colours");
    dir_make();
    const char *path = dir_path("cam.png");
    const char *texts[] = {"Title", "Mass", "Source", "N\xc3\xb3.png", NULL};
    OK_CALL(chex_cam_write_png(&c, path, texts, &err));
    char *bytes = NULL;
    size_t size = 0;
    struct chex_image_reader *reader = NULL;
    struct chex_image read = {0};
    MUST(chex_fs_read(path, 1 << 24, &bytes, &size, &err));
    MUST(chex_image_reader_create(&reader, &err));
    OK_CALL(image_load(reader, path, &read, &err));
    OK(read.width == c.width && read.height == c.height, "the file is a PNG of %d x %d px",
       read.width, read.height);
    OK(memmem(bytes, size, "tEXtTitle\0Mass", 14) && memmem(bytes, size, "iTXtSource\0", 11) &&
           memmem(bytes, size, "N\xc3\xb3.png", 7),
       "with its texts");
    OK_STATUS(chex_cam_write_png(&c, dir_path("no/cam.png"), NULL, &err), CHEX_E_ENV, err,
              "no/cam.png");
    free(bytes);
    chex_image_release(&read);
    chex_image_reader_destroy(reader);
    free(c.rgb);

    p = picture_of(&cam, &image, second, 1);
    OK_CALL(chex_cam_draw(&p, &c, &err));
    coloured = 0;
    for (int k = 0; k < SIDE * SIDE; k++)
        coloured += !is_grey(&c, k % SIDE, k / SIDE);
    OK(coloured < 5 * SIDE, "a finding that is improbable everywhere has nothing but the frame");
    free(c.rgb);

    p = picture_of(&cam, &image, both, 2);
    OK_CALL(chex_cam_draw(&p, &c, &err));
    OK(c.width == 2 * SIDE + CHEX_CAM_GAP_PX && c.height == SIDE, "two tiles beside each other");
    free(c.rgb);
    image.width = 64;
    image.height = 30;
    p = picture_of(&cam, &image, first, 1);
    p.view = chex_cam_view_of(64, 30, 80, 64);
    OK_CALL(chex_cam_draw(&p, &c, &err));
    OK(c.width == SIDE && c.height == 30 * 8, "a small image is enlarged eightfold");
    free(c.rgb);
    chex_image_release(&image);
    dir_remove();
}

int main(void) {
    interpolation();
    coordinates();
    colours();
    picture();
    network("densenet_tiny", 14);
    network("resnet50", 0);
    return tap_done();
}

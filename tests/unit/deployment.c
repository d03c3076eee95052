/* SPDX-License-Identifier: Apache-2.0
 *
 * Deployment files: what was written comes back, thresholds of other parameters or classes are
 * refused, and thresholds are read from JSON files too. tests/cmd/0356-eval-deploy.t has the
 * damaged files.
 */
#include "infer/deployment.h"

#include "dir.h"
#include "tap.h"
#include "tiny_net.h"

static struct chex_error err;
static char name_a[] = "A", name_b[] = "B", name_c[] = "C", name_d[] = "D";
static char *names[] = {name_a, name_b, name_c};
enum { CLASSES = 3 };

static void test_round_trip(void) {
    struct chex_net *net = tiny_net(CLASSES);
    float state[400];
    struct chex_deployment *d = NULL, *back = NULL, *other = NULL;
    struct chex_safetensors_about about = {.class_names = names, .classes = CLASSES};
    BAIL_UNLESS(net->state_count <= 400, "state");
    for (size_t i = 0; i < net->state_count; i++)
        state[i] = (float)i / 7;
    MUST(chex_deployment_create(CLASSES, names, &d, &err));
    d->rule = strdup("youden");
    d->recalibration = strdup("platt");
    d->threshold[0] = 1.0 / 3;
    d->threshold[2] = 0.1f;
    d->calibration[2] = (struct chex_calibration){0.7, -1.0 / 9};
    d->views[CHEX_VIEW_PA] = 5;
    OK_CALL(chex_deployment_write(dir_path("d.safetensors"), net, state, 3, &about, d, &err));
    OK_CALL(chex_deployment_read(dir_path("d.safetensors"), net, state, &back, &err));
    OK(back && back->classes == CLASSES && strcmp(back->class_names[2], "C") == 0 &&
           back->threshold[0] == 1.0 / 3 && isnan(back->threshold[1]) &&
           back->threshold[2] == (double)0.1f,
       "thresholds come back to the last bit, and a missing one as NaN");
    OK(back->calibration[2].slope == 0.7 && back->calibration[2].intercept == -1.0 / 9 &&
           back->calibration[0].slope == 1 && back->views[CHEX_VIEW_PA] == 5 &&
           strcmp(back->rule, "youden") == 0 && strcmp(back->recalibration, "platt") == 0 &&
           !back->features,
       "so do calibration, views and texts");
    state[7] += 1;
    OK_STATUS(chex_deployment_read(dir_path("d.safetensors"), net, state, &other, &err),
              CHEX_E_DATA, err, "the thresholds are those of other parameters");
    OK(!other, "and gives no deployment");
    OK_CALL(chex_safetensors_write(dir_path("plain.safetensors"), net, state, 3, &about, NULL, 0,
                                   &err));
    OK(chex_deployment_read(dir_path("plain.safetensors"), net, state, &other, &err) == CHEX_OK &&
           !other,
       "a file without the part has no deployment");
    OK_STATUS(
        chex_deployment_thresholds(dir_path("plain.safetensors"), CLASSES, names, &other, &err),
        CHEX_E_DATA, err, "no deployment part");
    char *swapped[] = {name_c, name_a}, *unknown[] = {name_a, name_d};
    OK(chex_deployment_thresholds(dir_path("d.safetensors"), 2, swapped, &other, &err) == CHEX_OK &&
           other->threshold[0] == (double)0.1f && other->threshold[1] == 1.0 / 3,
       "thresholds are found by the names of the classes");
    chex_deployment_destroy(other);
    OK_STATUS(chex_deployment_thresholds(dir_path("d.safetensors"), 2, unknown, &other, &err),
              CHEX_E_DATA, err, "no threshold for finding D");
    chex_deployment_destroy(d);
    chex_deployment_destroy(back);
    chex_net_destroy(net);
}

static void test_json(void) {
    static const struct {
        const char *text;
        enum chex_status status;
        const char *what;
    } cases[] = {
        {"{\"thresholds\":{\"A\":0.25,\"B\":null,\"C\":1}}", CHEX_OK, NULL},
        {"{\"classes\":[{\"name\":\"A\",\"operating\":{\"threshold\":0.25}},"
         "{\"name\":\"B\",\"operating\":{\"threshold\":null}},"
         "{\"name\":\"C\",\"operating\":{\"threshold\":1}}]}",
         CHEX_OK, NULL},
        {"{\"thresholds\":{\"A\":0.25,\"B\":null}}", CHEX_E_DATA, "no threshold for finding C"},
        {"{\"thresholds\":{\"A\":\"x\",\"B\":1,\"C\":1}}", CHEX_E_DATA,
         "neither a number nor null"},
        {"{\"thresholds\":[0.1]}", CHEX_E_DATA, "no object 'thresholds'"},
        {"{\"schema\":2,\"thresholds\":{\"A\":1,\"B\":1,\"C\":1}}", CHEX_E_DATA, "newer chexnet"},
        {"{}", CHEX_E_DATA, "no thresholds"},
        {"[1]", CHEX_E_DATA, "no thresholds"},
        {"A,B\n", CHEX_E_DATA, "no thresholds"},
        {"", CHEX_E_DATA, "no thresholds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct chex_deployment *d = NULL;
        const char *path = dir_put_text("t.json", cases[i].text);
        OK_STATUS(chex_deployment_thresholds(path, CLASSES, names, &d, &err), cases[i].status, err,
                  cases[i].what);
        if (cases[i].status == CHEX_OK)
            OK(d->threshold[0] == 0.25 && isnan(d->threshold[1]) && d->threshold[2] == 1 &&
                   d->calibration[0].slope == 1 && strcmp(d->recalibration, "none") == 0,
               "with its values");
        chex_deployment_destroy(d);
    }
}

int main(void) {
    dir_make();
    test_round_trip();
    test_json();
    dir_remove();
    return tap_done();
}

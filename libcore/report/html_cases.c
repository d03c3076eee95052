/* SPDX-License-Identifier: Apache-2.0
 *
 * The hardest cases in report.html: radiographs with their heat maps. A checkbox hides the maps,
 * by a rule of the style sheet and without a script.
 */
#include <math.h>

#include "base/textfile.h"
#include "infer/cam_picture.h"
#include "infer/cases.h"
#include "label/labels.h"
#include "report/html.h"

static void put_picture(FILE *to, const char *kind, const void *png, size_t bytes) {
    fprintf(to, "<img class=\"%s\" src=\"data:image/png;base64,", kind);
    chex_put_base64(to, png, bytes);
    fputs("\" alt=\"", to);
}

/* What is known about the image, in one line. */
static void put_facts(FILE *to, const struct chex_row_facts *f) {
    const char *comma = "";
    fputs("<br/><span class=\"mut\">", to);
    if (f->view != CHEX_VIEW_UNKNOWN) {
        fputs(chex_view_name(f->view), to);
        comma = ", ";
    }
    if (f->age_years >= 0) {
        fprintf(to, "%s%d years", comma, f->age_years);
        comma = ", ";
    }
    if (f->sex) {
        fprintf(to, "%s%c", comma, f->sex);
        comma = ", ";
    }
    if (f->source) {
        fputs(comma, to);
        chex_put_xml(to, f->source);
    }
    fputs("</span>", to);
}

/* The call at the threshold, which may be one of calibrated probabilities. No call if the figures
 * are those of studies or patients. */
static void put_call(FILE *to, const struct chex_report *r, const struct chex_case *k,
                     double score) {
    const struct chex_figures *f = r->figures;
    if (!f || r->scores->table != r->cases->table ||
        isnan(f->per_class[k->class_index].operating.threshold))
        return;
    const double threshold = f->per_class[k->class_index].operating.threshold;
    if (f->calibrated)
        score = chex_calibrate(&f->config.calibration[k->class_index], score);
    const bool called = score >= threshold;
    fprintf(to, "<br/>%s at %.4f",
            called == k->positive ? (called ? "true positive" : "true negative")
            : called              ? "false positive"
                                  : "false negative",
            threshold);
}

/* The stored image is a square. The original proportions are restored if they are known. */
static void put_frame(FILE *to, const struct chex_row_facts *f) {
    const bool known = f && f->width_px > 0 && f->height_px > 0;
    fprintf(to, "<div class=\"pic\" style=\"aspect-ratio:%d/%d\">", known ? f->width_px : 1,
            known ? f->height_px : 1);
}

static void put_case(FILE *to, const struct chex_report *r, const struct chex_case *k) {
    const struct chex_predictions *t = r->cases->table;
    const double score = t->score[k->row * (size_t)t->classes + (size_t)k->class_index];
    const struct chex_row_facts *facts = t->facts ? &t->facts[k->row] : NULL;
    const char *label = k->positive ? "positive" : "negative";
    fputs("<figure>", to);
    put_frame(to, facts);
    put_picture(to, "image", k->image, k->image_bytes);
    chex_put_xml_between(to, "radiograph ", t->image_id[k->row], "\"/>");
    put_picture(to, "map", k->map, k->map_bytes);
    chex_put_name_between(to, "heat map of ", t->class_names[k->class_index],
                          "\"/></div>\n<figcaption><b>");
    fprintf(to, "%s: %.3f</b>", label, score);
    put_call(to, r, k, score);
    fputs("<br/>", to);
    chex_put_xml(to, t->image_id[k->row]);
    if (facts)
        put_facts(to, facts);
    fputs("</figcaption></figure>\n", to);
}

static void put_class(FILE *to, const struct chex_report *r, const struct chex_case *k,
                      size_t count) {
    chex_put_name_between(to, "<h3>", r->cases->table->class_names[k->class_index],
                          "</h3>\n<div class=\"cases\">\n");
    for (size_t i = 0; i < count; i++)
        put_case(to, r, &k[i]);
    fputs("</div>\n", to);
}

static void put_notes(FILE *to, const struct chex_cases *k) {
    chex_html_note(to,
                   "For each finding the negative images with the highest predictions and the "
                   "positive images with the lowest, each with its label, its prediction and, if "
                   "there is one, the call at the threshold. Some are errors of the label.");
    fputs("<p class=\"warn\">This section holds images of patients. Share the file as you would "
          "share the images; <code>--hardest 0</code> leaves them out.</p>\n",
          to);
    fprintf(to,
            "<p class=\"mut\">Colour: evidence for the finding above that of the whole image, on "
            "%d x %d positions%s. The line marks half of the scale, the cross the peak, the frame "
            "what the network saw. What a network looks at need not be the reason.%s</p>\n",
            k->positions, k->positions,
            k->positions < CHEX_CAM_FEWEST_POSITIONS ? ": too coarse to say where" : "",
            k->tta ? " Predictions are means over augmented images or several networks, the maps "
                     "are those of the image itself by the first network."
                   : "");
}

enum chex_status chex_html_cases(FILE *to, const struct chex_report *r, struct chex_error *err) {
    const struct chex_cases *k = r->cases;
    (void)err;
    put_notes(to, k);
    fputs("<input type=\"checkbox\" id=\"maps\" checked=\"checked\"/> <label for=\"maps\">show "
          "heat maps</label>\n",
          to);
    for (size_t i = 0, n; i < k->count; i += n) {
        for (n = 1; i + n < k->count && k->one[i + n].class_index == k->one[i].class_index;)
            n++;
        put_class(to, r, &k->one[i], n);
    }
    return CHEX_OK;
}

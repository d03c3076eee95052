/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the lines of predict_line.h.
 */
#include "infer/predict_line.h"

#include <string.h>

bool chex_predict_line_split(char *text, struct chex_predict_line *line) {
    char *part[6] = {text};
    int count = 1;
    for (char *at = text; (at = strchr(at, '\t')); count++) {
        *at++ = '\0';
        if (count == 6)
            return false;
        part[count] = at;
    }
    if (strcmp(part[0], "p") == 0 && count == 6)
        *line = (struct chex_predict_line){.predicted = true,
                                           .id = part[1],
                                           .study = part[2],
                                           .series = part[3],
                                           .cells = part[4],
                                           .flags = part[5]};
    else if (strcmp(part[0], "r") == 0 && count == 3)
        *line = (struct chex_predict_line){.id = part[1], .reason = part[2]};
    else
        return false;
    return true;
}

char *chex_predict_line_unquote(char *cell) {
    if (*cell != '"')
        return cell;
    char *out = cell;
    for (const char *in = cell + 1; *in && !(in[0] == '"' && in[1] != '"'); in++) {
        *out++ = *in;
        in += *in == '"';
    }
    *out = '\0';
    return cell;
}

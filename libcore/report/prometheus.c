/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes metrics for Prometheus.
 */
#include "report/prometheus.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"

void chex_prometheus_begin(struct chex_prometheus *p, const char *host, const char *run) {
    *p = (struct chex_prometheus){.host = host, .run = run};
    p->to = open_memstream(&p->text, &p->bytes);
}

static void put_label(FILE *to, const char *before, const char *name, const char *value) {
    char shown[200];
    if (!value)
        return;
    fprintf(to, "%s%s=\"", before, name);
    for (const char *c = chex_text_printable(value, shown, sizeof shown); *c; c++)
        fprintf(to, strchr("\\\"", *c) ? "\\%c" : "%c", *c);
    fputc('"', to);
}

void chex_prometheus_add(struct chex_prometheus *p, const char *type, const char *name,
                         const char *help, const char *check, double value) {
    if (!p->to)
        return;
    if (type)
        fprintf(p->to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    fputs(name, p->to);
    put_label(p->to, "{", "host", p->host);
    put_label(p->to, ",", "slurm_job", getenv("SLURM_JOB_ID"));
    put_label(p->to, ",", "run", p->run);
    put_label(p->to, ",", "check", check);
    fprintf(p->to, "} %.15g\n", value);
}

enum chex_status chex_prometheus_write(struct chex_prometheus *p, const char *path,
                                       struct chex_error *err) {
    const bool whole = p->to && fclose(p->to) == 0;
    CHEX_AUTO_FREE char *text = p->text;
    CHEX_TRY(whole ? chex_fs_write(path, text, p->bytes, err) : chex_error_memory(err, "%s", path));
    return chmod(path, 0644) == 0
               ? CHEX_OK
               : chex_error_errno(err, CHEX_E_ENV, errno, "cannot make %s readable", path);
}

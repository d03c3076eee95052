/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of all checks, helpers for their texts and verdicts, and the exit status.
 */
#include "check/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "check/checks.h"

const char *const chex_verdict_names[] = {"pass", "skip", "warn", "fail", NULL};
const char *const chex_fault_names[] = {"user", "node", "unknown", NULL};
const char *const chex_check_mode_names[] = {"job", "prolog", "login", "health", NULL};

bool chex_check_of_node(enum chex_check_mode mode) {
    return mode == CHEX_MODE_PROLOG || mode == CHEX_MODE_HEALTH;
}

const char *chex_check_root(const struct chex_check_context *c) { return c->root ? c->root : ""; }

/* In the order of the printed table: installed versions, identity of the rank, resources, limits,
 * files, settings; then the measurements. */
const struct chex_check *const chex_checks[] = {
    &chex_check_chexnet,
    &chex_check_hdf5,
    &chex_check_pmix,
    &chex_check_hwloc,
    &chex_check_libpng,
    &chex_check_zlib,
    &chex_check_jansson,
    &chex_check_modules,
    &chex_check_launch,
    &chex_check_slurm_job,
    &chex_check_ranks,
    &chex_check_node_type,
    &chex_check_cpus,
    &chex_check_sharing,
    &chex_check_gpu_driver,
    &chex_check_gpu_visible,
    &chex_check_gpu_count,
    &chex_check_gpu_health,
    &chex_check_gpu_busy,
    &chex_check_gpu_memory,
    &chex_check_gpu_peer,
    &chex_check_gpu_xid,
    &chex_check_fabric_manager,
    &chex_check_gpu,
    &chex_check_engines,
    &chex_check_engine_auto,
    &chex_check_memlock,
    &chex_check_open_files,
    &chex_check_stack,
    &chex_check_memory,
    &chex_check_address_space,
    &chex_check_file_size,
    &chex_check_workdir,
    &chex_check_output,
    &chex_check_tmpdir,
    &chex_check_shm,
    &chex_check_clock,
    &chex_check_fabric_ports,
    &chex_check_fabric_errors,
    &chex_check_interfaces,
    &chex_check_nccl_env,
    &chex_check_mpi_env,
    &chex_check_ucx_env,
    &chex_check_hdf5_env,
    &chex_check_memory_rate,
    &chex_check_compute_rate,
    &chex_check_step_rate,
    &chex_check_step_bits,
    &chex_check_cpu_share,
    &chex_check_gpu_copy,
    &chex_check_gpu_memory_rate,
    &chex_check_gpu_step_rate,
    &chex_check_gpu_step_bits,
    &chex_check_gpu_after,
    &chex_check_tmpdir_rate,
    &chex_check_output_rate,
    &chex_check_data_rate,
    &chex_check_fence,
    &chex_check_collectives,
    &chex_check_neighbours,
    &chex_check_gpu_sums,
    NULL,
};

/* Copies a text and cuts it if it is too long: at a word if one ends in the last third, otherwise
 * at a UTF-8 character. */
static void fit(char *buf, size_t size, const char *text) {
    static const char dots[] = "...";
    size_t n = strlen(text);
    if (n >= size) {
        const size_t max_bytes = size - sizeof dots;
        for (n = max_bytes; n > max_bytes - max_bytes / 3 && text[n] != ' '; n--)
            ;
        if (text[n] != ' ')
            for (n = max_bytes; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
                ;
        memcpy(buf, text, n);
        memcpy(buf + n, dots, sizeof dots);
        return;
    }
    memcpy(buf, text, n + 1);
}

__attribute__((format(printf, 3, 0))) static void format(char *buf, size_t size, const char *fmt,
                                                         va_list args) {
    char whole[2048], printable[4096];
    vsnprintf(whole, sizeof whole, fmt, args);
    fit(buf, size, chex_text_printable(whole, printable, sizeof printable));
}

void chex_check_expect(struct chex_check_result *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    format(r->expected, sizeof r->expected, fmt, args);
    va_end(args);
}

void chex_check_found(struct chex_check_result *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    format(r->found, sizeof r->found, fmt, args);
    va_end(args);
}

void chex_check_found_more(struct chex_check_result *r, const char *fmt, ...) {
    char more[1024], whole[sizeof r->found + sizeof more];
    va_list args;
    va_start(args, fmt);
    format(more, sizeof more, fmt, args);
    va_end(args);
    snprintf(whole, sizeof whole, "%s%s", r->found, more);
    fit(r->found, sizeof r->found, whole);
}

void chex_check_worsen(struct chex_check_result *r, enum chex_verdict verdict,
                       enum chex_fault fault, const char *remedy_fmt, ...) {
    if (verdict < r->verdict)
        return;
    r->verdict = verdict;
    r->fault = fault;
    va_list args;
    va_start(args, remedy_fmt);
    format(r->remedy, sizeof r->remedy, remedy_fmt, args);
    va_end(args);
}

bool chex_check_measured(const struct chex_check *check, const struct chex_check_result *r) {
    bool any = false;
    for (int k = 0; check->figures[k].key; k++)
        any = any || r->figures[k] > 0;
    return any;
}

int chex_check_name_nodes(const struct chex_check_record *records, const bool *bad, int n,
                          bool ranks, char *buf, size_t size) {
    enum { NAMED = 8 };
    int nodes = 0;
    struct chex_text_line line = {buf, size, 0};
    buf[0] = '\0';
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (bad[i] && k < i && !(bad[k] && records[k].node == records[i].node))
            k++;
        if (!bad[i] || k < i || ++nodes > NAMED)
            continue;
        if (ranks)
            chex_text_append(&line, "%srank %d (%s)", nodes == 1 ? "" : ", ", records[i].rank,
                             records[i].host);
        else
            chex_text_append(&line, "%s%s", nodes == 1 ? "" : ",", records[i].host);
    }
    if (ranks && nodes > NAMED)
        chex_text_append(&line, " and %d more nodes", nodes - NAMED);
    return nodes;
}

/* The index of the most frequent `found` text. If two are equally frequent, the lower rank wins. */
static int majority(const struct chex_check_result *const *all, int n, int *count_out) {
    int best = 0, best_count = 0;
    for (int i = 0; i < n && best_count <= n / 2; i++) {
        int count = 0;
        for (int j = 0; j < n; j++)
            count += strcmp(all[i]->found, all[j]->found) == 0;
        if (count > best_count) {
            best = i;
            best_count = count;
        }
    }
    *count_out = best_count;
    return best;
}

void chex_check_same(const struct chex_check_record *records,
                     const struct chex_check_result *const *all, int n,
                     struct chex_check_result *merged) {
    int count, first = 0;
    const char *best = all[majority(all, n, &count)]->found;
    char names[CHEX_NODES_BYTES], hosts[CHEX_NODES_BYTES];
    bool *differs = chex_alloc_zeroed((size_t)n, sizeof *differs);
    for (int i = n - 1; differs && i >= 0; i--) {
        differs[i] = strcmp(all[i]->found, best) != 0;
        first = differs[i] ? i : first;
    }
    if (differs && count < n) {
        const int nodes = chex_check_name_nodes(records, differs, n, true, names, sizeof names);
        (void)chex_check_name_nodes(records, differs, n, false, hosts, sizeof hosts);
        chex_check_expect(merged, "the same on all ranks: %s", best);
        chex_check_found(merged, "%s: %s; %d of %d ranks differ", names, all[first]->found,
                         n - count, n);
        chex_check_worsen(merged, CHEX_FAIL, merged->fault,
                          "make node%s %s like the others, or leave %s out with --exclude=%s",
                          nodes == 1 ? "" : "s", hosts, nodes == 1 ? "it" : "them", hosts);
    }
    free(differs);
}

enum chex_status chex_check_status(const struct chex_check_report *report) {
    bool user = false;
    for (size_t i = 0; i < report->count; i++) {
        if (report->merged[i].verdict != CHEX_FAIL)
            continue;
        if (report->merged[i].fault == CHEX_FAULT_NODE)
            return CHEX_E_NODE;
        if (report->merged[i].fault == CHEX_FAULT_UNKNOWN)
            return CHEX_E_LOST;
        user = true;
    }
    return user && !chex_check_of_node(report->mode) ? CHEX_E_ENV : CHEX_OK;
}

void chex_check_report_release(struct chex_check_report *report) {
    free((void *)(uintptr_t)report->checks);
    free(report->records);
    free(report->all);
    free(report->merged);
    memset(report, 0, sizeof *report);
}

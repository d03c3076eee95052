/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network of a node as the kernel describes it, and checks the ports of InfiniBand and
 * RoCE adapters and their error counters.
 *
 * A port without a cable looks like one whose cable has failed. Only what cannot be intended fails
 * by itself. The rest is found by comparison: with other ports of the same model, with other nodes
 * of the same type, and with the record of the node (--record, --expect).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/text.h"
#include "check/checks.h"
#include "check/measure.h"

enum { PORTS_OF_DEVICE = 8 };

/* A state has a number in front: "4: ACTIVE". */
static void read_port(const char *root, const char *device, const char *number,
                      struct chex_fabric_link *p) {
    char state[sizeof p->state + 3];
    snprintf(p->name, sizeof p->name, "%.47s:%.8s", device, number);
    snprintf(p->folder, sizeof p->folder, "sys/class/infiniband/%.47s/ports/%.8s", device, number);
    const struct chex_path at = chex_path(root, p->folder);
    (void)chex_fs_line(at.text, "../../hca_type", "", p->model, sizeof p->model);
    const size_t n = strlen(p->model);
    (void)chex_fs_line(at.text, "link_layer", "", p->model + n, sizeof p->model - n);
    (void)chex_fs_line(at.text, "rate", "", p->rate, sizeof p->rate);
    (void)chex_fs_line(at.text, "state", "", state, sizeof state);
    const char *word = strchr(state, ' ');
    snprintf(p->state, sizeof p->state, "%s", word ? word + 1 : "unknown");
    p->gbit_per_s = strtod(p->rate, NULL);
    p->up = strcmp(p->state, "ACTIVE") == 0;
}

/* Whether a line of the file ends in the name: the interface has an address of IPv6. */
static bool has_ipv6(const char *root, const char *name) {
    char last[64];
    bool found = false;
    FILE *f = fopen(chex_path(root, "proc/net/if_inet6").text, "re");
    while (f && !found && fscanf(f, "%*s %*s %*s %*s %*s %63s", last) == 1)
        found = strcmp(last, name) == 0;
    if (f)
        fclose(f);
    return found;
}

/* The speed is in Mbit/s. A virtual interface has none, and its state may be unknown. */
static void read_interface(const char *root, const char *name, struct chex_fabric_link *i) {
    char key[64], text[32];
    snprintf(i->name, sizeof i->name, "%.47s", name);
    snprintf(i->folder, sizeof i->folder, "sys/class/net/%.47s", name);
    snprintf(key, sizeof key, "%.47s\t", name);
    const struct chex_path at = chex_path(root, i->folder);
    (void)chex_fs_line(at.text, "operstate", "", i->state, sizeof i->state);
    if (chex_fs_line(at.text, "speed", "", text, sizeof text) && atof(text) > 0)
        i->gbit_per_s = atof(text) / 1000;
    i->up =
        (strcmp(i->state, "up") == 0 || strcmp(i->state, "unknown") == 0) &&
        (chex_fs_line(root, "proc/net/route", key, text, sizeof text) || has_ipv6(root, i->name));
}

void chex_fabric_read(const char *root, struct chex_fabric *out) {
    struct chex_fs_name names[CHEX_LINKS / 2], numbers[PORTS_OF_DEVICE];
    char folder[128];
    memset(out, 0, sizeof *out);
    const int devices = chex_fs_names(root, "sys/class/infiniband", names, CHEX_LINKS / 2);
    for (int d = 0; d < devices; d++) {
        snprintf(folder, sizeof folder, "sys/class/infiniband/%.47s/ports", names[d].text);
        const int ports = chex_fs_names(root, folder, numbers, PORTS_OF_DEVICE);
        for (int k = 0; k < ports && out->ports < CHEX_LINKS / 2; k++)
            read_port(root, names[d].text, numbers[k].text, &out->links[out->ports++]);
    }
    const int interfaces = chex_fs_names(root, "sys/class/net", names, CHEX_LINKS / 2);
    for (int i = 0; i < interfaces; i++)
        read_interface(root, names[i].text, &out->links[out->ports + i]);
    out->count = out->ports + interfaces;
}

/* ---- fabric-ports ---- */

static void judge_port(const struct chex_check_context *c, const struct chex_fabric *f,
                       const struct chex_fabric_link *p, struct chex_check_result *r) {
    const struct chex_fabric_link *best = p;
    for (const struct chex_fabric_link *o = f->links; o < f->links + f->ports; o++)
        if (o->up && o->gbit_per_s > best->gbit_per_s && strcmp(o->model, p->model) == 0)
            best = o;
    if (p->up && best != p)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "port %s of %s has %s, and %s of the same model %s: look at its cable",
                          p->name, c->launch->host, p->rate, best->name, best->rate);
    else if (strcmp(p->state, "INIT") == 0 || strcmp(p->state, "ARMED") == 0)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "port %s of %s has a link, but no subnet manager has made it active: "
                          "look at opensm; leave the node out with --exclude=%s",
                          p->name, c->launch->host, c->launch->host);
}

/* Lists the ports that are up, or those that are not. Returns how many. */
static int list_ports(const struct chex_fabric *f, bool up, struct chex_check_result *r) {
    int count = 0;
    for (const struct chex_fabric_link *p = f->links; p < f->links + f->ports; p++)
        if (p->up == up) {
            chex_check_found_more(r, "%s%s %s",
                                  count ? ", "
                                  : up  ? ""
                                        : "; not active: ",
                                  p->name, up ? p->rate : p->state);
            r->figures[0] += up ? p->gbit_per_s : 0;
            count++;
        }
    return count;
}

static void probe_ports(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_fabric f;
    char type[200];
    chex_check_expect(r, "active, and as fast as others of their model");
    chex_fabric_read(chex_check_root(c), &f);
    chex_check_node_type_text(chex_check_root(c), type, sizeof type);
    r->kind = chex_hash64(type, strlen(type));
    if (f.ports == 0)
        chex_check_skip(r, "no InfiniBand or RoCE adapter");
    else if (list_ports(&f, true, r) == 0)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE, "no port of %s is active",
                          c->launch->host);
    (void)list_ports(&f, false, r);
    for (int i = 0; i < f.ports; i++)
        judge_port(c, &f, &f.links[i], r);
}

/* Nodes of one type must have the same ports. Of two nodes, the slower is found by figures[0]. */
static void across_ports(const struct chex_check_record *records,
                         const struct chex_check_result *const *all, int n,
                         struct chex_check_result *merged) {
    for (int i = 0; i < n; i++)
        if (records[i].nodes < 3 || all[i]->kind != all[0]->kind)
            return;
    chex_check_same(records, all, n, merged);
}
CHEX_CHECK(fabric_ports, .name = "fabric-ports",
           .question = "are the ports of the network active, at one rate?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_ports,
           .across = across_ports, .is_list = true, .recorded = true,
           .figures = {{.key = "gbit_per_s", .unit = "Gb/s", .compared = true}});

/* ---- fabric-errors ---- */

static const char *const counters[] = {
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "counters/excessive_buffer_overrun_errors",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
};

static const char *count_errors(const char *root, json_t *counts_out) {
    struct chex_fabric f;
    char file[192], name[128];
    uint64_t value;
    chex_fabric_read(root, &f);
    for (const struct chex_fabric_link *p = f.links; p < f.links + f.ports; p++)
        for (size_t k = 0; k < CHEX_COUNT(counters); k++) {
            snprintf(file, sizeof file, "%s/%s", p->folder, counters[k]);
            snprintf(name, sizeof name, "%.63s %s", p->name, chex_fs_name(counters[k]));
            if (chex_fs_number(root, file, "", &value) && value > 0)
                json_object_set_new(counts_out, name, json_integer((json_int_t)value));
        }
    return f.ports ? NULL : "no InfiniBand or RoCE adapter";
}

/* A choice of this project. On RoCE, congestion reorders packets too. */
static double most_errors(const char *name) {
    for (size_t k = 0; k < CHEX_COUNT(counters); k++)
        if (counters[k][0] == 'h' && chex_text_ends_with(name, chex_fs_name(counters[k])))
            return 10000;
    return 10;
}

CHEX_CHECK(fabric_errors, .name = "fabric-errors",
           .question = "do the ports of the network count errors?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .recorded = true,
           .count = count_errors, .most_a_day = most_errors);

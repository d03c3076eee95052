/* SPDX-License-Identifier: Apache-2.0
 *
 * The prediction for a described cluster: against closed formulas, against the table of
 * "Optimization Techniques for Training CheXNet on Dell C4140 with V100 GPUs", and files that are
 * no description.
 */
#include "plan/machines.h"

#include "dir.h"
#include "tap.h"

static struct chex_error err;

/* ---- formulas ---- */

static const struct chex_machines_work densenet = {.gradient_bytes = 28300000,
                                                   .bucket_bytes = 4 << 20,
                                                   .batch_images = 64,
                                                   .rows = 77871,
                                                   .process_passes = 1};

static struct chex_machines_row predicted(const struct chex_machines *c,
                                          const struct chex_machines_work *w, int n) {
    struct chex_machines_row r;
    chex_machines_predict(c, w, n, &r);
    return r;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* 4 nodes of 4 processes without limits, a pass of 0.64 s, and delays of 60 ms. */
static const struct chex_machines fast = {.nodes = 4,
                                          .node_processes = 4,
                                          .images_per_s = 100,
                                          .local = {1e18, 0},
                                          .network = {1e18, 0},
                                          .backward_share = 0.5};

static void check_formulas(void) {
    struct chex_machines c = fast;
    OK(near(predicted(&c, &densenet, 1).step_s, 0.64) &&
           near(predicted(&c, &densenet, 16).step_s, 0.64),
       "without waits and with links without limits a step takes as long on 16 as on one");
    struct chex_machines_row r = predicted(&c, &densenet, 16);
    OK(near(r.efficiency, 1) && near(r.images_per_s, 1600) && r.nodes == 4,
       "the efficiency is 1 then");
    OK(near(r.epoch_s, 76 * 0.64), "an epoch has the whole steps only");
    c.wait_s = 0.06;
    OK(near(predicted(&c, &densenet, 2).step_s, 0.64 + 0.03) &&
           near(predicted(&c, &densenet, 4).step_s, 0.64 + 0.06 * 13 / 12),
       "the wait grows with the harmonic numbers");
    c.wait_s = 0;
    c.network.bytes_per_s = 1; /* every bucket waits for the one before */
    OK(fabs(predicted(&c, &densenet, 8).step_s / 28300000 - 1) < 1e-6,
       "two nodes with a slow network: its time alone");
    c.network = (struct chex_machines_link){1e18, 1e-3};
    OK(near(predicted(&c, &densenet, 16).step_s, 0.64 + 4e-3),
       "of fast links only the last bucket's latencies are exposed");
    const struct chex_machines_work small = {.gradient_bytes = 100,
                                             .bucket_bytes = 4 << 20,
                                             .batch_images = 64,
                                             .rows = 63,
                                             .process_passes = 1};
    OK(predicted(&c, &small, 1).epoch_s == 0, "fewer rows than one batch: no epoch");
}

static void check_accumulate(void) {
    struct chex_machines_work w = densenet;
    struct chex_machines c = fast;
    w.process_passes = 4;
    struct chex_machines_row r = predicted(&c, &w, 16);
    OK(near(r.step_s, 4 * 0.64) && near(r.images_per_s, 1600) && near(r.epoch_s, 19 * 2.56),
       "--accumulate 4: four passes a step, and a quarter of the steps");
    c.wait_s = 0.06;
    /* The mean of the larger of two sums of 4 delays: half of E|X - Y| = 2 k C(2k, k) / 4^k. */
    r = predicted(&c, &w, 2);
    OK(fabs(r.wait_s / (0.06 * 4 * 70 / 256) - 1) < 1e-6,
       "the delays of four passes add up before a process waits: %.3f ms", 1e3 * r.wait_s);
    w.process_passes = 512;
    const double many = predicted(&c, &w, 16).wait_s;
    w.process_passes = 256;
    OK(near(many / predicted(&c, &w, 16).wait_s, sqrt(2)),
       "of hundreds of passes the wait grows with the square root");
    w.process_passes = 1;
    w.logical_ranks = 6;
    r = predicted(&fast, &w, 4);
    OK(r.passes == 2 && near(r.step_s, 2 * 0.64) && near(r.images_per_s, 6 * 64 / 1.28),
       "6 logical ranks on 4 processes: some have two passes, and the others wait");
}

static void check_sync(void) {
    struct chex_machines_work w = densenet;
    struct chex_machines c = fast;
    w.sync_sums = 242;
    w.sync_bytes = 1000000;
    c.local = (struct chex_machines_link){1e9, 1e-6};
    struct chex_machines_row r = predicted(&c, &w, 4);
    OK(near(r.sync_s, 4 * (242 * 1e-6 + 1e-3)),
       "--sync-bn in a node of 4: two links up the tree and two down, for each sum");
    OK(near(r.exposed_s, 1.5 * 28300000 / 1e9 + 7 * 4e-6),
       "its reduction of 7 buckets starts after backward");
    c.network = (struct chex_machines_link){1e18, 1e-3};
    OK(near(predicted(&c, &w, 16).sync_s - r.sync_s, 4 * 242 * 1e-3),
       "4 nodes: two links more up and down, between the nodes");
    OK(predicted(&c, &w, 1).sync_s == 0, "one process exchanges nothing");
}

static void check_audit(void) {
    struct chex_machines_work w = densenet;
    struct chex_machines c = fast;
    w.audit_steps = 10;
    OK(near(predicted(&c, &w, 16).audit_s, 0.064) && near(predicted(&c, &w, 1).step_s, 0.704),
       "--audit-steps 10: a tenth of a pass in each step, also with one process");
    c.local.bytes_per_s = 1e9;
    w.bucket_bytes = w.gradient_bytes;
    OK(near(predicted(&c, &w, 4).audit_s, 0.064), "nothing more if nothing was hidden");
    w.bucket_bytes = w.gradient_bytes / 2;
    const struct chex_machines_row r = predicted(&c, &w, 4);
    OK(near(r.audit_s, 0.064 + (1.5 * 28300000 / 1e9 - r.exposed_s) / 10),
       "and the reduction of the audited step is in the open");
}

static void check_counts(void) {
    int n[CHEX_MACHINES_COUNTS];
    struct chex_machines c = {.nodes = 4, .node_processes = 4};
    static const int article[] = {1, 2, 3, 4, 8, 12, 16};
    OK(chex_machines_counts(&c, n) == 7 && memcmp(n, article, sizeof article) == 0,
       "4 nodes of 4: each within a node, then whole nodes");
    c = (struct chex_machines){.nodes = 1, .node_processes = 1};
    OK(chex_machines_counts(&c, n) == 1 && n[0] == 1, "one process: one line");
    c = (struct chex_machines){.nodes = 1 << 16, .node_processes = 1 << 10};
    const int most = chex_machines_counts(&c, n);
    OK(most <= CHEX_MACHINES_COUNTS && n[most - 1] == 1 << 26, "the largest cluster has %d lines",
       most);
}

/* ---- the article ---- */

/* 4 nodes of 4 V100-SXM2, EDR InfiniBand, fp32, batch 64, 256 px. The links are those of the data
 * sheets: NVLink of a V100 one way 150 GB/s, EDR 100 Gbit/s. */
static void check_article(void) {
    struct chex_machines c = {.nodes = 4,
                              .node_processes = 4,
                              .images_per_s = 185.12,
                              .local = {150e9, 10e-6},
                              .network = {12.5e9, 10e-6},
                              .backward_share = 2.0 / 3,
                              .several_processes = 4,
                              .several_images_per_s = 589.36};
    static const struct {
        int n;
        double images_per_s;
    } table[] = {{1, 185.12},  {2, 315.26},   {3, 421.85},  {4, 589.36},
                 {8, 1116.99}, {12, 1527.60}, {16, 1912.82}};
    double worst = 0, beyond = 0;
    chex_machines_fit(&c, &densenet);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct chex_machines_row r = predicted(&c, &densenet, table[i].n);
        const double error = r.images_per_s / table[i].images_per_s - 1;
        printf("# %2d V100: %.0f images/s predicted, %.0f measured, %+.1f %%\n", table[i].n,
               r.images_per_s, table[i].images_per_s, 100 * error);
        worst = fmax(worst, fabs(error));
        if (table[i].n > 4)
            beyond = fmax(beyond, fabs(error));
    }
    OK(worst < 0.11, "the article's table from its figures for 1 and 4 GPUs: within 11 %% (%.1f)",
       100 * worst);
    OK(beyond < 0.07, "of several nodes within 7 %% (%.1f)", 100 * beyond);
}

/* ---- files ---- */

static enum chex_status read_text(const char *text, struct chex_machines *out) {
    return chex_machines_read(dir_put_text("cluster.json", text), out, &err);
}

#define HEAD "{\"schema\": 1, \"nodes\": 2, \"processes_a_node\": 4, \"images_per_s\": 185"
#define LINKS                                                                                      \
    ", \"links\": {\"local\": {\"bytes_per_s\": 1e11}, \"network\": {\"bytes_per_s\": 1.2e10, "    \
    "\"latency_s\": 1e-6}}"

static void check_files(void) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "line"},
        {"[1]", "the file: expected an object"},
        {"{\"schema\": 2}", "schema: 2 (expected a whole number from 1 to 1)"},
        {"{\"schema\": 1, \"nodes\": 2, \"nodes\": 3}", "duplicate"},
        {"{\"schema\": 1, \"nodes\": 1.5}", "nodes: 1.5 (expected a whole number"},
        {"{\"schema\": 1, \"nodes\": \"2\"}", "nodes: not a number"},
        {HEAD "}", "links: expected an object"},
        {HEAD ", \"links\": {\"local\": {\"bytes_per_s\": 1}}}",
         "links.network: expected an object"},
        {HEAD ", \"links\": {\"lokal\": {}}}", "links.lokal: unknown"},
        {HEAD ", \"links\": {\"local\": {\"bytes_per_s\": -1}}}", "links.local.bytes_per_s: -1"},
        {HEAD LINKS ", \"gpus\": 3}", "gpus: unknown"},
        {HEAD LINKS ", \"measured\": {\"processes\": 9, \"images_per_s\": 1}}", "more than"},
        {HEAD LINKS ", \"measured\": {\"processes\": 4}}", "measured.images_per_s: missing"},
        {HEAD LINKS ", \"wait_s\": 0, \"measured\": {}}", "either this or wait_s"},
    };
    struct chex_machines c;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        OK_STATUS(read_text(bad[i].text, &c), CHEX_E_USAGE, err, bad[i].why);
    OK_STATUS(chex_machines_read("/nowhere", &c, &err), CHEX_E_USAGE, err,
              "--machines: cannot open /nowhere");
    OK_CALL(read_text(HEAD LINKS ", \"comment\": \"ours\", \"measured\": {\"processes\": 4, "
                                 "\"images_per_s\": 600}}",
                      &c));
    OK(c.nodes == 2 && c.node_processes == 4 && c.network.latency_s == 1e-6 &&
           c.several_processes == 4 && near(c.backward_share, 2.0 / 3),
       "a whole description is read");
    OK_CALL(read_text("{\"schema\": 1, \"nodes\": 1, \"processes_a_node\": 1, "
                      "\"images_per_s\": 9}",
                      &c));
}

int main(void) {
    check_formulas();
    check_accumulate();
    check_sync();
    check_audit();
    check_counts();
    check_article();
    dir_make();
    check_files();
    dir_remove();
    return tap_done();
}

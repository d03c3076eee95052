/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured graphs. A part of a step or an inference runs by single launches when its key (part,
 * slot, number of images, addresses) comes for the first time, is captured as a CUDA graph the
 * second time, and is launched as this graph from then on.
 *
 * The number of graphs has a limit, because each takes device memory. Whole batches keep theirs.
 * Short batches, such as the last one of a validation or of an epoch, share the other entries: a
 * new one replaces the one that was used least recently.
 */
#include "base/log.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/dependent.h"
#include "engine/cuda/host/ranges.h"

/* The kernels of a part: those after the first one are dependent launches. Work on the second
 * stream has ended where the part ends. */
static enum chex_status enqueue_part(struct cuda_engine *e, const struct cuda_graph *what,
                                     cuda_enqueue_fn enqueue, struct chex_error *err) {
    if (e->dependents)
        gpu_dependents_begin(e->stream);
    enum chex_status st = enqueue(e, what, err);
    if (st == CHEX_OK)
        st = chex_cuda_join(e, err);
    gpu_dependents_end();
    return st;
}

static struct cuda_graph *find_graph(struct cuda_engine *e, const struct cuda_graph *what) {
    for (int i = 0; i < e->graph_count; i++) {
        struct cuda_graph *g = &e->graphs[i];
        if (g->part == what->part && g->slot == what->slot && g->n == what->n &&
            g->grad == what->grad && g->optim == what->optim && g->clips == what->clips)
            return g;
    }
    return NULL;
}

/* Captures a part. On failure nothing was launched, and g->exec is NULL; the second stream has
 * nothing to wait for. */
static enum chex_status capture(struct cuda_engine *e, struct cuda_graph *g,
                                cuda_enqueue_fn enqueue, struct chex_error *err) {
    cudaGraph_t graph = NULL;
    CHEX_CUDA(cudaStreamBeginCapture(e->stream, cudaStreamCaptureModeThreadLocal));
    enum chex_status st = enqueue_part(e, g, enqueue, err);
    const cudaError_t ended = cudaStreamEndCapture(e->stream, &graph);
    if (st == CHEX_OK && ended != cudaSuccess)
        st = gpu_error(ended, "cudaStreamEndCapture", err);
    if (st == CHEX_OK) {
        const cudaError_t made = cudaGraphInstantiate(&g->exec, graph, 0);
        if (made != cudaSuccess) {
            g->exec = NULL;
            st = gpu_error(made, "cudaGraphInstantiate", err);
        }
    }
    if (graph)
        cudaGraphDestroy(graph);
    if (st != CHEX_OK)
        e->side.used = false;
    return st;
}

static const char *part_name(int part) {
    switch (part) {
    case CUDA_PART_FORWARD: return "forward";
    case CUDA_PART_INFER: return "infer";
    case CUDA_PART_UPDATE: return "update";
    default: return "backward";
    }
}

/* Captures a part; if that fails, once more without dependent launches. False: it cannot be
 * captured, and later parts are not tried. */
static bool capture_or_warn(struct cuda_engine *e, struct cuda_graph *g, cuda_enqueue_fn enqueue) {
    struct chex_error why = {0};
    while (capture(e, g, enqueue, &why) != CHEX_OK) {
        cudaGetLastError(); /* clear the error: it is reported here */
        chex_warn("cuda: %s cannot be captured as a graph: %s; %s, which is slower",
                  part_name(g->part), why.text,
                  e->dependents ? "trying without dependent launches"
                                : "kernels are launched one by one");
        e->no_graphs = !e->dependents;
        if (e->no_graphs)
            return false;
        e->dependents = false;
    }
    return true;
}

/* A part of a batch that is smaller than the engine's. */
static bool is_short(const struct cuda_engine *e, const struct cuda_graph *g) {
    return g->part != CUDA_PART_UPDATE && g->n != e->config.batch;
}

/* An entry for a new key. If all are in use: the one of a short batch that was used least recently.
 * NULL: there is none. A graph that is destroyed while the device runs it is completed first. */
static struct cuda_graph *take_entry(struct cuda_engine *e) {
    struct cuda_graph *oldest = NULL;
    if (e->graph_count < CUDA_GRAPHS)
        return &e->graphs[e->graph_count++];
    for (int i = 0; i < CUDA_GRAPHS; i++) {
        struct cuda_graph *g = &e->graphs[i];
        if (is_short(e, g) && (!oldest || g->used < oldest->used))
            oldest = g;
    }
    if (oldest && oldest->exec)
        cudaGraphExecDestroy(oldest->exec);
    return oldest;
}

static enum chex_status launch(struct cuda_engine *e, const struct cuda_graph *what,
                               cuda_enqueue_fn enqueue, struct chex_error *err) {
    /* A part that waits for other ranks cannot be captured. */
    const bool waits =
        e->config.sync && what->part != CUDA_PART_UPDATE && what->part != CUDA_PART_INFER;
    if (e->no_graphs || waits)
        return enqueue_part(e, what, enqueue, err);
    struct cuda_graph *g = find_graph(e, what);
    if (!g) {
        /* The first run uses single launches: they may load code, which a capture must not. */
        g = take_entry(e);
        if (g) {
            *g = *what;
            g->used = ++e->graph_uses;
        }
        return enqueue_part(e, what, enqueue, err);
    }
    g->used = ++e->graph_uses;
    if (!g->exec && !capture_or_warn(e, g, enqueue))
        return enqueue_part(e, what, enqueue, err);
    CHEX_CUDA(cudaGraphLaunch(g->exec, e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_launch(struct cuda_engine *e, const struct cuda_graph *what,
                                  cuda_enqueue_fn enqueue, struct chex_error *err) {
    cuda_range_begin(part_name(what->part));
    enum chex_status st = launch(e, what, enqueue, err);
    cuda_range_end();
    return st;
}

void chex_cuda_graphs_release(struct cuda_engine *e) {
    for (int i = 0; i < e->graph_count; i++)
        if (e->graphs[i].exec)
            cudaGraphExecDestroy(e->graphs[i].exec);
}

/* path - shortest paths from one point of a planar graph to all others (Forin et al. 1988,
 * section 7.3).
 *
 * The points are those of a grid, joined to their neighbours to the right, below, and to the right
 * below: the graph is planar. Edges have random lengths. Bands of rows belong to the activities in
 * turn. Each activity extends its most promising paths, only in the neighbourhood of a point, and
 * queues extensions that lead to points of others to them. */
#include "app.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const app_kind PATH = {"path", 3072, 1, 2, 16384};

#define BAND 16     /* rows: their lengths, and their distances, take whole pages */
#define AT_ONCE 512 /* extensions between two looks at what others have queued */
#define QUEUE 65536 /* extensions that may be in a queue */
#define NOT_REACHED UINT32_MAX
#define EDGES 3 /* of a point: to the right, below, to the right below */

/* A path to a point that may be the shortest. */
typedef struct extension {
    uint32_t point, distance;
} extension;

/* What others have found for an activity. Its lock is that of the same number. */
typedef struct queue {
    _Atomic uint32_t count;
    _Atomic uint32_t idle; /* its owner has nothing to do */
    _Alignas(APP_PAGE) extension entries[QUEUE];
} queue;

/* How many activities have something to do. Its lock is the last. */
typedef struct working {
    _Alignas(APP_PAGE) _Atomic uint32_t count;
} working;

typedef struct graph {
    uint64_t size, stride; /* points in a row; from row to row */
    const uint8_t (*lengths)[4];
    uint32_t *distances;
    queue *queues;
    working *working;
} graph;

/* What an activity keeps for itself. */
typedef struct own {
    uint64_t *heap; /* distance above, point below */
    size_t used, room;
    extension *out[64]; /* for each other activity, not queued yet */
    size_t outs[64], out_room[64];
    uint64_t extended;
} own;

static uint64_t rows_of(uint64_t size) { return (size + BAND - 1) / BAND * BAND; }
static uint64_t stride_of(uint64_t size) { return (size + 63) / 64 * 64; }

static size_t bytes_of(const app *app) {
    uint64_t points = rows_of(app->size) * stride_of(app->size);
    return 2 * points * 4 + app->activities * sizeof(queue) + sizeof(working);
}

static graph graph_of(const app *app) {
    uint64_t points = rows_of(app->size) * stride_of(app->size);
    uint8_t *at = app->shared;
    graph g = {.size = app->size, .stride = stride_of(app->size), .lengths = (void *)at};
    g.distances = (uint32_t *)(at + points * 4);
    g.queues = (queue *)(at + points * 8);
    g.working = (working *)(g.queues + app->activities);
    return g;
}

static void fill(app *app) {
    graph g = graph_of(app);
    uint8_t (*lengths)[4] = (void *)g.lengths;
    for (uint64_t y = 0; y < g.size; y++) {
        for (uint64_t x = 0; x < g.size; x++) {
            uint64_t random = app_random(app->seed, y * g.size + x);
            for (int edge = 0; edge < EDGES; edge++) {
                lengths[y * g.stride + x][edge] = (uint8_t)(1 +
                                                            (random >> (8 * edge) & 0xff) % 255);
            }
        }
    }
}

static uint32_t owner_of(const app *app, uint64_t y) { return y / BAND % app->activities; }

/* ---- The paths of one activity, the most promising first ---- */

static void push(const app *app, own *own, uint32_t point, uint32_t distance) {
    if (own->used == own->room) {
        own->room = own->room ? 2 * own->room : 1024;
        own->heap = realloc(own->heap, own->room * sizeof *own->heap);
        if (!own->heap) app_fail(app, "there is no memory for %zu paths", own->room);
    }
    uint64_t key = (uint64_t)distance << 32 | point;
    size_t at = own->used++;
    for (; at > 0 && own->heap[(at - 1) / 2] > key; at = (at - 1) / 2)
        own->heap[at] = own->heap[(at - 1) / 2];
    own->heap[at] = key;
}

static extension pop(own *own) {
    uint64_t first = own->heap[0], key = own->heap[--own->used];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= own->used) break;
        if (child + 1 < own->used && own->heap[child + 1] < own->heap[child]) child++;
        if (own->heap[child] >= key) break;
        own->heap[at] = own->heap[child];
        at = child;
    }
    own->heap[at] = key;
    return (extension){(uint32_t)first, (uint32_t)(first >> 32)};
}

/* A path to a point: of this activity's own, or for another. */
static void found(app *app, const graph *g, own *own, uint64_t x, uint64_t y, uint32_t distance) {
    uint32_t point = (uint32_t)(y * g->stride + x), to = owner_of(app, y);
    if (to == app->me) {
        if (distance >= g->distances[point]) return;
        g->distances[point] = distance;
        push(app, own, point, distance);
        return;
    }
    if (own->outs[to] == own->out_room[to]) {
        own->out_room[to] = own->out_room[to] ? 2 * own->out_room[to] : 1024;
        own->out[to] = realloc(own->out[to], own->out_room[to] * sizeof **own->out);
        if (!own->out[to])
            app_fail(app, "there is no memory for %zu extensions", own->out_room[to]);
    }
    own->out[to][own->outs[to]++] = (extension){point, distance};
}

/* Extends a path to all neighbours of its end. */
static void extend(app *app, const graph *g, own *own, extension path) {
    if (path.distance > g->distances[path.point]) return; /* a shorter one was found meanwhile */
    own->extended++;
    uint64_t x = path.point % g->stride, y = path.point / g->stride, at = path.point;
    int right = x + 1 < g->size, below = y + 1 < g->size;
    if (right) found(app, g, own, x + 1, y, path.distance + g->lengths[at][0]);
    if (below) found(app, g, own, x, y + 1, path.distance + g->lengths[at][1]);
    if (right && below) found(app, g, own, x + 1, y + 1, path.distance + g->lengths[at][2]);
    if (x > 0) found(app, g, own, x - 1, y, path.distance + g->lengths[at - 1][0]);
    if (y > 0) found(app, g, own, x, y - 1, path.distance + g->lengths[at - g->stride][1]);
    if (x > 0 && y > 0)
        found(app, g, own, x - 1, y - 1, path.distance + g->lengths[at - g->stride - 1][2]);
}

/* ---- Queues ---- */

/* Queues what was found for another activity, as far as there is room. Who was idle has something
 * to do from then on. */
static void queue_for(app *app, const graph *g, own *own, uint32_t to) {
    queue *queue = &g->queues[to];
    app_lock(app, to);
    uint32_t count = atomic_load(&queue->count),
             more = own->outs[to] < QUEUE - count ? own->outs[to] : QUEUE - count;
    memcpy(queue->entries + count, own->out[to], more * sizeof *queue->entries);
    atomic_store(&queue->count, count + more);
    if (more && atomic_load(&queue->idle)) {
        atomic_store(&queue->idle, 0);
        app_lock(app, app->activities);
        atomic_fetch_add(&g->working->count, 1);
        app_unlock(app, app->activities);
    }
    app_unlock(app, to);
    own->outs[to] -= more;
    memmove(own->out[to], own->out[to] + more, own->outs[to] * sizeof **own->out);
}

/* Takes what others have queued for this activity, and looks whether it is better than what is
 * known. */
static void take_queued(app *app, const graph *g, own *own) {
    queue *queue = &g->queues[app->me];
    if (!atomic_load(&queue->count)) return;
    app_lock(app, app->me);
    uint32_t count = atomic_load(&queue->count);
    for (uint32_t at = 0; at < count; at++) {
        extension path = queue->entries[at];
        if (path.distance >= g->distances[path.point]) continue;
        g->distances[path.point] = path.distance;
        push(app, own, path.point, path.distance);
    }
    atomic_store(&queue->count, 0);
    app_unlock(app, app->me);
}

/* This activity has nothing to do. Whether it has again; if not, nobody has. */
static int is_wanted(app *app, const graph *g) {
    queue *queue = &g->queues[app->me];
    app_lock(app, app->me);
    int queued = atomic_load(&queue->count) > 0;
    if (!queued) {
        atomic_store(&queue->idle, 1);
        app_lock(app, app->activities);
        atomic_fetch_sub(&g->working->count, 1);
        app_unlock(app, app->activities);
    }
    app_unlock(app, app->me);
    for (uint32_t looks = 0; !queued; looks++) {
        queued = atomic_load(&queue->count) > 0;
        if (!queued && !atomic_load(&g->working->count)) return 0;
        if (!queued) app_pause(app, looks);
    }
    return 1;
}

static uint64_t search(app *app, const graph *g) {
    own own = {0};
    atomic_store(&g->queues[app->me].idle, 0);
    for (uint64_t y = 0; y < g->size; y++) {
        if (owner_of(app, y) != app->me) continue;
        for (uint64_t x = 0; x < g->size; x++) g->distances[y * g->stride + x] = NOT_REACHED;
    }
    if (app->me == 0) {
        atomic_store(&g->working->count, app->activities);
        found(app, g, &own, 0, 0, 0);
    }
    app_barrier(app);
    do {
        size_t waiting = 1;
        while (own.used > 0 || waiting > 0) {
            for (int i = 0; i < AT_ONCE && own.used > 0; i++) extend(app, g, &own, pop(&own));
            waiting = 0;
            for (uint32_t to = 0; to < app->activities; to++) {
                if (own.outs[to] > 0) queue_for(app, g, &own, to);
                waiting += own.outs[to];
            }
            take_queued(app, g, &own);
        }
    } while (is_wanted(app, g));
    for (uint32_t to = 0; to < app->activities; to++) free(own.out[to]);
    free(own.heap);
    return own.extended;
}

/* ---- Checking ---- */

/* One edge: no end may be farther than the other and the edge. To which of them it is the last edge
 * of a shortest path. */
static int edge_is_right(const graph *g, uint64_t a, uint64_t b, uint32_t length,
                         uint8_t *reached) {
    uint64_t da = g->distances[a], db = g->distances[b];
    reached[b] |= db == da + length;
    reached[a] |= da == db + length;
    return db <= da + length && da <= db + length;
}

/* Distances are the shortest if and only if the first is 0, no edge makes one shorter, and each
 * other point is reached by an edge from a nearer one: lengths are positive. No search is needed to
 * see that. */
static int is_shortest(const app *app, const graph *g) {
    uint8_t *reached = app_take(app, rows_of(g->size) * g->stride);
    memset(reached, 0, rows_of(g->size) * g->stride);
    int right = g->distances[0] == 0;
    reached[0] = 1;
    for (uint64_t y = 0; y < g->size; y++) {
        for (uint64_t x = 0; x < g->size; x++) {
            uint64_t at = y * g->stride + x;
            int next = x + 1 < g->size, below = y + 1 < g->size;
            if (next) right &= edge_is_right(g, at, at + 1, g->lengths[at][0], reached);
            if (below) right &= edge_is_right(g, at, at + g->stride, g->lengths[at][1], reached);
            if (next && below)
                right &= edge_is_right(g, at, at + g->stride + 1, g->lengths[at][2], reached);
        }
    }
    for (uint64_t at = 0; at < g->size * g->stride; at++)
        right &= at % g->stride >= g->size || reached[at];
    free(reached);
    return right;
}

int main(int argc, char **argv) {
    app app;
    uint64_t extended = 0, digest = 0;
    char more[96];
    app_arguments(&app, &PATH, argc, argv);
    app_begin(&app, bytes_of(&app), app.activities + 1, fill);
    graph g = graph_of(&app);
    app_start(&app);
    for (uint64_t step = 0; step < app.steps; step++) {
        if (step > 0) app_barrier(&app);
        extended += search(&app, &g);
    }
    app_stop(&app);
    int length = snprintf(more, sizeof more, ", \"extended\": %llu", (unsigned long long)extended);
    if (app.me > 0) app_report(&app, 1, more);
    for (uint64_t at = 0; at < g.size * g.size; at++) {
        digest = app_digest(digest, g.distances[at / g.size * g.stride + at % g.size]);
    }
    snprintf(more + length, sizeof more - length, ", \"digest\": \"%016llx\"",
             (unsigned long long)digest);
    app_report(&app, is_shortest(&app, &g), more);
}

/* locus - a router for standard cells, after LocusRoute (Rose 1988; Forin et al. 1988,
 * section 7.3).
 *
 * Wires join two pins each, which lie in channels between rows of cells. The cost array has for
 * each column and channel how many wires pass there. A wire is routed by looking at all routes with
 * at most two bends between its pins, and taking the one whose cells are cheapest; then it counts
 * in the array. In later iterations each wire is taken out and routed anew.
 *
 * Activities take some wires at a time. They look at the array as it is, and change it under locks
 * of its regions: some columns each, which are whole pages. */
#include "app.h"

#include <stdlib.h>
#include <string.h>

static const app_kind LOCUS = {"locus", 4096, 5, 64,
                               65536}; /* columns, and as many wires; iterations */

#define CHANNELS 16
#define REGION 512  /* columns */
#define AT_ONCE 16  /* wires */
#define LONGEST 900 /* columns that a wire spans */

typedef struct wire {
    uint32_t x1, x2, c1, c2; /* pins: columns, x1 <= x2, and channels */
} wire;

/* A route with two bends: along channel c1 to column at, along that column, along channel c2
 * (ALONG), or along column x1 to channel at, along that channel, along column x2 (ACROSS). */
enum { NONE, ALONG, ACROSS };

typedef struct route {
    uint16_t kind, at;
} route;

typedef struct circuit {
    uint64_t columns, wires;
    uint32_t *cost; /* of channel c in column x: cost[x * CHANNELS + c] */
    const wire *wire;
    route *route;
    uint64_t
        *next; /* the first wire that nobody has taken in this iteration; its lock is the last */
} circuit;

/* What is done with the cells of a route. */
typedef struct visit {
    uint32_t *cost;
    int32_t add;       /* to each */
    uint64_t sum;      /* of what they were */
    uint64_t from, to; /* in these columns alone */
} visit;

static uint64_t regions_of(uint64_t columns) { return (columns + REGION - 1) / REGION; }
static size_t cost_bytes(uint64_t columns) {
    return regions_of(columns) * REGION * CHANNELS * sizeof(uint32_t);
}

static size_t bytes_of(uint64_t columns) {
    return cost_bytes(columns) + app_pages(columns * sizeof(wire)) +
           app_pages(columns * sizeof(route)) + APP_PAGE;
}

static circuit circuit_of(const app *app) {
    circuit c = {.columns = app->size, .wires = app->size, .cost = (uint32_t *)app->shared};
    uint8_t *at = app->shared + cost_bytes(c.columns);
    c.wire = (wire *)at;
    c.route = (route *)(at += app_pages(c.wires * sizeof(wire)));
    c.next = (uint64_t *)(at + app_pages(c.wires * sizeof(route)));
    return c;
}

static void fill(app *app) {
    circuit c = circuit_of(app);
    for (uint64_t n = 0; n < c.wires; n++) {
        uint64_t random = app_random(app->seed, n),
                 most = c.columns - 1 < LONGEST ? c.columns - 1 : LONGEST;
        uint64_t length = 1 + (random >> 32) % most;
        uint64_t x1 = app_random(app->seed + 1, n) % (c.columns - length);
        ((wire *)c.wire)[n] = (wire){x1, x1 + length, random % CHANNELS, (random >> 8) % CHANNELS};
    }
}

/* ---- Routes ---- */

static inline __attribute__((always_inline)) void cell(visit *v, uint64_t x, uint64_t c) {
    uint32_t *cost = &v->cost[x * CHANNELS + c];
    uint32_t was = __atomic_load_n(cost, __ATOMIC_RELAXED); /* who looks at routes has no lock */
    v->sum += was;
    if (v->add) __atomic_store_n(cost, was + v->add, __ATOMIC_RELAXED);
}

/* Columns from one to another, the end not included, of one channel. */
static inline __attribute__((always_inline)) void columns(visit *v, uint64_t from, uint64_t end,
                                                          uint64_t c) {
    if (from < v->from) from = v->from;
    if (end > v->to) end = v->to;
    for (uint64_t x = from; x < end; x++) cell(v, x, c);
}

/* Channels between two, both included, of one column. */
static inline __attribute__((always_inline)) void channels(visit *v, uint64_t x, uint64_t c1,
                                                           uint64_t c2) {
    if (x < v->from || x >= v->to) return;
    for (uint64_t c = c1 < c2 ? c1 : c2, last = c1 < c2 ? c2 : c1; c <= last; c++) cell(v, x, c);
}

/* Each cell of a route once. */
static inline __attribute__((always_inline)) void follow(visit *v, const wire *w, route r) {
    if (r.kind == ALONG) {
        columns(v, w->x1, r.at, w->c1);
        channels(v, r.at, w->c1, w->c2);
        columns(v, (uint64_t)r.at + 1, (uint64_t)w->x2 + 1, w->c2);
    } else {
        channels(v, w->x1, w->c1, r.at);
        columns(v, (uint64_t)w->x1 + 1, w->x2, r.at);
        channels(v, w->x2, r.at, w->c2);
    }
}

static inline void look_at(uint32_t *cost, const wire *w, route r, uint64_t *least, route *best) {
    visit v = {cost, 0, 0, 0, UINT64_MAX};
    follow(&v, w, r);
    if (v.sum >= *least) return;
    *least = v.sum;
    *best = r;
}

/* The cheapest route, as the array is now. */
static route cheapest(uint32_t *cost, const wire *w) {
    uint64_t least = UINT64_MAX;
    route best = {NONE, 0};
    for (uint32_t x = w->x1; x <= w->x2; x++)
        look_at(cost, w, (route){ALONG, (uint16_t)x}, &least, &best);
    for (uint32_t c = 0; c < CHANNELS; c++)
        look_at(cost, w, (route){ACROSS, (uint16_t)c}, &least, &best);
    return best;
}

/* ---- Activities ---- */

/* Counts a route in the array, or takes it out, region by region. */
static void count_route(app *app, const circuit *c, const wire *w, route r, int32_t add) {
    for (uint64_t region = w->x1 / REGION; region <= w->x2 / REGION; region++) {
        visit v = {c->cost, add, 0, region * REGION, (region + 1) * REGION};
        app_lock(app, region);
        follow(&v, w, r);
        app_unlock(app, region);
    }
}

static void route_all(app *app, const circuit *c) {
    for (;;) {
        uint32_t lock = regions_of(c->columns);
        app_lock(app, lock);
        uint64_t first = *c->next;
        *c->next = first + AT_ONCE;
        app_unlock(app, lock);
        if (first >= c->wires) return;
        for (uint64_t n = first; n < first + AT_ONCE && n < c->wires; n++) {
            if (c->route[n].kind != NONE) count_route(app, c, &c->wire[n], c->route[n], -1);
            c->route[n] = cheapest(c->cost, &c->wire[n]);
            count_route(app, c, &c->wire[n], c->route[n], 1);
        }
    }
}

/* ---- Checking ---- */

/* Wires that share cells cost each other: the sum of squares. */
static uint64_t cost_of(const uint32_t *cost, uint64_t columns) {
    uint64_t sum = 0;
    for (uint64_t at = 0; at < columns * CHANNELS; at++) sum += (uint64_t)cost[at] * cost[at];
    return sum;
}

/* What one activity alone makes of the same wires. */
static uint64_t sequential_cost(const app *app, const circuit *c) {
    uint32_t *cost = app_take(app, cost_bytes(c->columns));
    route *routes = app_take(app, c->wires * sizeof *routes);
    memset(cost, 0, cost_bytes(c->columns));
    for (uint64_t step = 0; step < app->steps; step++) {
        for (uint64_t n = 0; n < c->wires; n++) {
            visit out = {cost, -1, 0, 0, UINT64_MAX}, in = {cost, 1, 0, 0, UINT64_MAX};
            if (step > 0) follow(&out, &c->wire[n], routes[n]);
            routes[n] = cheapest(cost, &c->wire[n]);
            follow(&in, &c->wire[n], routes[n]);
        }
    }
    uint64_t sum = cost_of(cost, c->columns);
    free(routes);
    free(cost);
    return sum;
}

/* Whether the array is the sum of the routes, each of which joins its pins. Each cell of a route is
 * found by stepping from pin to pin, so that a mistake of follow() shows. */
static int is_sum_of_routes(const app *app, const circuit *c) {
    uint32_t *sum = app_take(app, cost_bytes(c->columns));
    memset(sum, 0, cost_bytes(c->columns));
    int right = 1;
    for (uint64_t n = 0; n < c->wires; n++) {
        const wire *w = &c->wire[n];
        route r = c->route[n];
        uint32_t turn_x = r.kind == ALONG ? r.at : w->x1, turn_c = r.kind == ALONG ? w->c1 : r.at;
        uint32_t via[4][2] = {{w->x1, w->c1},
                              {turn_x, turn_c},
                              {r.kind == ALONG ? r.at : w->x2, r.kind == ALONG ? w->c2 : r.at},
                              {w->x2, w->c2}};
        right &= r.kind != NONE && turn_x >= w->x1 && turn_x <= w->x2 && turn_c < CHANNELS;
        if (!right) break;
        uint32_t x = w->x1, ch = w->c1;
        sum[x * CHANNELS + ch]++;
        for (int leg = 1; leg < 4; leg++) {
            while (x != via[leg][0] || ch != via[leg][1]) {
                x += x < via[leg][0];
                ch += (ch < via[leg][1]) - (ch > via[leg][1]);
                sum[x * CHANNELS + ch]++;
            }
        }
    }
    right = right && !memcmp(sum, c->cost, cost_bytes(c->columns));
    free(sum);
    return right;
}

int main(int argc, char **argv) {
    app app;
    app_arguments(&app, &LOCUS, argc, argv);
    app_begin(&app, bytes_of(app.size), regions_of(app.size) + 1, fill);
    circuit c = circuit_of(&app);
    app_start(&app);
    for (uint64_t step = 0; step < app.steps; step++) {
        if (app.me == 0) *c.next = 0;
        app_barrier(&app);
        route_all(&app, &c);
        app_barrier(&app);
    }
    app_stop(&app);
    if (app.me > 0) app_report(&app, 1, "");
    uint64_t cost = cost_of(c.cost, c.columns), sequential = sequential_cost(&app, &c);
    int is_sum = is_sum_of_routes(&app, &c), is_good = (double)cost <= 1.03 * (double)sequential;
    char more[160];
    snprintf(more, sizeof more,
             ", \"wires\": %llu, \"cost\": %llu, \"sequential_cost\": %llu, \"sum_of_routes\": %s",
             (unsigned long long)c.wires, (unsigned long long)cost, (unsigned long long)sequential,
             is_sum ? "true" : "false");
    app_report(&app, is_sum && is_good, more);
}

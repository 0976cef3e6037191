/* mp3d - particles that fly and collide, after Mp3d (McDonald 1988; Forin et al. 1988,
 * section 7.3).
 *
 * Particles belong to activities for good, wherever they are; cells belong to nobody. In each step
 * an activity moves its particles, each of which then enters its cell: if another waits there in
 * this step, the two collide, whoever's they are. Cells are guarded by locks of regions. The box is
 * periodic, and collisions keep momentum and energy. */
#define _DEFAULT_SOURCE
#include "app.h"

#include <math.h>
#include <stdlib.h>

static const app_kind MP3D = {"mp3d", 24576, 500, 512, 1 << 24}; /* particles; steps */

#define SIDE 16    /* cells along each side of the box */
#define REGION 256 /* cells: those of a page */
#define CELLS (SIDE * SIDE * SIDE)
#define REGIONS (CELLS / REGION)
#define UNIT 512 /* particles: their places, and their velocities, take whole pages */
#define STEP_TIME 0.01

typedef struct vector {
    double x, y, z;
} vector;

typedef struct cell {
    uint32_t step,
        waiting; /* the particle that waits there, if it came in this step (they count from 1) */
    uint64_t entered; /* particles, in all steps */
} cell;

typedef struct box {
    uint64_t particles;
    vector *place, *velocity; /* a place is written by its owner alone; a velocity also under the
                                 lock of its cell */
    cell *cells;
    vector *momentum; /* at first; then the energy */
} box;

static uint64_t rounded(uint64_t particles) { return (particles + UNIT - 1) / UNIT * UNIT; }

static size_t bytes_of(uint64_t particles) {
    return 2 * rounded(particles) * sizeof(vector) + CELLS * sizeof(cell) + APP_PAGE;
}

static box box_of(const app *app) {
    box b = {.particles = app->size, .place = (vector *)app->shared};
    b.velocity = b.place + rounded(b.particles);
    b.cells = (cell *)(b.velocity + rounded(b.particles));
    b.momentum = (vector *)(b.cells + CELLS);
    return b;
}

static double unit_of(uint64_t random) { return (double)(random >> 11) * 0x1p-53; }

/* Momentum of all particles, each of mass 1, and their energy in *energy. */
static vector momentum_of(const box *b, double *energy) {
    vector sum = {0, 0, 0};
    *energy = 0;
    for (uint64_t n = 0; n < b->particles; n++) {
        vector v = b->velocity[n];
        sum = (vector){sum.x + v.x, sum.y + v.y, sum.z + v.z};
        *energy += (v.x * v.x + v.y * v.y + v.z * v.z) / 2;
    }
    return sum;
}

/* Particles all over the box, which fly in one direction, and in all. */
static void fill(app *app) {
    box b = box_of(app);
    for (uint64_t n = 0; n < b.particles; n++) {
        double r[6];
        for (int i = 0; i < 6; i++) r[i] = unit_of(app_random(app->seed + i, n));
        b.place[n] = (vector){r[0], r[1], r[2]};
        b.velocity[n] = (vector){r[3] + 0.5, r[4] - 0.5, r[5] - 0.5};
    }
    b.momentum[0] = momentum_of(&b, &b.momentum[1].x);
}

/* ---- Steps ---- */

static double wrapped(double at) {
    at -= floor(at);
    return at < 1 ? at : 0; /* a little below 0 is rounded to 1 */
}

static uint32_t cell_at(vector place) {
    return ((uint32_t)(place.x * SIDE) * SIDE + (uint32_t)(place.y * SIDE)) * SIDE +
           (uint32_t)(place.z * SIDE);
}

/* Two particles fly apart as fast as they met, in any direction. */
static void collide(const app *app, vector *a, vector *b, uint64_t random) {
    vector half = {(a->x - b->x) / 2, (a->y - b->y) / 2, (a->z - b->z) / 2};
    vector middle = {(a->x + b->x) / 2, (a->y + b->y) / 2, (a->z + b->z) / 2};
    double speed = sqrt(half.x * half.x + half.y * half.y + half.z * half.z);
    double up = 2 * unit_of(app_random(app->seed + 6, random)) - 1,
           turn = 2 * M_PI * unit_of(app_random(app->seed + 7, random));
    double flat = sqrt(1 - up * up);
    half = (vector){speed * flat * cos(turn), speed * flat * sin(turn), speed * up};
    *a = (vector){middle.x + half.x, middle.y + half.y, middle.z + half.z};
    *b = (vector){middle.x - half.x, middle.y - half.y, middle.z - half.z};
}

/* This activity's particles by the region that they are in: the first of each, and the next of each
 * particle. */
typedef struct lists {
    uint64_t from, end, first[REGIONS], *next;
    uint32_t *cell;
} lists;

#define LAST UINT64_MAX

static void move_all(const box *b, lists *l) {
    for (int region = 0; region < REGIONS; region++) l->first[region] = LAST;
    for (uint64_t n = l->from; n < l->end; n++) {
        vector at = b->place[n], v = b->velocity[n];
        at = (vector){wrapped(at.x + v.x * STEP_TIME), wrapped(at.y + v.y * STEP_TIME),
                      wrapped(at.z + v.z * STEP_TIME)};
        b->place[n] = at;
        uint32_t cell = cell_at(at), region = cell / REGION;
        l->cell[n - l->from] = cell;
        l->next[n - l->from] = l->first[region];
        l->first[region] = n;
    }
}

/* Particles enter the cells of one region, whose lock is held. How many collided. */
static uint64_t enter_all(const app *app, const box *b, const lists *l, uint32_t region,
                          uint32_t step) {
    uint64_t collisions = 0;
    for (uint64_t n = l->first[region]; n != LAST; n = l->next[n - l->from]) {
        cell *cell = &b->cells[l->cell[n - l->from]];
        cell->entered++;
        if (cell->step == step) {
            collide(app, &b->velocity[n], &b->velocity[cell->waiting], n * app->steps + step);
            cell->step = 0;
            collisions++;
        } else {
            cell->step = step;
            cell->waiting = (uint32_t)n;
        }
    }
    return collisions;
}

static uint64_t fly(app *app, const box *b) {
    lists l = {.from = app_share(app, app->me, b->particles, UNIT),
               .end = app_share(app, app->me + 1, b->particles, UNIT)};
    l.next = app_take(app, (l.end - l.from) * sizeof *l.next);
    l.cell = app_take(app, (l.end - l.from) * sizeof *l.cell);
    uint64_t collisions = 0;
    for (uint32_t step = 1; step <= app->steps; step++) {
        move_all(b, &l);
        for (uint32_t i = 0; i < REGIONS; i++) {
            /* Each activity begins with another region, so that they do not follow each other from
             * lock to lock. */
            uint32_t region = (i + app->me * REGIONS / app->activities) % REGIONS;
            if (l.first[region] == LAST) continue;
            app_lock(app, region);
            collisions += enter_all(app, b, &l, region, step);
            app_unlock(app, region);
        }
        app_barrier(app);
    }
    free(l.cell);
    free(l.next);
    return collisions;
}

/* ---- Checking ---- */

static int is_near(double a, double b, double scale) { return fabs(a - b) <= 1e-9 * scale; }

/* Whether each particle is in the box, and has entered a cell in each step. */
static int has_all_particles(const app *app, const box *b) {
    uint64_t entered = 0;
    int right = 1;
    for (uint32_t n = 0; n < CELLS; n++) entered += b->cells[n].entered;
    for (uint64_t n = 0; n < b->particles; n++) {
        vector at = b->place[n];
        right &= at.x >= 0 && at.x < 1 && at.y >= 0 && at.y < 1 && at.z >= 0 && at.z < 1;
    }
    return right && entered == b->particles * app->steps;
}

int main(int argc, char **argv) {
    app app;
    app_arguments(&app, &MP3D, argc, argv);
    app_begin(&app, bytes_of(app.size), REGIONS, fill);
    box b = box_of(&app);
    app_start(&app);
    uint64_t collisions = fly(&app, &b);
    app_stop(&app);
    char more[200];
    int length = snprintf(more, sizeof more, ", \"collisions\": %llu",
                          (unsigned long long)collisions);
    if (app.me > 0) app_report(&app, 1, more);
    double energy, scale = (double)b.particles;
    vector now = momentum_of(&b, &energy), first = b.momentum[0];
    int momentum = is_near(now.x, first.x, scale) && is_near(now.y, first.y, scale) &&
                   is_near(now.z, first.z, scale);
    int keeps_energy = is_near(energy, b.momentum[1].x, scale),
        particles = has_all_particles(&app, &b);
    snprintf(more + length, sizeof more - length,
             ", \"particles\": %s, \"momentum\": %s, \"energy\": %s", particles ? "true" : "false",
             momentum ? "true" : "false", keeps_energy ? "true" : "false");
    app_report(&app,
               particles && momentum && keeps_energy && (collisions > 0 || app.activities > 1),
               more);
}

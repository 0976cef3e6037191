/* app.h - what the four applications have in common: their arguments, the memory that their
 * activities share, how they wait for each other, what they count and what they print.
 *
 *     matrix --memory plain --activities 2                  two processes on plain memory
 *     matrix --memory /lab/matrix --activities 2            two processes of one host
 *     matrix --memory /lab/matrix --activities 2 --index 0  on one host, and
 *     matrix --memory /lab/matrix --activities 2 --index 1  on another
 *
 * An activity is a process. All of them run the same program, and nothing in it depends on where
 * the others are. Each prints one line of JSON when it is done; what fails is said in one line on
 * standard error, and the exit code is 1. */
#ifndef APPLICATIONS_APP_H
#define APPLICATIONS_APP_H

#include "sync.h"

#include <stdint.h>
#include <stdio.h>

#define APP_PAGE 4096

/* What an application is, before its arguments are read. */
typedef struct app_kind {
    const char *name;
    uint64_t size, steps; /* unless the arguments say else */
    uint64_t least, most; /* sizes that can be */
} app_kind;

struct app_header;

typedef struct app {
    const app_kind *kind;
    const char *memory; /* "plain", or the name of an object */
    int scheduler;      /* CH_STRICT, CH_CENTRAL, CH_LOCAL */
    enum sync_kind sync_kind;
    uint32_t activities, me;
    int alone;   /* only this activity is started here */
    int touch;   /* all memory is touched before the time counts */
    int stepped; /* says when it is ready and when it is done, and waits for a line each time */
    uint64_t size, steps, seed;
    int deadline_ms;
    uint64_t page_size; /* of the object: what goes from host to host at once */
    uint8_t *shared; /* the application's own memory; page-aligned */
    size_t bytes;
    /* not for applications */
    struct app_header *header;
    sync_state *sync;
    size_t whole_bytes;
    double begun, processor_begun, elapsed, processor;
    uint64_t barriers, locks, faults, counted[2];
    int64_t pause_end_ms;
} app;

/* Reads the arguments. */
void app_arguments(app *app, const app_kind *kind, int argc, char **argv);

/* Makes so much memory, zero, that all activities share, and so many locks. Returns once in each
 * activity, in a process of its own. In activity 0 before the others: it calls fill, by which it
 * puts into the memory what they begin with. */
void app_begin(app *app, size_t bytes, uint32_t locks, void (*fill)(struct app *));

/* The time counts from here on, when all activities are here, ... */
void app_start(app *app);
/* ... and until all activities are here. */
void app_stop(app *app);

void app_barrier(app *app);
void app_lock(app *app, uint32_t lock);
void app_unlock(app *app, uint32_t lock);
/* Between two looks at a word that another activity will change; looks counts them. No longer than
 * the deadline. */
void app_pause(app *app, uint32_t looks);

/* The first row, point or part of an activity's share of so many, and the end of it. Shares begin
 * at multiples of unit, so that no page holds parts of two. */
uint64_t app_share(const app *app, uint32_t activity, uint64_t all, uint64_t unit);

/* Prints the line of this activity, with more that the application knows (JSON members, "" or each
 * with a comma before it), and ends: with 0 if right is not 0. Only activity 0 knows what is right;
 * the others say 1. */
_Noreturn void app_report(app *app, int right, const char *more);

/* Says what is wrong, and ends with 1. */
_Noreturn void app_fail(const app *app, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* malloc() that does not fail. */
void *app_take(const app *app, size_t bytes);

/* Rounds up to whole pages. */
static inline size_t app_pages(size_t bytes) {
    return (bytes + APP_PAGE - 1) & ~(size_t)(APP_PAGE - 1);
}

/* A number that looks like any other, and is the same for the same arguments (SplitMix64). */
static inline uint64_t app_random(uint64_t seed, uint64_t number) {
    uint64_t z = seed * 0xd1342543de82ef95u + (number + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One more number into a digest, which begins with 0. */
static inline uint64_t app_digest(uint64_t digest, uint64_t number) {
    return (digest ^ number) * 0x100000001b3u + 0x9e3779b97f4a7c15u;
}

#endif

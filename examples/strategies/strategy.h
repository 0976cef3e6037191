/* What the strategies have in common: an object of explicit coherence, mapped whole, and a limit to
 * waiting.
 *
 *    cc -O2 examples/strategies/ring.c -Iinclude -Ltarget/release -lcommonhold -o ring
 *
 * All that a strategy does it does with four calls of the Sprite paper (Shirriff, section 6): map,
 * sync, lock and incore. */
#ifndef STRATEGY_H
#define STRATEGY_H
#include <commonhold.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static inline void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, ch_last_error());
    _exit(1); /* what was not synced is not to be taken for a result */
}

static double given_up_at; /* on the monotonic clock, seconds */

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Sleeps for a moment, unless it has been waited for too long. */
static inline void wait_for(const char *what) {
    if (now() > given_up_at) {
        fprintf(stderr, "waited too long for %s\n", what);
        _exit(2);
    }
    usleep(500);
}

/* The object of that name, made by whoever comes first, as memory. */
static inline unsigned char *shared(const char *name, size_t pages, double patience_s) {
    given_up_at = now() + patience_s;
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = pages * PAGE;
    options.coherence = CH_EXPLICIT;
    options.mode = 0666;
    ch_object *object;
    for (;;) {
        if ((object = ch_open(name, CH_READ | CH_WRITE))) break;
        if (errno == ENOENT && (object = ch_create(name, &options))) break;
        if (errno != EEXIST && errno != ENOENT && errno != ECONNREFUSED) fail(name);
        wait_for(name);
    }
    void *memory = ch_map(NULL, pages * PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    if (!memory || ch_close(object)) fail("map");
    return memory;
}
#endif

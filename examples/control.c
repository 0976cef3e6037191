/* A control loop of 1 kHz whose state others watch.
 *
 *     sudo sysctl vm.nr_hugepages=8
 *     commonhold host start
 *     cc -O2 examples/control.c -Iinclude -Ltarget/release -lcommonhold -o control
 *     LD_LIBRARY_PATH=target/release ./control 60 &
 *     python python/examples/plot_state.py
 *
 * Each millisecond the loop moves a mass on a spring to where it should be, and writes what it did
 * into a wired object, in which no touch is a page fault. Whoever watches maps the same memory, and
 * costs the loop nothing: the state has a count that is odd while it is written, so that a reader
 * knows when to read again.
 *
 * At the end the loop says how late it was, and fails if it had a page fault. */
#include <commonhold.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

/* python/examples/plot_state.py has the same. */
struct state {
    _Atomic uint64_t count; /* odd: it is being written */
    uint64_t step;
    double target, position, velocity, late_us;
};

static int fail(const char *what) {
    fprintf(stderr, "control: %s: %s\n", what, ch_last_error());
    return 1;
}

static double seconds_between(struct timespec from, struct timespec to) {
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* One step of a controller with a proportional and a damping part. */
static void control(struct state *state, uint64_t step, double late_us) {
    const double dt = 0.001, stiffness = 40, damping = 9, spring = 4;
    uint64_t count = atomic_load_explicit(&state->count, memory_order_relaxed);
    double target = step / 1000 % 2 ? 1 : -1; /* the other side, each second */
    double force = stiffness * (target - state->position) - damping * state->velocity;
    atomic_store_explicit(&state->count, count + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    state->step = step;
    state->target = target;
    state->velocity += dt * (force - spring * state->position);
    state->position += dt * state->velocity;
    state->late_us = late_us;
    atomic_store_explicit(&state->count, count + 2, memory_order_release);
}

int main(int count, char **words) {
    uint64_t steps = (uint64_t)(1000 * (count > 1 ? atof(words[1]) : 10));
    const char *name = count > 2 ? words[2] : "/robot/state";
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = sizeof(struct state);
    options.translation = CH_WIRED;
    ch_object *object = ch_create(name, &options);
    if (!object) return fail("creating the state");
    struct state *state = ch_map(NULL, sizeof *state, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    if (!state) return fail("mapping the state");
    /* The program's own memory, too. */
    if (mlockall(MCL_CURRENT)) perror("control: memory of this program may be paged out");

    struct timespec next, now;
    struct rusage before, after;
    double worst_us = 0;
    clock_gettime(CLOCK_MONOTONIC, &next);
    getrusage(RUSAGE_SELF, &before);
    for (uint64_t step = 0; step < steps; step++) {
        next.tv_nsec += 1000000;
        if (next.tv_nsec >= 1000000000L) next.tv_sec++, next.tv_nsec -= 1000000000L;
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) continue;
        clock_gettime(CLOCK_MONOTONIC, &now);
        double late_us = 1e6 * seconds_between(next, now);
        if (late_us > worst_us) worst_us = late_us;
        control(state, step, late_us);
    }
    getrusage(RUSAGE_SELF, &after);
    long faults = after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt;
    printf("%llu steps, at worst %.0f us late, %ld page faults\n", (unsigned long long)steps, worst_us, faults);
    if (ch_unmap(state, sizeof *state) || ch_close(object) || ch_remove(name)) return fail("removing the state");
    return faults != 0;
}

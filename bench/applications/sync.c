/* See sync.h. */
#define _GNU_SOURCE
#include "sync.h"

#include <commonhold.h>
#include <commonhold_sync.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PAGE 4096

/* A word that has its page for itself: who waits for it takes nothing else away from its writer. */
typedef struct word {
    _Alignas(PAGE) _Atomic uint32_t value;
} word;

struct sync_state {
    sync_options options;
    uint32_t round;
    /* SYNC_MEMORY: how many have arrived, the number of the round, and a lock each. */
    word *arrived, *rounds, *locks;
    /* SYNC_NAMED */
    ch_barrier *barrier;
    ch_mutex **mutexes; /* the first is the object, the others are further ones of it */
};

size_t sync_bytes(uint32_t locks) { return (2 + (size_t)locks) * sizeof(word); }

/* ---- Waiting for a word ---- */

/* Times that a word is looked at before the processor is given to somebody else. */
#define LOOKS 200
/* Nanoseconds of the first sleep, and of the longest. */
#define SHORTEST_SLEEP 20000
#define LONGEST_SLEEP 500000

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int sync_pause(const sync_state *sync, uint32_t looks, int64_t *end_ms) {
    if (looks < LOOKS) {
        __builtin_ia32_pause();
        return 0;
    }
    if (!*end_ms) *end_ms = now_ms() + sync->options.deadline_ms;
    long ns = (long)(looks - LOOKS + 1) * SHORTEST_SLEEP;
    struct timespec sleep = {0, ns < LONGEST_SLEEP ? ns : LONGEST_SLEEP};
    nanosleep(&sleep, NULL); /* a signal makes it shorter, and the word is looked at again */
    return now_ms() < *end_ms ? 0 : ETIMEDOUT;
}

static int memory_barrier(sync_state *sync) {
    uint32_t round = sync->round++;
    if (atomic_fetch_add(&sync->arrived->value, 1) + 1 == sync->options.activities) {
        atomic_store(&sync->arrived->value, 0);
        atomic_store(&sync->rounds->value, round + 1);
        return 0;
    }
    int64_t end = 0;
    for (uint32_t looks = 0; atomic_load(&sync->rounds->value) == round; looks++) {
        int error = sync_pause(sync, looks, &end);
        if (error) return error;
    }
    return 0;
}

static int memory_lock(sync_state *sync, uint32_t lock) {
    _Atomic uint32_t *value = &sync->locks[lock].value;
    int64_t end = 0;
    for (uint32_t looks = 0; atomic_exchange(value, 1);) {
        /* To read keeps a copy here until the owner writes. To exchange would take the page each
         * time. */
        while (atomic_load(value)) {
            int error = sync_pause(sync, looks++, &end);
            if (error) return error;
        }
    }
    return 0;
}

/* ---- Either kind ---- */

static int open_named(sync_state *sync) {
    const sync_options *options = &sync->options;
    char name[1100];
    int flags = options->create ? CH_SYNC_CREATE | CH_SYNC_EXCLUSIVE | CH_SYNC_HOSTS : 0;
    snprintf(name, sizeof name, "%s.barrier", options->name);
    sync->barrier = ch_barrier_open(name, flags, 0600, 1, options->activities);
    if (!sync->barrier) return -1;
    sync->mutexes = calloc(options->locks ? options->locks : 1, sizeof *sync->mutexes);
    if (!sync->mutexes) return -1;
    snprintf(name, sizeof name, "%s.locks", options->name);
    for (uint32_t lock = 0; lock < options->locks; lock++) {
        sync->mutexes[lock] = lock ? ch_mutex_at(sync->mutexes[0], lock)
                                   : ch_mutex_open(name, flags, 0600, options->locks);
        if (!sync->mutexes[lock]) return -1;
    }
    return 0;
}

sync_state *sync_open(const sync_options *options) {
    sync_state *sync = calloc(1, sizeof *sync);
    if (!sync) return NULL;
    sync->options = *options;
    if (options->kind == SYNC_MEMORY) {
        sync->arrived = options->memory;
        sync->rounds = sync->arrived + 1;
        sync->locks = sync->arrived + 2;
    } else if (open_named(sync)) {
        int error = errno;
        sync_close(sync, 0);
        errno = error;
        return NULL;
    }
    return sync;
}

int sync_close(sync_state *sync, int remove) {
    const sync_options *options = &sync->options;
    int failed = 0;
    if (sync->barrier) failed |= ch_barrier_close(sync->barrier);
    for (uint32_t lock = 0; sync->mutexes && lock < options->locks; lock++) {
        if (sync->mutexes[lock]) failed |= ch_mutex_close(sync->mutexes[lock]);
    }
    if (remove && options->kind == SYNC_NAMED) {
        char name[1100];
        snprintf(name, sizeof name, "%s.barrier", options->name);
        failed |= ch_remove(name);
        snprintf(name, sizeof name, "%s.locks", options->name);
        if (options->locks) failed |= ch_remove(name);
    }
    free(sync->mutexes);
    free(sync);
    return failed;
}

int sync_barrier(sync_state *sync) {
    if (sync->options.kind == SYNC_MEMORY) return memory_barrier(sync);
    int error = ch_barrier_timedwait(sync->barrier, sync->options.deadline_ms);
    return error == CH_BARRIER_LAST ? 0 : error;
}

int sync_lock(sync_state *sync, uint32_t lock) {
    if (sync->options.kind == SYNC_MEMORY) return memory_lock(sync, lock);
    return ch_mutex_timedlock(sync->mutexes[lock], sync->options.deadline_ms);
}

int sync_unlock(sync_state *sync, uint32_t lock) {
    if (sync->options.kind == SYNC_NAMED) return ch_mutex_unlock(sync->mutexes[lock]);
    atomic_store_explicit(&sync->locks[lock].value, 0, memory_order_release);
    return 0;
}

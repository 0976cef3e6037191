/* sync.h - how the activities of an application wait for each other: a barrier and some locks, of
 * one of two kinds.
 *
 *   memory  words in the shared memory itself, which are looked at again and again: as the programs
 * of Forin et al. did. It works wherever the memory does. named   locks and barriers with names
 * (commonhold_sync.h).
 *
 * The kind is chosen when the program starts. Functions that return int return 0 or an error
 * number. */
#ifndef APPLICATIONS_SYNC_H
#define APPLICATIONS_SYNC_H

#include <stddef.h>
#include <stdint.h>

enum sync_kind { SYNC_MEMORY, SYNC_NAMED };

typedef struct sync_state sync_state;

typedef struct sync_options {
    enum sync_kind kind;
    void *memory;        /* sync_bytes() of it, zero at first: for SYNC_MEMORY */
    const char *name;    /* names of SYNC_NAMED begin so */
    uint32_t activities; /* how many the barrier waits for */
    uint32_t locks;
    int create;      /* 1: the named ones are made here */
    int deadline_ms; /* no wait takes longer */
} sync_options;

/* Memory that so many locks and a barrier take: whole pages, because a page goes from host to host
 * as a whole. */
size_t sync_bytes(uint32_t locks);

/* NULL and errno on failure. */
sync_state *sync_open(const sync_options *options);

/* Frees the handle. With remove the names of SYNC_NAMED go, too. */
int sync_close(sync_state *sync, int remove);

/* Waits until all activities are there. ETIMEDOUT: some are not. ECANCELED: one of them ended. */
int sync_barrier(sync_state *sync);

/* For who looks at a word of its own again and again: a pause that is longer, the more often it has
 * looked. 0, or ETIMEDOUT when that took longer than the deadline. *end is 0 at first. */
int sync_pause(const sync_state *sync, uint32_t looks, int64_t *end_ms);

int sync_lock(sync_state *sync, uint32_t lock);
int sync_unlock(sync_state *sync, uint32_t lock);

#endif

/* The ring of a producer and a consumer over explicit coherence: buffers whose ownership goes from
 * one process to the other (Forin, Barrera, Young and Rashid, section 8: the producer "can
 * allocate a buffer, fill it with data, and then notify the other process (consumer) that the
 * buffer is available by enqueueing it in, for example, a circular queue"; Shirriff, section 8.2: by
 * map, lock and sync).
 *
 * What it promises: each buffer comes once, whole, and in order, to one consumer of one producer,
 * wherever they run. Neither waits for the other while the ring is neither full nor empty.
 *
 * How: every page has one writer at a time. The producer owns the buffers from `filled` on, and the
 * page that says how many it filled; the consumer the others, and the page that says how many it
 * took. Who gives buffers away syncs them, then the page that says so: what is said is never seen
 * before what it is about. A number that is not new costs nothing to look at: the page is here.
 *
 *    ring NAME producer|consumer COUNT SECONDS */
#include "strategy.h"

enum { BUFFERS = 8, WORDS = PAGE / 8 };

struct ring {
    _Atomic uint64_t filled; /* by the producer */
    unsigned char rest[PAGE - 8];
    _Atomic uint64_t taken; /* by the consumer */
    unsigned char more[PAGE - 8];
    uint64_t buffers[BUFFERS][WORDS];
};

/* The next buffer that the producer may fill. */
static uint64_t *ring_to_fill(struct ring *ring) {
    uint64_t filled = atomic_load(&ring->filled);
    while (filled - atomic_load(&ring->taken) == BUFFERS) wait_for("the consumer");
    return ring->buffers[filled % BUFFERS];
}

/* It is filled: the consumer's from now on. */
static void ring_put(struct ring *ring) {
    if (ch_sync(ring->buffers[atomic_load(&ring->filled) % BUFFERS], PAGE)) fail("sync");
    atomic_fetch_add(&ring->filled, 1);
    if (ch_sync(ring, PAGE)) fail("sync");
}

/* The next buffer that is filled. */
static const uint64_t *ring_get(struct ring *ring) {
    while (atomic_load(&ring->filled) == atomic_load(&ring->taken)) wait_for("the producer");
    return ring->buffers[atomic_load(&ring->taken) % BUFFERS];
}

/* It was read: the producer's from now on. */
static void ring_give_back(struct ring *ring) {
    atomic_fetch_add(&ring->taken, 1);
    if (ch_sync(&ring->taken, PAGE)) fail("sync");
}

static int produces(struct ring *ring, uint64_t count) {
    for (uint64_t number = 0; number < count; number++) {
        uint64_t *buffer = ring_to_fill(ring);
        for (uint64_t i = 0; i < WORDS; i++) buffer[i] = number * 1000003 + i;
        ring_put(ring);
    }
    while (atomic_load(&ring->taken) != count) wait_for("the consumer");
    printf("%llu buffers\n", (unsigned long long)count);
    return 0;
}

static int consumes(struct ring *ring, uint64_t count) {
    for (uint64_t number = 0; number < count; number++) {
        const uint64_t *buffer = ring_get(ring);
        for (uint64_t i = 0; i < WORDS; i++)
            if (buffer[i] != number * 1000003 + i)
                return fprintf(stderr, "buffer %llu is another\n", (unsigned long long)number), 3;
        ring_give_back(ring);
    }
    printf("%llu buffers\n", (unsigned long long)count);
    return 0;
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "ring NAME producer|consumer COUNT SECONDS\n"), 64;
    void *memory = shared(words[1], sizeof(struct ring) / PAGE, atof(words[4]));
    struct ring *ring = memory;
    uint64_t number = strtoull(words[3], NULL, 10);
    return words[2][0] == 'p' ? produces(ring, number) : consumes(ring, number);
}

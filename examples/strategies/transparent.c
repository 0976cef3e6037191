/* Transparent sharing over explicit coherence (Shirriff, section 5.3: it "would permit
 * processes on different machines to share a memory segment as if the processes were on a single
 * machine").
 *
 * What it promises: words of 64 bits that all processes of all hosts read and write in one order,
 * in which every read gives the latest write before it (linearizability). Memory that two
 * processors share promises less.
 *
 * How: who reads or writes a word holds its page against other hosts meanwhile (lock), and who
 * wrote it gives the page to its home before that ends (sync): the home tells all hosts, whose
 * copies are invalid then, and who reads next fetches it. Processes of one host have the same
 * memory, for which an atomic access is enough.
 *
 * What it costs is in docs/STRATEGIES.md: more than --coherence strict, which does the same without
 * calls.
 *
 *    transparent NAME 0|1 ROUNDS SECONDS
 *
 * In each round both write a word, and then read the other's: not both may miss it. */
#include "strategy.h"

static _Atomic uint64_t *word(unsigned char *memory, size_t page) {
    return (_Atomic uint64_t *)(void *)(memory + page * PAGE);
}

static uint64_t transparent_read(unsigned char *memory, size_t page) {
    _Atomic uint64_t *at = word(memory, page);
    if (ch_lock(at, PAGE)) fail("lock");
    uint64_t value = atomic_load(at);
    if (ch_unlock(at, PAGE)) fail("unlock");
    return value;
}

static void transparent_write(unsigned char *memory, size_t page, uint64_t value) {
    _Atomic uint64_t *at = word(memory, page);
    if (ch_lock(at, PAGE)) fail("lock");
    atomic_store(at, value);
    if (ch_sync(at, PAGE)) fail("sync");
    if (ch_unlock(at, PAGE)) fail("unlock");
}

/* Waits until a word is so large. */
static uint64_t transparent_wait(unsigned char *memory, size_t page, uint64_t least) {
    uint64_t value;
    while ((value = transparent_read(memory, page)) < least) wait_for("the other process");
    return value;
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "transparent NAME 0|1 ROUNDS SECONDS\n"), 64;
    size_t me = words[2][0] == '1', other = 1 - me;
    uint64_t rounds = strtoull(words[3], NULL, 10);
    unsigned char *memory = shared(words[1], 4, atof(words[4]));
    /* Pages 0 and 1: what each wrote last. Pages 2 and 3: the round, and if it saw the other's. */
    for (uint64_t round = 1; round <= rounds; round++) {
        transparent_write(memory, me, round);
        int saw = transparent_read(memory, other) >= round;
        transparent_write(memory, 2 + me, 2 * round + (uint64_t)saw);
        uint64_t told = transparent_wait(memory, 2 + other, 2 * round);
        if (told / 2 == round && !(told % 2) && !saw)
            return fprintf(stderr, "neither saw what the other had written\n"), 3;
        /* What was written before something that is seen is seen too. */
        if (transparent_read(memory, other) < round)
            return fprintf(stderr, "an older word came after a newer one\n"), 3;
    }
    printf("%llu rounds\n", (unsigned long long)rounds);
    return 0;
}

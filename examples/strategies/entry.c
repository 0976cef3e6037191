/* Entry consistency over explicit coherence: a mutex that is bound to a range (Shirriff, section
 * 5.3: "other desired consistency semantics on top of the supplied functionality"; section 8.2: by
 * mmap, mlock and msync).
 *
 * What it promises: one process of all hosts is within, and it sees all that was written within
 * before. What is written outside is seen by chance.
 *
 * How: the range's first word is the mutex between processes of one host, which have the same
 * memory; lock keeps those of other hosts out. Who leaves gives the range to its home first (sync),
 * so whoever comes next on another host fetches it. The word names its owner by machine and
 * process: of one that ended, or is of another host, nothing is left to wait for, for while this
 * host holds the pages no process of another is within.
 *
 *    entry NAME TIMES SECONDS     counts within, in all pages; gives the count at the end */
#include "strategy.h"
#include <signal.h>

enum { PAGES = 3 };

struct range {
    _Atomic uint64_t owner; /* 0: nobody; else its machine in the upper half, and the process */
    uint64_t count;
};

static uint64_t this_machine(void) {
    char id[64] = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(id, sizeof id, file)) fail("which machine it is");
    fclose(file);
    uint32_t sum = 2166136261u;
    for (char *at = id; *at; at++) sum = (sum ^ (unsigned char)*at) * 16777619u;
    return (uint64_t)sum << 32;
}

/* Whether the owner is a process of this machine that runs. */
static int is_within(uint64_t owner, uint64_t machine) {
    if ((owner & ~0xffffffffull) != machine) return 0;
    return kill((pid_t)(uint32_t)owner, 0) == 0 || errno == EPERM;
}

static void entry_acquire(struct range *range, size_t bytes) {
    uint64_t machine = this_machine(), me = machine | (uint32_t)getpid();
    if (ch_lock(range, bytes)) fail("lock");
    for (;;) {
        uint64_t owner = 0;
        if (atomic_compare_exchange_strong(&range->owner, &owner, me)) return;
        int is_left = !is_within(owner, machine);
        if (is_left && atomic_compare_exchange_strong(&range->owner, &owner, me)) return;
        wait_for("the process within");
    }
}

static void entry_release(struct range *range, size_t bytes) {
    atomic_store(&range->owner, 0);
    /* Another process of this host may be within already: it has the lock, too, and no other host
     * sees what it has half done. */
    if (ch_sync(range, bytes)) fail("sync");
    if (ch_unlock(range, bytes)) fail("unlock");
}

int main(int count, char **words) {
    if (count != 4) return fprintf(stderr, "entry NAME TIMES SECONDS\n"), 64;
    long times = atol(words[2]);
    unsigned char *memory = shared(words[1], PAGES, atof(words[3]));
    struct range *range = (struct range *)(void *)memory;
    size_t bytes = PAGES * (size_t)PAGE;
    uint64_t found = 0;
    for (long time = 0; time <= times; time++) {
        entry_acquire(range, bytes);
        found = range->count;
        for (size_t page = 0; page < PAGES; page++) {
            volatile uint64_t *here = &((struct range *)(void *)(memory + page * PAGE))->count;
            if (*here != found) return fprintf(stderr, "page %zu has another count\n", page), 3;
            if (time < times) *here = found + 1; /* the last time it only looks */
        }
        entry_release(range, bytes);
    }
    printf("%llu\n", (unsigned long long)found);
    return 0;
}

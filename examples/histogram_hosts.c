/* How often each byte is in a file: processes of any hosts count parts of it, and add up under a
 * mutex that hosts share. docs/THREADS.md shows how it was made from histogram_threads.c.
 *
 *    cc -O2 examples/histogram_hosts.c -Iinclude -Ltarget/release -lcommonhold -o hosts
 *    alpha$ ./hosts FILE 0
 *    beta$  ./hosts FILE 1 */
#include <commonhold.h>
#include <commonhold_sync.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PARTS = 2, LIMIT_S = 60 };

static struct {
    uint64_t counts[256];
    _Atomic uint32_t added, has[PARTS]; /* how many parts are in the counts, and which */
} *shared;

static ch_mutex *turn;
static const char *path;

static int fail(const char *what) {
    return fprintf(stderr, "%s: %s\n", what, ch_last_error()), 1;
}

static int count_part(long me) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return perror(path), 1;
    long bytes = ftell(file), first = bytes * me / PARTS, last = bytes * (me + 1) / PARTS;
    uint64_t own[256] = {0};
    if (fseek(file, first, SEEK_SET)) return perror(path), 1;
    for (int byte; first < last && (byte = getc(file)) != EOF; first++) own[byte]++;
    fclose(file);
    /* EOWNERDEAD: another part died while it added. Its counts are half there: begin anew. */
    if (ch_mutex_lock(turn)) return fail("lock");
    if (!shared->has[me]++) {
        for (int byte = 0; byte < 256; byte++) shared->counts[byte] += own[byte];
        shared->added++;
    } else {
        fprintf(stderr, "part %ld is counted already: `commonhold rm` /histogram/counts\n", me);
        return 1;
    }
    return ch_mutex_unlock(turn) ? fail("unlock") : 0;
}

/* Whoever comes first makes the memory; it begins with zeros. */
static int share(const char *name) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = sizeof *shared;
    options.coherence = CH_STRICT;
    ch_object *object = ch_create(name, &options);
    if (!object && errno == EEXIST) object = ch_open(name, CH_READ | CH_WRITE);
    if (!object) return fail(name);
    shared = ch_map(NULL, sizeof *shared, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    return shared && !ch_close(object) ? 0 : fail(name);
}

static void show(void) {
    for (int byte = 0; byte < 256; byte++)
        if (shared->counts[byte]) printf("%d %llu\n", byte, (unsigned long long)shared->counts[byte]);
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "hosts FILE PART\n"), 64;
    path = words[1];
    long me = atol(words[2]);
    if (me < 0 || me >= PARTS) return fprintf(stderr, "parts are 0 to %d\n", PARTS - 1), 64;
    turn = ch_mutex_open("/histogram/turn", CH_SYNC_CREATE | CH_SYNC_HOSTS, 0600, 1);
    if (!turn) return fail("/histogram/turn");
    if (share("/histogram/counts")) return 1;
    if (count_part(me)) return 1;
    if (me == 0) { /* as pthread_join: it waits for the others, and shows what came out */
        for (int looks = 0; shared->added < PARTS; looks++) {
            if (looks == LIMIT_S * 1000) return fprintf(stderr, "the other part did not come\n"), 1;
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        show();
        if (ch_remove("/histogram/counts") || ch_remove("/histogram/turn")) return fail("remove");
    }
    ch_mutex_close(turn);
}

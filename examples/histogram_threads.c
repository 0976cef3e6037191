/* How often each byte is in a file: threads count parts of it, and add up under a mutex.
 * histogram_hosts.c is the same for processes of several hosts.
 *
 *    cc -O2 -pthread examples/histogram_threads.c -o threads && ./threads FILE */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { PARTS = 2 };

static struct {
    uint64_t counts[256];
    uint32_t added; /* parts that are in the counts */
} *shared, memory;

static pthread_mutex_t turn;
static const char *path;

static int count_part(long me) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END)) return perror(path), 1;
    long bytes = ftell(file), first = bytes * me / PARTS, last = bytes * (me + 1) / PARTS;
    uint64_t own[256] = {0};
    if (fseek(file, first, SEEK_SET)) return perror(path), 1;
    for (int byte; first < last && (byte = getc(file)) != EOF; first++) own[byte]++;
    fclose(file);
    pthread_mutex_lock(&turn);
    for (int byte = 0; byte < 256; byte++) shared->counts[byte] += own[byte];
    shared->added++;
    pthread_mutex_unlock(&turn);
    return 0;
}

static void *run(void *me) { return (void *)(intptr_t)count_part((intptr_t)me); }

static void show(void) {
    for (int byte = 0; byte < 256; byte++)
        if (shared->counts[byte]) printf("%d %llu\n", byte, (unsigned long long)shared->counts[byte]);
}

int main(int count, char **words) {
    if (count != 2) return fprintf(stderr, "threads FILE\n"), 64;
    path = words[1];
    shared = &memory;
    pthread_mutex_init(&turn, NULL);
    pthread_t threads[PARTS];
    for (intptr_t me = 0; me < PARTS; me++)
        if (pthread_create(&threads[me], NULL, run, (void *)me)) return perror("thread"), 1;
    for (int me = 0; me < PARTS; me++) {
        void *failed;
        if (pthread_join(threads[me], &failed) || failed) return 1;
    }
    show();
    pthread_mutex_destroy(&turn);
}

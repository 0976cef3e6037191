/* Shares an anonymous mapping with its children, and says what it saw: the same whatever pages it gets. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2UL << 20)

static char *map(size_t size, int protection) {
    char *place = mmap(NULL, size, protection, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    printf("map: %s\n", place == MAP_FAILED ? strerrorname_np(errno) : "ok");
    return place;
}

static void unmap(char *place, size_t size) {
    printf("unmap: %s\n", munmap(place, size) ? strerrorname_np(errno) : "ok");
}

static void end(void) {
    int status;
    wait(&status);
    printf("child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(int count, char **words) {
    size_t size = count == 2 ? strtoul(words[1], NULL, 0) : 0;
    setbuf(stdout, NULL);
    char *place = map(size, PROT_READ | PROT_WRITE);
    printf("%d %d\n", place[0], place[size - 1]);
    place[size - 1] = 1;
    if (!fork()) {
        place[0] = place[size - 1] + 1;
        _exit(0);
    }
    end();
    printf("%d\n", place[0]);
    if (!fork()) {
        munmap(place, size);
        place[0] = 9;
        _exit(0);
    }
    end();
    /* A part, which huge pages can cut. */
    unmap(place + 2 * HUGE, 2 * HUGE);
    place[0] = 3;
    place[size - 1] = 4;
    if (!fork()) {
        place[2 * HUGE] = 1;
        _exit(0);
    }
    end();
    unmap(place, size);
    place = map(size, PROT_READ);
    if (!fork()) {
        place[0] = 1;
        _exit(0);
    }
    end();
    unmap(place, size);
    /* In two halves; what comes to lie there later is another's. */
    place = map(size, PROT_READ | PROT_WRITE);
    unmap(place, 8 * HUGE);
    unmap(place + 8 * HUGE, size - 8 * HUGE);
    char *own = mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    own[0] = 1;
    unmap(own, 4096);
    /* Its own memory over all of it. */
    size_t huge = size / HUGE * HUGE;
    place = map(huge, PROT_READ | PROT_WRITE);
    own = mmap(place, huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    own[huge - 1] = 1;
    unmap(own + 4096, 4096);
    own[0] = own[8192] = 1;
    unmap(own, huge);
    /* Kinds that stay the kernel's. */
    char *run = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run[0] = (char)0xc3;
    ((void (*)(void))(uintptr_t)run)();
    unmap(run, size);
    own = mmap(NULL, size, PROT_READ, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0);
    printf("%s\n", own == MAP_FAILED ? strerrorname_np(errno) : "ok");
    return 0;
}

/* Shares an anonymous mapping with its children, and says what it saw: the same whatever pages it gets. */
#define _GNU_SOURCE
#include <errno.h>
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
    return 0;
}

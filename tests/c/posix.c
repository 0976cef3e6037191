/* Shares memory by shm_open, and says what it was answered: the same with the kernel's and with Commonhold's. The argument is a
 * name that nobody else has. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 10000

static const char *name;

static const char *said(int failed) { return failed ? strerrorname_np(errno) : "ok"; }

static int open_it(const char *what, int flags, mode_t mode) {
    int fd = shm_open(what, flags, mode);
    printf("open %s, %o: %s\n", what == name ? "it" : "another", flags, said(fd < 0));
    if (fd >= 0)
        printf("closed on exec: %d\n", (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    return fd;
}

static void resize(int fd, off_t size) { printf("resize to %ld: %s\n", (long)size, said(ftruncate(fd, size) != 0)); }

static void shows(int fd) {
    struct stat stat;
    printf("size: %ld\n", fstat(fd, &stat) ? -1 : (long)stat.st_size);
}

static char *map(int fd, int protection) {
    char *place = mmap(NULL, SIZE, protection, MAP_SHARED, fd, 0);
    printf("map: %s\n", said(place == MAP_FAILED));
    return place;
}

static void remove_it(const char *what) { printf("remove: %s\n", said(shm_unlink(what) != 0)); }

static void end(void) {
    int status;
    wait(&status);
    printf("child: %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Another process opens it by its name, and writes. */
static void another(char value) {
    fflush(stdout);
    if (!fork()) {
        int fd = shm_open(name, O_RDWR, 0);
        char *place = fd < 0 ? MAP_FAILED : mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (place == MAP_FAILED)
            _exit(1);
        close(fd);
        place[SIZE - 1] = value;
        _exit(0);
    }
    end();
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    name = arguments[1];
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_it(name, O_RDWR, 0);
    open_it("", O_RDWR | O_CREAT, 0600);
    open_it("/", O_RDWR | O_CREAT, 0600);
    remove_it(name);
    int fd = open_it(name, O_RDWR | O_CREAT | O_EXCL, 0640);
    open_it(name, O_RDWR | O_CREAT | O_EXCL, 0640);
    shows(fd);
    resize(fd, SIZE);
    shows(fd);
    char *place = map(fd, PROT_READ | PROT_WRITE);
    another(7);
    printf("%d\n", place[SIZE - 1]);
    int reader = open_it(name, O_RDONLY, 0);
    printf("write by a reader: %s\n", said(write(reader, "x", 1) < 0));
    resize(reader, 5);
    mmap(NULL, SIZE, PROT_WRITE, MAP_SHARED, reader, 0);
    printf("map by a reader: %s\n", strerrorname_np(errno));
    place[5] = 3;
    char byte = 0;
    printf("read: %ld, %d\n", (long)pread(reader, &byte, 1, 5), byte);
    int copy = dup(fd);
    close(fd);
    resize(copy, 2 * SIZE);
    shows(reader);
    resize(copy, SIZE / 2);
    shows(reader);
    resize(copy, -1);
    int again = open_it(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    shows(copy);
    resize(again, SIZE);
    printf("%d\n", place[5]);
    remove_it(name);
    open_it(name, O_RDWR, 0);
    remove_it(name);
    /* It lives on without its name, and another has it. */
    place[1] = 9;
    resize(copy, 3 * SIZE);
    shows(again);
    int fresh = open_it(name, O_RDWR | O_CREAT, 0600);
    shows(fresh);
    resize(fresh, SIZE);
    printf("%d %d\n", place[1], map(fresh, PROT_READ)[1]);
    fflush(stdout);
    if (!fork()) {
        resize(fresh, 3);
        shows(fresh);
        fflush(stdout);
        _exit(0);
    }
    end();
    shows(fresh);
    printf("a file: %s\n", said(ftruncate(fileno(tmpfile()), 100) != 0));
    remove_it(name);
    return 0;
}

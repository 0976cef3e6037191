/* Does with one System V segment what it is told, line by line, and answers each with a line. Argument: its key. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

static key_t key;
static int id = -1;
static char *place;

static const char *said(int failed) { return failed ? strerrorname_np(errno) : "ok"; }

static const char *get(size_t size, int flags) {
    int found = shmget(key, size, flags);
    if (found >= 0)
        id = found;
    return said(found < 0);
}

static const char *attach(size_t address, int flags) {
    char *at = shmat(id, (void *)address, flags);
    if (at != (void *)-1)
        place = at;
    return said(at == (void *)-1);
}

static const char *over(size_t offset, size_t length) {
    char *at = mmap(place + offset, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at != MAP_FAILED)
        memset(at, 'o', length);
    return said(at == MAP_FAILED);
}

static const char *sets(size_t mode) {
    struct shmid_ds stat;
    if (shmctl(id, IPC_STAT, &stat))
        return said(1);
    stat.shm_perm.mode = (unsigned short)mode;
    return said(shmctl(id, IPC_SET, &stat));
}

static void tells(void) {
    struct shmid_ds stat;
    if (shmctl(id, IPC_STAT, &stat))
        printf("%s\n", said(1));
    else
        printf("%zu bytes, %lu attached, mode %o, owner %u\n", stat.shm_segsz, (unsigned long)stat.shm_nattch,
               stat.shm_perm.mode, stat.shm_perm.uid);
}

static void does(const char *what, size_t one, size_t two) {
    if (!strcmp(what, "get"))
        puts(get(one, (int)two));
    else if (!strcmp(what, "attach"))
        puts(attach(one, (int)two));
    else if (!strcmp(what, "swap")) { /* what is there, and puts another value */
        printf("%d\n", place[one]);
        place[one] = (char)two;
    } else if (!strcmp(what, "see"))
        printf("%d\n", place[one]);
    else if (!strcmp(what, "add")) {
        for (size_t i = 0; i < two; i++)
            __atomic_fetch_add((int *)(place + one), 1, __ATOMIC_SEQ_CST);
        printf("%d\n", __atomic_load_n((int *)(place + one), __ATOMIC_SEQ_CST));
    } else if (!strcmp(what, "detach"))
        puts(said(shmdt(place)));
    else if (!strcmp(what, "remove"))
        puts(said(shmctl(id, IPC_RMID, NULL)));
    else if (!strcmp(what, "mode"))
        puts(sets(one));
    else if (!strcmp(what, "tell"))
        tells();
    else if (!strcmp(what, "become"))
        puts(said(setgroups(0, NULL) || setgid((gid_t)one) || setuid((uid_t)one) || prctl(PR_SET_DUMPABLE, 1)));
    else if (!strcmp(what, "unmap"))
        puts(said(munmap(place + one, two)));
    else if (!strcmp(what, "over"))
        puts(over(one, two));
    else if (!strcmp(what, "move"))
        puts(said(mremap(place, one, two, MREMAP_MAYMOVE) == MAP_FAILED));
    else if (!strcmp(what, "close")) { /* all that it does not know */
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        closefrom(3);
        puts(said(close_range(3, ~0u, 0)));
    } else if (!strcmp(what, "open")) { /* so many files, and how many of them are good a little later */
        int good = 0, all[64];
        char byte;
        for (size_t i = 0; i < one && i < 64; i++)
            all[i] = open("/proc/self/status", O_RDONLY);
        usleep(500000);
        for (size_t i = 0; i < one && i < 64; i++)
            good += read(all[i], &byte, 1) == 1 && !close(all[i]);
        printf("%d\n", good);
    } else if (!strcmp(what, "replace")) { /* all that are open; how many cannot be */
        int refused = 0;
        for (int fd = 3; fd < 1024; fd++)
            refused += fcntl(fd, F_GETFD) != -1 && dup2(STDIN_FILENO, fd) < 0 && errno == EBUSY;
        printf("%d\n", refused);
    } else if (!strcmp(what, "number"))
        printf("%d\n", id);
    else if (!strcmp(what, "executed")) { /* what the next program finds open, but for the list itself */
        fflush(stdout);
        if (system("set -- /proc/self/fd/[3-9] /proc/self/fd/[1-9][0-9]; n=0; "
                   "for f; do [ -e $f ] && [ ! -d $f/ ] && n=$((n+1)); done; echo $n"))
            puts("no shell");
    } else if (!strcmp(what, "descriptors")) {
        int open = 0;
        for (int fd = 3; fd < 1024; fd++)
            open += fcntl(fd, F_GETFD) != -1;
        printf("%d\n", open);
    } else
        puts("what?");
}

/* Does it in a child, and says how that ended if it did not end well. */
static void does_in_child(const char *what, size_t one, size_t two) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        does(what, one, two);
        exit(0);
    }
    waitpid(child, &status, 0);
    if (child < 0 || WIFSIGNALED(status))
        puts(child < 0 ? "no child" : sigabbrev_np(WTERMSIG(status)));
}

int main(int count, char **words) {
    char line[256], what[64];
    if (count != 2)
        return 2;
    key = (key_t)strtol(words[1], NULL, 0);
    while (fgets(line, sizeof line, stdin)) {
        int in_child = !strncmp(line, "child ", 6);
        long one = 0, two = 0;
        if (sscanf(line + (in_child ? 6 : 0), "%63s %li %li", what, &one, &two) < 1)
            return 2;
        (in_child ? does_in_child : does)(what, (size_t)one, (size_t)two);
        fflush(stdout);
    }
    return 0;
}

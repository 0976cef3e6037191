/* libcommonhold_preload.so: stands before the C library's calls in a program that knows nothing of Commonhold, and loads
 * libcommonhold_sysv.so at the first call that may concern an object. Both lie in one directory.
 *
 * Until then it costs a program nothing but its being loaded. It has no thread, no descriptor and no handler of signals. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STANDS_BEFORE __attribute__((visibility("default")))

/* What libcommonhold_sysv.so has. A negative answer is the number of an error. */
struct calls {
    intptr_t (*shmget)(int key, size_t size, int flags);
    intptr_t (*shmat)(int id, uintptr_t address, int flags);
    intptr_t (*shmdt)(uintptr_t address);
    intptr_t (*shmctl)(int id, int command, struct shmid_ds *buffer);
    intptr_t (*map_anonymous)(size_t length, int protection); /* 0: take ordinary pages */
    intptr_t (*unmap_anonymous)(uintptr_t address, size_t length); /* 1: none of ours */
};

static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        /* Nobody else could be told. */
    }
}

static int load(struct calls *calls) {
    static const char name[] = "libcommonhold_sysv.so";
    char path[PATH_MAX];
    Dl_info own;
    const char *slash;
    void *library;
    if (!dladdr((void *)&load, &own) || !(slash = strrchr(own.dli_fname, '/')))
        return -1;
    size_t directory = (size_t)(slash - own.dli_fname) + 1;
    if (directory + sizeof name > sizeof path)
        return -1;
    memcpy(path, own.dli_fname, directory);
    memcpy(path + directory, name, sizeof name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return -1;
    const struct {
        const char *name;
        void *place;
    } wanted[] = {
        {"commonhold_shmget", &calls->shmget},
        {"commonhold_shmat", &calls->shmat},
        {"commonhold_shmdt", &calls->shmdt},
        {"commonhold_shmctl", &calls->shmctl},
        {"commonhold_map_anonymous", &calls->map_anonymous},
        {"commonhold_unmap_anonymous", &calls->unmap_anonymous},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return -1;
        memcpy(wanted[i].place, &found, sizeof found);
    }
    return 0;
}

/* The calls; with none, ENOSYS: the kernel's own segments in their place would be others than those of the next process. */
static const struct calls *calls(void) {
    static struct calls loaded;
    static int state; /* 1: loaded, -1: cannot be */
    int now = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
    if (!now) {
        struct calls fresh;
        int before = errno;
        /* Two threads that are here at once load the same library, and find the same. */
        now = load(&fresh) ? -1 : 1;
        if (now == 1)
            loaded = fresh;
        else
            say("commonhold: libcommonhold_sysv.so is not beside libcommonhold_preload.so: System V segments fail (ENOSYS)\n");
        __atomic_store_n(&state, now, __ATOMIC_RELEASE);
        errno = before;
    }
    if (now == 1)
        return &loaded;
    errno = ENOSYS;
    return NULL;
}

static intptr_t result(intptr_t answer) {
    if (answer < 0 && answer > -4096) {
        errno = (int)-answer;
        return -1;
    }
    return answer;
}

STANDS_BEFORE int shmget(key_t key, size_t size, int flags) {
    const struct calls *to = calls();
    return to ? (int)result(to->shmget(key, size, flags)) : -1;
}

STANDS_BEFORE void *shmat(int id, const void *address, int flags) {
    const struct calls *to = calls();
    return (void *)(to ? result(to->shmat(id, (uintptr_t)address, flags)) : -1);
}

STANDS_BEFORE int shmdt(const void *address) {
    const struct calls *to = calls();
    return to ? (int)result(to->shmdt((uintptr_t)address)) : -1;
}

STANDS_BEFORE int shmctl(int id, int command, struct shmid_ds *buffer) {
    const struct calls *to = calls();
    return to ? (int)result(to->shmctl(id, command, buffer)) : -1;
}

/* Least length of an anonymous shared mapping that is moved, as LARGE_BYTES in the crate sysv. */
#define LARGE_BYTES ((size_t)64 << 20)

/* Whether one was moved, in this process or one that forked it. */
static int moved;

/* Asked for at the first large mapping. */
static int shares_page_tables(void) {
    const char *words = getenv("COMMONHOLD_RUN");
    return words && strstr(words, "share-page-tables");
}

STANDS_BEFORE void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    const int kind = MAP_SHARED | MAP_ANONYMOUS;
    if (length >= LARGE_BYTES && !address && (flags & kind) == kind && !(flags & MAP_FIXED) && shares_page_tables()) {
        const struct calls *to = calls();
        intptr_t at = to ? to->map_anonymous(length, protection) : 0;
        if (at) {
            __atomic_store_n(&moved, 1, __ATOMIC_RELEASE);
            return (void *)at;
        }
    }
    return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

/* On these machines offsets have 64 bits anyway. */
STANDS_BEFORE void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));

STANDS_BEFORE int munmap(void *address, size_t length) {
    if (__atomic_load_n(&moved, __ATOMIC_ACQUIRE)) {
        const struct calls *to = calls();
        intptr_t answer = to ? to->unmap_anonymous((uintptr_t)address, length) : 1;
        if (answer != 1)
            return (int)result(answer);
    }
    return (int)syscall(SYS_munmap, address, length);
}

/* libcommonhold_preload.so: stands before the C library's calls in a program that knows nothing of Commonhold, and loads
 * libcommonhold_sysv.so at the first call that may concern an object. Both lie in one directory.
 *
 * Until then it costs a program nothing but its being loaded. It has no thread, no descriptor and no handler of signals (but
 * while a segment of a shared key is attached). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STANDS_BEFORE __attribute__((visibility("default")))

/* What the environment said when the program began: it may change it. */
static char words[256], host[PATH_MAX];

static int (*libc_close)(int fd);

__attribute__((constructor)) static void begin(void) {
    void *found = dlsym(RTLD_NEXT, "close");
    memcpy(&libc_close, &found, sizeof found);
    const char *variable = secure_getenv("COMMONHOLD_RUN");
    if (variable && strlen(variable) < sizeof words)
        strcpy(words, variable);
    variable = secure_getenv("COMMONHOLD_HOST");
    if (variable && strlen(variable) < sizeof host)
        strcpy(host, variable);
}

/* Whether it is one of the words. */
static int wishes(const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ',') && (!at[length] || at[length] == ','))
            return 1;
    return 0;
}

/* What libcommonhold_sysv.so has. A negative answer is the number of an error. */
struct calls {
    void (*begin)(const char *words, const char *host);
    intptr_t (*shmget)(int key, size_t size, int flags);
    intptr_t (*shmat)(int id, uintptr_t address, int flags);
    intptr_t (*shmdt)(uintptr_t address);
    intptr_t (*shmctl)(int id, int command, struct shmid_ds *buffer);
    intptr_t (*map_anonymous)(size_t length);              /* 0: take ordinary pages */
    intptr_t (*unmap)(uintptr_t address, size_t length);   /* 1: none of ours */
    void (*mapped_over)(uintptr_t address, size_t length);
    intptr_t (*remap)(uintptr_t address, size_t length, size_t new_length, int flags, uintptr_t wished); /* 1: none of ours */
    intptr_t (*shm_open)(const char *name, int flags, unsigned mode);
    intptr_t (*shm_unlink)(const char *name);
    intptr_t (*ftruncate)(int fd, int64_t size); /* 1: none of ours */
    int (*keeps)(int fd);                        /* whether that descriptor is the client library's */
    void (*forgets)(int fd);                     /* it closes that one */
};

/* Says on standard error what an error number cannot say: if that is what it was when `commonhold run` began. */
static void say(const char *text) {
    struct stat now;
    char wanted[64], line[512];
    if (fstat(STDERR_FILENO, &now))
        return;
    int length = snprintf(wanted, sizeof wanted, "stderr=%lu:%lu", (unsigned long)now.st_dev, (unsigned long)now.st_ino);
    const char *found = strstr(words, wanted);
    if (!found || (found[length] && found[length] != ','))
        return;
    snprintf(line, sizeof line, "commonhold: %s\n", text);
    if (write(STDERR_FILENO, line, strlen(line)) < 0) {
        /* Nobody else could be told. */
    }
}

/* Where the library lies, whose own calls come by here, too. */
static uintptr_t library_begin, library_end;

static int note_place(struct dl_phdr_info *info, size_t size, void *within) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, end = begin + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && begin <= (uintptr_t)within && (uintptr_t)within < end) {
            library_begin = begin;
            library_end = end;
            return 1;
        }
    }
    return 0;
}

/* Loads it; what is negative is the number of an error. */
static int load(struct calls *calls) {
    static const char name[] = "libcommonhold_sysv.so";
    const struct {
        const char *name;
        void *place;
    } wanted[] = {
        {"commonhold_begin", &calls->begin},
        {"commonhold_shmget", &calls->shmget},
        {"commonhold_shmat", &calls->shmat},
        {"commonhold_shmdt", &calls->shmdt},
        {"commonhold_shmctl", &calls->shmctl},
        {"commonhold_map_anonymous", &calls->map_anonymous},
        {"commonhold_unmap", &calls->unmap},
        {"commonhold_mapped_over", &calls->mapped_over},
        {"commonhold_remap", &calls->remap},
        {"commonhold_shm_open", &calls->shm_open},
        {"commonhold_shm_unlink", &calls->shm_unlink},
        {"commonhold_ftruncate", &calls->ftruncate},
        {"commonhold_keeps", &calls->keeps},
        {"commonhold_forgets", &calls->forgets},
    };
    char path[PATH_MAX];
    Dl_info own;
    const char *slash;
    void *library;
    if (!dladdr((void *)&load, &own) || !(slash = strrchr(own.dli_fname, '/')))
        return -ENOSYS;
    size_t directory = (size_t)(slash - own.dli_fname) + 1;
    if (directory + sizeof name > sizeof path)
        return -ENOSYS;
    memcpy(path, own.dli_fname, directory);
    memcpy(path + directory, name, sizeof name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say(dlerror());
        return access(path, R_OK) && errno == ENOENT ? -ENOSYS : -ENOMEM;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return -ENOSYS;
        memcpy(wanted[i].place, &found, sizeof found);
    }
    dl_iterate_phdr(note_place, (void *)(uintptr_t)calls->begin);
    calls->begin(words, host);
    return 0;
}

static struct calls *loaded;

static struct calls *loaded_calls(void) { return __atomic_load_n(&loaded, __ATOMIC_ACQUIRE); }

/* The calls; with none, errno says why: ENOSYS, or ENOMEM, and then the next call tries again. The kernel's own segments in their
 * place would be others than those of the next process. */
static const struct calls *calls(void) {
    struct calls *now = loaded_calls();
    if (now)
        return now;
    struct calls *fresh = malloc(sizeof *fresh);
    int failed = fresh ? load(fresh) : -ENOMEM;
    if (failed) {
        free(fresh);
        errno = -failed;
        return NULL;
    }
    /* Two threads that are here at once load the same library, and find the same: that of the second is not needed. */
    if (__atomic_compare_exchange_n(&loaded, &now, fresh, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return fresh;
    free(fresh);
    return now;
}

/* Nobody is cancelled in the middle of a call (these are no cancellation points), and what succeeds leaves errno alone. */
struct call {
    int errno_before, cancels;
};

static struct call enter(void) {
    struct call call = {errno, 0};
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call.cancels);
    return call;
}

static intptr_t leave(struct call call, intptr_t answer) {
    int failed = answer < 0 && answer > -4096;
    pthread_setcancelstate(call.cancels, NULL);
    errno = failed ? (int)-answer : call.errno_before;
    return failed ? -1 : answer;
}

#define ANSWER(type, what)                                                                                                 \
    do {                                                                                                                   \
        struct call call = enter();                                                                                        \
        const struct calls *to = calls();                                                                                  \
        return (type)leave(call, to ? (what) : -errno);                                                                    \
    } while (0)

STANDS_BEFORE int shmget(key_t key, size_t size, int flags) { ANSWER(int, to->shmget(key, size, flags)); }

STANDS_BEFORE void *shmat(int id, const void *address, int flags) {
    ANSWER(void *, to->shmat(id, (uintptr_t)address, flags));
}

STANDS_BEFORE int shmdt(const void *address) { ANSWER(int, to->shmdt((uintptr_t)address)); }

STANDS_BEFORE int shmctl(int id, int command, struct shmid_ds *buffer) { ANSWER(int, to->shmctl(id, command, buffer)); }

/* Least length of an anonymous shared mapping that is moved, as LARGE_BYTES in the crate sysv. */
#define LARGE_BYTES ((size_t)64 << 20)

/* Whether it is of the kind that is moved: shared, to read and to write, anywhere, and nothing out of the ordinary. */
static int moves(const void *address, size_t length, int protection, int flags) {
    const int allowed = MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | MAP_HUGETLB;
    return length >= LARGE_BYTES && !address && (flags & MAP_ANONYMOUS) && (flags & MAP_TYPE) == MAP_SHARED &&
           !(flags & ~allowed) && protection == (PROT_READ | PROT_WRITE) && wishes("share-page-tables");
}

STANDS_BEFORE void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if (moves(address, length, protection, flags)) {
        struct call call = enter();
        const struct calls *to = calls();
        intptr_t at = leave(call, to ? to->map_anonymous(length) : 0);
        if (at)
            return (void *)at;
    }
    void *mapped = (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
    const struct calls *to = loaded_calls();
    if ((flags & MAP_FIXED) && mapped != MAP_FAILED && to) {
        struct call call = enter();
        to->mapped_over((uintptr_t)mapped, length);
        leave(call, 0);
    }
    return mapped;
}

/* On these machines offsets have 64 bits anyway. */
STANDS_BEFORE void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));

STANDS_BEFORE int munmap(void *address, size_t length) {
    const struct calls *to = loaded_calls();
    if (to) {
        struct call call = enter();
        intptr_t answer = to->unmap((uintptr_t)address, length);
        if (answer != 1)
            return (int)leave(call, answer);
        leave(call, 0);
    }
    return (int)syscall(SYS_munmap, address, length);
}

STANDS_BEFORE void *mremap(void *address, size_t length, size_t new_length, int flags, ...) {
    va_list more;
    va_start(more, flags);
    void *wished = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    const struct calls *to = loaded_calls();
    if (to) {
        struct call call = enter();
        intptr_t answer = to->remap((uintptr_t)address, length, new_length, flags, (uintptr_t)wished);
        if (answer != 1)
            return (void *)leave(call, answer);
        leave(call, 0);
    }
    return (void *)syscall(SYS_mremap, address, length, new_length, flags, wished);
}

/* The C library's own; it may lie in another library (librt of older ones). */
static void *next(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        errno = ENOSYS;
    return found;
}

STANDS_BEFORE int shm_open(const char *name, int flags, mode_t mode) {
    if (!wishes("posix")) {
        int (*own)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))next("shm_open");
        return own ? own(name, flags, mode) : -1;
    }
    ANSWER(int, to->shm_open(name, flags, mode));
}

STANDS_BEFORE int shm_unlink(const char *name) {
    if (!wishes("posix")) {
        int (*own)(const char *) = (int (*)(const char *))next("shm_unlink");
        return own ? own(name) : -1;
    }
    ANSWER(int, to->shm_unlink(name));
}

STANDS_BEFORE int ftruncate(int fd, off_t size) {
    const struct calls *to = wishes("posix") ? loaded_calls() : NULL;
    if (to) {
        struct call call = enter();
        intptr_t answer = to->ftruncate(fd, size);
        if (answer != 1)
            return (int)leave(call, answer);
        leave(call, 0);
    }
    return (int)syscall(SYS_ftruncate, fd, size);
}

/* What the client library keeps open while a segment of a shared key is attached is to the program not open: it may close what
 * it does not know. */
#define MOST_KEPT (1u << 16)

static int is_own(const void *caller) { return (uintptr_t)caller - library_begin < library_end - library_begin; }

static int keeps(int fd, const void *caller) {
    const struct calls *to = loaded_calls();
    return to && to->keeps(fd) && !is_own(caller);
}

STANDS_BEFORE int close(int fd) {
    if (keeps(fd, __builtin_return_address(0))) {
        errno = EBADF;
        return -1;
    }
    const struct calls *to = loaded_calls();
    if (to && is_own(__builtin_return_address(0)))
        to->forgets(fd);
    return libc_close ? libc_close(fd) : (int)syscall(SYS_close, fd); /* before this library has begun */
}

STANDS_BEFORE int close_range(unsigned first, unsigned last, int flags) {
    const struct calls *to = loaded_calls();
    unsigned from = first;
    for (unsigned fd = first; to && fd < MOST_KEPT && fd <= last; fd++)
        if (to->keeps((int)fd)) {
            if (from < fd && syscall(SYS_close_range, from, fd - 1, flags))
                return -1;
            from = fd + 1;
        }
    return from > first && from > last ? 0 : (int)syscall(SYS_close_range, from, last, flags);
}

STANDS_BEFORE void closefrom(int low) { close_range(low < 0 ? 0 : (unsigned)low, ~0u, 0); }

/* In the place of one of those nobody puts another. */
STANDS_BEFORE int dup3(int from, int to, int flags) {
    if (keeps(to, __builtin_return_address(0))) {
        errno = EBUSY;
        return -1;
    }
    return (int)syscall(SYS_dup3, from, to, flags);
}

STANDS_BEFORE int dup2(int from, int to) {
    if (from == to)
        return fcntl(from, F_GETFD) < 0 ? -1 : to;
    return dup3(from, to, 0);
}

STANDS_BEFORE int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));

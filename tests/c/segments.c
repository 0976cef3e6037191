/* Asks for System V segments in many ways, and says what it was answered: the same with the kernel's segments and with those
 * of Commonhold. Arguments: the scenario, a key that nobody else has, a size, and flags for shmget and shmat. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MODE_REMOVED 01000

static key_t key;
static size_t size;
static int get_flags, at_flags;
static const char *own_path;

static const char *said(int failed) { return failed ? strerrorname_np(errno) : "ok"; }

static int get(key_t which, size_t bytes, int flags) {
    int id = shmget(which, bytes, flags | get_flags);
    printf("get %s key, %s, %o: %s\n", which ? "the" : "no",
           bytes == size ? "its size" : bytes > size ? "more" : bytes ? "less" : "nothing", flags, said(id < 0));
    return id;
}

static char *at(int id, void *address, int flags) {
    char *place = shmat(id, address, flags | at_flags);
    printf("attach %o: %s\n", flags, said(place == (void *)-1));
    return place;
}

static void detach(const void *address) { printf("detach: %s\n", said(shmdt(address) != 0)); }

static void rights(int id) {
    struct shmid_ds stat;
    if (shmctl(id, IPC_STAT, &stat)) {
        printf("stat: %s\n", said(1));
        return;
    }
    printf("stat: %s, mode %o, owner %u:%u, maker %u:%u\n", stat.shm_segsz == size ? "its size" : "another size",
           stat.shm_perm.mode, stat.shm_perm.uid, stat.shm_perm.gid, stat.shm_perm.cuid, stat.shm_perm.cgid);
}

static const char *when(time_t at) { return !at ? "never" : labs((long)(time(NULL) - at)) <= 5 ? "just now" : "long ago"; }

static void counts(int id) {
    struct shmid_ds stat;
    if (shmctl(id, IPC_STAT, &stat)) {
        printf("counts: %s\n", said(1));
        return;
    }
    printf("counts: %lu attached, made by %s, last used by %s, attached %s, detached %s\n", (unsigned long)stat.shm_nattch,
           stat.shm_cpid == getpid() ? "me" : "another", stat.shm_lpid == getpid() ? "me" : stat.shm_lpid ? "another" : "nobody",
           when(stat.shm_atime), when(stat.shm_dtime));
}

static void control(const char *what, int id, int command, struct shmid_ds *buffer) {
    printf("%s: %s\n", what, said(shmctl(id, command, buffer) < 0));
}

/* Runs this in a child, and says how it ended. */
static pid_t child(void (*job)(int, char *), int id, char *place) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        job(id, place);
        fflush(stdout);
        _exit(0);
    }
    return child;
}

static void end(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("child: signal %d\n", WTERMSIG(status));
    else
        printf("child: exit %d\n", WEXITSTATUS(status));
}

static void in_child(void (*job)(int, char *), int id, char *place) { end(child(job, id, place)); }

static void making(void) {
    get(key, size, 0600);
    get(key, 0, IPC_CREAT | 0600);
    int id = get(key, size, IPC_CREAT | 0640);
    rights(id);
    counts(id);
    get(key, size, IPC_CREAT | IPC_EXCL | 0600);
    printf("%s\n", get(key, size, IPC_CREAT | 0600) == id ? "the same" : "another");
    printf("%s\n", get(key, 0, 0) == id ? "the same" : "another");
    printf("%s\n", get(key, 1, 0) == id ? "the same" : "another");
    get(key, size + 4096, 0600);
    int own = get(IPC_PRIVATE, size, 0600), other = get(IPC_PRIVATE, size, IPC_CREAT | IPC_EXCL | 0);
    printf("%s\n", own != other && own != id ? "each its own" : "the same");
    control("remove", own, IPC_RMID, NULL);
    control("remove", other, IPC_RMID, NULL);
    control("remove", id, IPC_RMID, NULL);
    control("remove again", id, IPC_RMID, NULL);
    rights(id);
    get(key, size, 0600);
    int next = get(key, size, IPC_CREAT | 0600);
    printf("%s\n", next == id ? "the same" : "another");
    control("remove", next, IPC_RMID, NULL);
}

static void writes(int id, char *place) {
    (void)id;
    place[1] = 1;
}

static void detaches(int id, char *place) {
    detach(place);
    counts(id);
}

static void attaching(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    char *place = at(id, NULL, 0);
    printf("%s\n", place[0] || place[size - 1] ? "not zero" : "zero");
    place[0] = 5;
    place[size - 1] = 6;
    char *second = at(id, NULL, SHM_RDONLY);
    printf("%d %d\n", second[0], second[size - 1]);
    in_child(writes, id, second);
    in_child(writes, id, place);
    printf("%d\n", second[1]);
    counts(id);
    in_child(detaches, id, place);
    counts(id);
    at(id, place + 1, 0);
    at(id, place, 0);
    at(id, NULL, SHM_REMAP);
    at(-1, NULL, 0);
    detach(place + 4096);
    detach(NULL);
    detach(second);
    detach(second);
    counts(id);
    detach(place);
    counts(id);
    place = at(id, place, 0);
    printf("%d\n", place[0]);
    detach(place);
    control("remove", id, IPC_RMID, NULL);
}

/* What only small pages can. */
static void placing(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    size_t room = (size + 65535) / 4096 * 4096;
    char *reserved = mmap(NULL, 2 * room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at(id, reserved, 0);
    char *over = at(id, reserved, SHM_REMAP);
    over[0] = 1;
    munmap(reserved + room, room);
    char *rounded = at(id, reserved + room + 123, SHM_RND);
    printf("%d, %ld\n", rounded[0], (long)(rounded - reserved - room));
    detach(rounded);
    detach(over);
    /* 1: a function that returns. */
    char *run = at(id, NULL, SHM_EXEC);
    run[0] = (char)0xc3;
    ((void (*)(void))(uintptr_t)run)();
    detach(run);
    control("remove", id, IPC_RMID, NULL);
}

static void waits(int id, char *place) {
    (void)id;
    place[2] = 1;
    pause();
}

static void executes(int id, char *place) {
    char number[20];
    snprintf(number, sizeof number, "%d", id);
    place[2] = 1;
    execl(own_path, own_path, "idle", number, "1", "0", "0", (char *)NULL);
}

static void exits(int id, char *place) {
    (void)id;
    place[2] = 1;
    exit(3);
}

static void until_there(char *place) {
    while (!*(volatile char *)(place + 2))
        usleep(1000);
    place[2] = 0;
}

static void counting(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    char *place = at(id, NULL, 0);
    pid_t killed = child(waits, id, place);
    until_there(place);
    counts(id);
    kill(killed, SIGKILL);
    end(killed);
    counts(id);
    in_child(exits, id, place);
    counts(id);
    pid_t other = child(executes, id, place);
    until_there(place);
    while (1) { /* until it has executed */
        struct shmid_ds stat;
        shmctl(id, IPC_STAT, &stat);
        if (stat.shm_nattch == 1)
            break;
        usleep(1000);
    }
    counts(id);
    kill(other, SIGKILL);
    end(other);
    detach(place);
    counts(id);
    control("remove", id, IPC_RMID, NULL);
}

static void attaches(int id, char *place) {
    (void)place;
    char *own = at(id, NULL, 0);
    printf("%d\n", own == (void *)-1 ? -1 : own[0]);
    counts(id);
}

static void removing(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    char *place = at(id, NULL, 0);
    place[0] = 9;
    control("remove", id, IPC_RMID, NULL);
    rights(id);
    counts(id);
    get(key, size, 0600);
    in_child(attaches, id, place);
    char *again = at(id, NULL, 0);
    printf("%d\n", again[0]);
    int next = get(key, size, IPC_CREAT | IPC_EXCL | 0600);
    printf("%s\n", next == id ? "the same" : "another");
    control("remove", next, IPC_RMID, NULL);
    detach(place);
    rights(id);
    detach(again);
    rights(id);
    at(id, NULL, 0);
}

static void as_another(int id, char *place) {
    if (setgid(64000) || setuid(64000))
        _exit(9);
    int before = errno;
    get(key, size, 0600);
    get(key, size, 0);
    get(key, size, IPC_CREAT | IPC_EXCL | 0600);
    (void)before;
    rights(id);
    char *reader = at(id, NULL, SHM_RDONLY);
    if (reader != (void *)-1)
        printf("%d\n", reader[0]);
    at(id, NULL, 0);
    control("remove", id, IPC_RMID, NULL);
    struct shmid_ds stat = {.shm_perm = {.uid = 64000, .gid = 64000, .mode = 0666}};
    control("set", id, IPC_SET, &stat);
    (void)place;
}

static void sharing(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    char *place = at(id, NULL, 0);
    place[0] = 4;
    in_child(as_another, id, place);
    struct shmid_ds stat;
    for (int mode = 0444; mode <= 0666; mode += 0222) {
        shmctl(id, IPC_STAT, &stat);
        stat.shm_perm.mode = (unsigned short)mode;
        control("set", id, IPC_SET, &stat);
        rights(id);
        if (mode == 0444)
            in_child(as_another, id, place);
    }
    control("set by no memory", id, IPC_SET, (struct shmid_ds *)8);
    control("stat into no memory", id, IPC_STAT, (struct shmid_ds *)8);
    stat.shm_perm.uid = 64000;
    stat.shm_perm.gid = 64000;
    stat.shm_perm.mode = 0600;
    control("give", id, IPC_SET, &stat);
    rights(id);
    in_child(as_another, id, place);
    detach(place);
    rights(id);
}

static void listing(void) {
    int id = get(key, size, IPC_CREAT | 0600), found = 0;
    struct shmid_ds stat;
    struct shminfo limits;
    int highest = shmctl(0, IPC_INFO, (struct shmid_ds *)&limits);
    for (int index = 0; index <= highest; index++) {
        if (shmctl(index, SHM_STAT, &stat) == id) {
            found++;
            printf("listed: %s\n", stat.shm_segsz == size ? "its size" : "another size");
        }
    }
    printf("found %d\n", found);
    control("lock", id, SHM_LOCK, NULL);
    control("unlock", id, SHM_UNLOCK, NULL);
    control("nonsense", id, 4711, NULL);
    control("remove", id, IPC_RMID, NULL);
}

/* What a program may do to the addresses of a segment, past shmdt. */
static void unmapping(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    size_t pages = (size + 4095) / 4096 * 4096;
    char *place = at(id, NULL, 0);
    printf("unmap: %s\n", said(munmap(place, pages)));
    counts(id);
    detach(place);
    /* Its own memory over all of it. */
    place = at(id, NULL, 0);
    mmap(place, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    counts(id);
    detach(place);
    place[0] = place[pages - 1] = 1;
    munmap(place, pages);
    /* Its own page in it. */
    place = at(id, NULL, 0);
    char *own = mmap(place + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    detach(place);
    own[0] = 1;
    counts(id);
    munmap(own, 4096);
    /* Moved. */
    place = at(id, NULL, 0);
    place[0] = 7;
    char *room = mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *moved = mremap(place, pages, pages, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    printf("%d\n", moved[0]);
    counts(id);
    detach(place);
    detach(moved);
    counts(id);
    /* In place. */
    place = at(id, NULL, 0);
    printf("%s\n", mremap(place, size, size, 0) == place ? "in place" : "elsewhere");
    counts(id);
    mremap(place, pages, 4096, 0);
    counts(id);
    detach(place);
    counts(id);
    /* A part of one, and another at its beginning. */
    place = at(id, NULL, 0);
    munmap(place, 4096);
    munmap(place + 4096, pages - 4096);
    counts(id);
    /* Over itself, and beside itself. */
    place = at(id, NULL, 0);
    printf("%s\n", at(id, place, SHM_REMAP) == place ? "the same place" : "another place");
    counts(id);
    detach(place);
    counts(id);
    char *two = mmap(NULL, 2 * pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(two, 2 * pages);
    at(id, two + pages, 0);
    at(id, two, 0);
    counts(id);
    detach(two);
    detach(two + pages);
    counts(id);
    control("remove", id, IPC_RMID, NULL);
}

static int known_id;
static char *known_place;
static volatile int alarms;

static void attaches_in_handler(int signal) {
    (void)signal;
    char *place = shmat(known_id, NULL, SHM_RDONLY);
    if (place != (void *)-1 && place[0] == 5 && !shmdt(place))
        alarms++;
    /* What it disturbs goes on for as long, however slow these calls are. */
    ualarm(2000, 0);
}

static void *is_cancelled(void *unused) {
    (void)unused;
    pthread_cancel(pthread_self());
    char *place = shmat(known_id, NULL, 0);
    shmdt(place);
    return place == (void *)-1 ? NULL : known_place;
}

/* Handlers of signals and the cancelling of threads in the midst of calls. */
static void disturbing(void) {
    known_id = get(key, size, IPC_CREAT | 0600);
    known_place = at(known_id, NULL, 0);
    known_place[0] = 5;
    signal(SIGALRM, attaches_in_handler);
    ualarm(2000, 0);
    while (alarms < 30) {
        errno = 77;
        char *place = shmat(known_id, NULL, 0);
        if (place == (void *)-1 || shmdt(place))
            printf("disturbed: %s\n", said(1));
    }
    signal(SIGALRM, SIG_IGN);
    pthread_t thread;
    void *ended;
    pthread_create(&thread, NULL, is_cancelled, NULL);
    pthread_join(thread, &ended);
    printf("%s\n", ended == known_place ? "not cancelled in the midst" : "cancelled");
    counts(known_id);
    detach(known_place);
    control("remove", known_id, IPC_RMID, NULL);
}

/* A program that closes what it does not know. */
static void closing(void) {
    int id = get(key, size, IPC_CREAT | 0600);
    char *place = at(id, NULL, 0);
    closefrom(3);
    place[0] = 3;
    char *again = at(id, NULL, SHM_RDONLY);
    printf("%d\n", again[0]);
    detach(place);
    detach(again);
    control("remove", id, IPC_RMID, NULL);
}

/* Leaves a segment that is removed and attached, by its own end or by a kill. */
static void leaving(void) {
    for (int killed = 0; killed < 2; killed++) {
        int id = get(IPC_PRIVATE, size, 0600);
        char *place = at(id, NULL, 0);
        control("remove", id, IPC_RMID, NULL);
        pid_t other = child(killed ? waits : exits, id, place);
        detach(place);
        if (killed)
            kill(other, SIGKILL);
        end(other);
        rights(id);
    }
}

/* Many that make, attach and remove the same segment: what they are answered is what could happen to them. */
static void racing(void) {
    for (int number = 0; number < 4; number++)
        if (!fork()) {
            for (int round = 0; round < 150; round++) {
                int id = shmget(key, size, IPC_CREAT | 0600 | get_flags);
                if (id < 0 && errno != EIDRM && errno != EINVAL) {
                    printf("get: %s\n", said(1));
                    _exit(1);
                }
                if (id < 0)
                    continue;
                char *place = shmat(id, NULL, at_flags);
                if (place == (void *)-1) {
                    if (errno != EINVAL && errno != EIDRM) {
                        printf("attach: %s\n", said(1));
                        _exit(1);
                    }
                    continue;
                }
                place[size - 1] = 1;
                if (round % 3 == number % 3 && shmctl(id, IPC_RMID, NULL) && errno != EINVAL && errno != EIDRM) {
                    printf("remove: %s\n", said(1));
                    _exit(1);
                }
                if (shmdt(place)) {
                    printf("detach: %s\n", said(1));
                    _exit(1);
                }
            }
            _exit(0);
        }
    for (int number = 0; number < 4; number++)
        end(-1);
    shmctl(shmget(key, 0, 0), IPC_RMID, NULL);
}

static void idle(void) {
    for (;;)
        pause();
}

static void creating(void) { get(key, size, IPC_CREAT | 0600); }

/* For a test that says what to do next: attaches, says so, and reads a byte at each line. */
static void holding(void) {
    int id = shmget(key, size, IPC_CREAT | 0600 | get_flags);
    char *place = id < 0 ? (void *)-1 : shmat(id, NULL, at_flags);
    int offset, value;
    printf("%d %s\n", id, said(place == (void *)-1));
    fflush(stdout);
    while (scanf("%d %d", &offset, &value) == 2) {
        printf("%d\n", place[offset]);
        place[offset] = (char)value;
        fflush(stdout);
    }
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"making", making},   {"attaching", attaching}, {"placing", placing}, {"counting", counting},
        {"removing", removing}, {"sharing", sharing},   {"listing", listing}, {"closing", closing},
        {"leaving", leaving}, {"unmapping", unmapping}, {"disturbing", disturbing}, {"racing", racing},       {"idle", idle}, {"creating", creating},       {"holding", holding},
    };
    if (count != 6)
        return 2;
    own_path = words[0];
    key = (key_t)strtol(words[2], NULL, 0);
    size = strtoul(words[3], NULL, 0);
    get_flags = (int)strtol(words[4], NULL, 0);
    at_flags = (int)strtol(words[5], NULL, 0);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, words[1])) {
            all[i].run();
            return 0;
        }
    return 2;
}

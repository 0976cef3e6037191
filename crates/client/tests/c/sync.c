/* Locks by name from C: two processes, the death of one, and a program of pthread's with names. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "commonhold.h"
#define COMMONHOLD_PTHREAD
#include "commonhold_sync.h"

static ch_mutex *turn;
static ch_rwlock *book;

static int tries(void) { return ch_mutex_trylock(turn); }
static int locks_and_ends(void) { return ch_mutex_lock(turn); }
static int reads(void) { return ch_rwlock_tryrdlock(book); }

static void mutexes(void) {
    CHECK(!ch_mutex_open("/c/turn", 0, 0600, 1) && errno == ENOENT);
    CHECK(!ch_mutex_open("/c/turn", 8, 0600, 1) && errno == EINVAL);
    turn = ch_mutex_open("/c/turn", CH_SYNC_CREATE, 0600, 2);
    CHECK(turn);
    ch_mutex *of_hosts = ch_mutex_open("/c/far", CH_SYNC_CREATE | CH_SYNC_HOSTS, 0600, 1);
    CHECK(of_hosts && !ch_mutex_lock(of_hosts) && ch_mutex_lock(of_hosts) == EDEADLK);
    CHECK(!ch_mutex_unlock(of_hosts));
    ch_mutex_close(of_hosts);
    CHECK(!ch_mutex_open("/c/turn", CH_SYNC_CREATE | CH_SYNC_EXCLUSIVE, 0600, 2) && errno == EEXIST);
    CHECK(!ch_counter_open("/c/turn", 0, 0600, 1) && errno == EPROTOTYPE);
    CHECK(strstr(ch_last_error(), "is no counter"));
    errno = 77;
    CHECK(ch_mutex_lock(turn) == 0);
    CHECK(ch_mutex_lock(turn) == EDEADLK);
    CHECK(ch_mutex_trylock(turn) == EDEADLK);
    CHECK(errno == 77);
    CHECK(in_child(tries) == EBUSY);
    CHECK(strstr(ch_last_error(), "this thread has it"));
    ch_mutex *second = ch_mutex_at(turn, 1);
    CHECK(second && ch_mutex_lock(second) == 0 && ch_mutex_unlock(second) == 0 && ch_mutex_close(second) == 0);
    CHECK(!ch_mutex_at(turn, 2) && errno == EINVAL);
    CHECK(ch_mutex_unlock(turn) == 0);
    CHECK(ch_mutex_unlock(turn) == EPERM);
    CHECK(ch_mutex_lock(NULL) == EINVAL);
    /* Its owner ends: the next one has it, and is told so until it is mended. */
    CHECK(in_child(locks_and_ends) == 0);
    CHECK(ch_mutex_timedlock(turn, 60000) == EOWNERDEAD);
    CHECK(ch_mutex_unlock(turn) == 0);
    CHECK(ch_mutex_lock(turn) == EOWNERDEAD);
    CHECK(ch_mutex_consistent(turn) == 0);
    CHECK(ch_mutex_unlock(turn) == 0);
    CHECK(ch_mutex_lock(turn) == 0 && ch_mutex_unlock(turn) == 0);
}

/* A name below a prefix, until the next one is made. */
static const char *below(const char *prefix, const char *name) {
    static char whole[64];
    snprintf(whole, sizeof whole, "%s/%s", prefix, name);
    return whole;
}

/* Of this host alone, or of all hosts: flags. */
static void others(const char *prefix, int flags) {
    int create = CH_SYNC_CREATE | flags;
    book = ch_rwlock_open(below(prefix, "book"), create, 0600, 1);
    CHECK(book && ch_rwlock_rdlock(book) == 0 && in_child(reads) == 0 && ch_rwlock_unlock(book) == 0);
    CHECK(ch_rwlock_timedwrlock(book, 60000) == 0 && in_child(reads) == EBUSY && ch_rwlock_unlock(book) == 0);
    CHECK(ch_rwlock_unlock(book) == EPERM && ch_rwlock_close(book) == 0);

    ch_sem *places = ch_sem_open(below(prefix, "places"), create, 0600, 1, 1);
    CHECK(places && ch_sem_wait(places) == 0 && ch_sem_trywait(places) == EBUSY);
    CHECK(ch_sem_timedwait(places, 10) == ETIMEDOUT && ch_sem_post(places, 2) == 0 && ch_sem_value(places) == 2);
    CHECK(!ch_sem_open(below(prefix, "more"), create, 0600, 1, 0x80000000u) && errno == EINVAL);
    CHECK(ch_sem_close(places) == 0);

    ch_counter *next = ch_counter_open(below(prefix, "next"), create, 0600, 1);
    CHECK(next && ch_counter_add(next, 5) == 0 && ch_counter_value(next) == 5);
    uint64_t value = 4;
    CHECK(ch_counter_exchange(next, &value, 9) == EAGAIN && value == 5);
    CHECK(ch_counter_exchange(next, &value, 9) == 0 && ch_counter_wait(next, &value, 0) == 0 && value == 9);
    CHECK(ch_counter_wait(next, &value, 10) == ETIMEDOUT);
    CHECK(ch_counter_close(next) == 0);

    ch_barrier *start = ch_barrier_open(below(prefix, "start"), create, 0600, 1, 1);
    CHECK(start && ch_barrier_wait(start) == CH_BARRIER_LAST);
    CHECK(!ch_barrier_open(below(prefix, "start"), create, 0600, 1, 2) && errno == EPROTOTYPE);
    CHECK(ch_barrier_close(start) == 0);
}

/* A program of pthread's as it was written, but for the names. */
static pthread_mutex_t lock;
static pthread_cond_t filled;
static pthread_barrier_t begun;

static int consumes(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 60;
    pthread_barrier_wait(&begun);
    if (pthread_mutex_timedlock(&lock, &end)) return 1;
    ch_counter *items = ch_counter_open("/c/items", 0, 0, 0);
    while (items && ch_counter_value(items) == 0) {
        if (pthread_cond_timedwait(&filled, &lock, &end)) return 2;
    }
    return pthread_mutex_unlock(&lock) ? 3 : 0;
}

static void ported(void) {
    CHECK(pthread_mutex_init(&lock, "/c/lock") == 0);
    CHECK(pthread_cond_init(&filled, "/c/filled") == 0);
    CHECK(pthread_barrier_init(&begun, "/c/begun", 2) == 0);
    ch_counter *items = ch_counter_open("/c/items", CH_SYNC_CREATE, 0600, 1);
    CHECK(items);
    pid_t child = fork();
    if (child == 0) _exit(consumes());
    pthread_barrier_wait(&begun);
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    CHECK(pthread_mutex_lock(&lock) == 0);
    ch_counter_add(items, 1);
    CHECK(pthread_cond_signal(&filled) == 0 && pthread_mutex_unlock(&lock) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(pthread_mutex_lock(&lock) == 0 && pthread_cond_timedwait(&filled, &lock, &now) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&lock) == 0 && pthread_mutex_destroy(&lock) == 0 && pthread_cond_destroy(&filled) == 0);
    CHECK(pthread_barrier_destroy(&begun) == 0 && ch_counter_close(items) == 0);
}

int main(void) {
    mutexes();
    others("/c/here", 0);
    others("/c/all", CH_SYNC_HOSTS);
    ported();
    puts("ok");
    return 0;
}

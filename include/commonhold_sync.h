/* commonhold_sync.h - locks with names, for the threads of all processes (docs/PRIMITIVES.md).
 *
 *     ch_mutex *turn = ch_mutex_open("/lab/turn", CH_SYNC_CREATE, 0600, 1);
 *     int error = ch_mutex_lock(turn);
 *     if (error == EOWNERDEAD) { mend(); ch_mutex_consistent(turn); }
 *     ...
 *     ch_mutex_unlock(turn);
 *
 * Shaped like pthread's. Functions that give a pointer return NULL on failure, and set errno; those that return int
 * return 0 or an error number, as pthread's do, and leave errno alone. ch_last_error() (commonhold.h) tells the whole
 * story of the thread's last failure. Times are milliseconds: -1 is for ever, 0 not at all.
 *
 *   EBUSY         not free now (try…)
 *   ETIMEDOUT     the time is over
 *   EOWNERDEAD    the process of the last owner ended with it: this thread has it, and what it guards may be half changed
 *   EDEADLK       this thread has it already
 *   EPERM         this thread does not have it
 *   ECANCELED     the barrier's round was broken: a process that it waits for ended, or somebody gave it up
 *   EMFILE        more processes at once than a rwlock or barrier takes (60)
 *   EPROTOTYPE    the object is another thing
 *
 * Each object holds one of its kind, or as many as it was created with: ch_…_at() gives the others. A handle is closed
 * once; it may be used by any thread, and by fork children. */
#ifndef COMMONHOLD_SYNC_H
#define COMMONHOLD_SYNC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ch_mutex ch_mutex;
typedef struct ch_cond ch_cond;
typedef struct ch_rwlock ch_rwlock;
typedef struct ch_sem ch_sem;
typedef struct ch_barrier ch_barrier;
typedef struct ch_counter ch_counter;

enum {
    CH_SYNC_CREATE = 1,   /* if there is none, create it, with the mode and count that are given */
    CH_SYNC_EXCLUSIVE = 2, /* with CH_SYNC_CREATE: if there is one, EEXIST */
    CH_SYNC_HOSTS = 4      /* with CH_SYNC_CREATE: processes of all hosts use it */
};

/* Opens one; mode and count are of no account unless it is created. */
ch_mutex *ch_mutex_open(const char *name, int flags, uint32_t mode, uint32_t count);
ch_cond *ch_cond_open(const char *name, int flags, uint32_t mode, uint32_t count);
ch_rwlock *ch_rwlock_open(const char *name, int flags, uint32_t mode, uint32_t count);
ch_counter *ch_counter_open(const char *name, int flags, uint32_t mode, uint32_t count);
/* The value that it begins with, if it is created: at most 2147483647. */
ch_sem *ch_sem_open(const char *name, int flags, uint32_t mode, uint32_t count, uint32_t value);
/* How many threads it waits for. One that is there has to wait for as many (EPROTOTYPE). */
ch_barrier *ch_barrier_open(const char *name, int flags, uint32_t mode, uint32_t count, uint32_t parties);

/* Number index of the same object, from 0 on: a handle of its own. */
ch_mutex *ch_mutex_at(const ch_mutex *mutex, uint32_t index);
ch_cond *ch_cond_at(const ch_cond *cond, uint32_t index);
ch_rwlock *ch_rwlock_at(const ch_rwlock *lock, uint32_t index);
ch_sem *ch_sem_at(const ch_sem *semaphore, uint32_t index);
ch_barrier *ch_barrier_at(const ch_barrier *barrier, uint32_t index);
ch_counter *ch_counter_at(const ch_counter *counter, uint32_t index);

/* With the last handle of an object its locks are let go: to others as if their owner had died. */
int ch_mutex_close(ch_mutex *mutex);
int ch_cond_close(ch_cond *cond);
int ch_rwlock_close(ch_rwlock *lock);
int ch_sem_close(ch_sem *semaphore);
int ch_barrier_close(ch_barrier *barrier);
int ch_counter_close(ch_counter *counter);

/* Takes it. EOWNERDEAD is said again, to each who takes it, until an owner calls ch_mutex_consistent(). */
int ch_mutex_lock(const ch_mutex *mutex);
int ch_mutex_trylock(const ch_mutex *mutex);
int ch_mutex_timedlock(const ch_mutex *mutex, int timeout_ms);
int ch_mutex_unlock(const ch_mutex *mutex);
int ch_mutex_consistent(const ch_mutex *mutex);

/* Lets the mutex go, waits for a signal, and takes it again, however long that takes; may return without a signal. This
 * thread has the mutex after 0, ETIMEDOUT and EOWNERDEAD. */
int ch_cond_wait(const ch_cond *cond, const ch_mutex *mutex);
int ch_cond_timedwait(const ch_cond *cond, const ch_mutex *mutex, int timeout_ms);
int ch_cond_signal(const ch_cond *cond);
int ch_cond_broadcast(const ch_cond *cond);

/* To read: EOWNERDEAD means that this thread does not have it: a writer died, and another has to mend what it wrote.
 * To write: as a mutex. Who waits to write goes before readers that come later. */
int ch_rwlock_rdlock(const ch_rwlock *lock);
int ch_rwlock_tryrdlock(const ch_rwlock *lock);
int ch_rwlock_timedrdlock(const ch_rwlock *lock, int timeout_ms);
int ch_rwlock_wrlock(const ch_rwlock *lock);
int ch_rwlock_trywrlock(const ch_rwlock *lock);
int ch_rwlock_timedwrlock(const ch_rwlock *lock, int timeout_ms);
int ch_rwlock_unlock(const ch_rwlock *lock);
int ch_rwlock_consistent(const ch_rwlock *lock);

/* It belongs to nobody: what a process took that ended is not given back. */
int ch_sem_wait(const ch_sem *semaphore);
int ch_sem_trywait(const ch_sem *semaphore);
int ch_sem_timedwait(const ch_sem *semaphore, int timeout_ms);
int ch_sem_post(const ch_sem *semaphore, uint32_t more);
uint32_t ch_sem_value(const ch_sem *semaphore);

/* CH_BARRIER_LAST to the thread that came last, 0 to the others. After ETIMEDOUT this one was not there. */
enum { CH_BARRIER_LAST = -1 };
int ch_barrier_wait(const ch_barrier *barrier);
int ch_barrier_timedwait(const ch_barrier *barrier, int timeout_ms);
int ch_barrier_abort(const ch_barrier *barrier);

/* Adds, modulo 2^64; gives what it was. NULL, or of one that hosts share and cannot be had any more: 0, and an error number. */
uint64_t ch_counter_add(const ch_counter *counter, uint64_t more);
uint64_t ch_counter_value(const ch_counter *counter);
/* Makes it `wanted` if it is *expected (0); else sets *expected to what it is (EAGAIN). */
int ch_counter_exchange(const ch_counter *counter, uint64_t *expected, uint64_t wanted);
/* Waits until it is another than *value; sets *value to what it is. */
int ch_counter_wait(const ch_counter *counter, uint64_t *value, int timeout_ms);

#ifdef __cplusplus
}
#endif

/* ---- To port a program that shares pthread objects -------------------------------------------------------------
 *
 * Define COMMONHOLD_PTHREAD, include this header after <pthread.h> and <semaphore.h>, and give names where the program
 * gave attributes: pthread_mutex_init(&m, "/lab/turn") opens or creates /lab/turn, with the mode 0600. The rest of the
 * program stays as it is. Each process initialises its own variable; destroy closes it, and the object stays. */
#ifdef COMMONHOLD_PTHREAD
#include <errno.h>
#include <time.h>

static inline int ch_sync_ms_until(const struct timespec *end) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t left = (int64_t)(end->tv_sec - now.tv_sec) * 1000 + (end->tv_nsec - now.tv_nsec + 999999) / 1000000;
    return left < 0 ? 0 : left > 2147483647 ? 2147483647 : (int)left;
}
static inline int ch_sync_opened(const void *handle) { return handle ? 0 : errno; }
static inline int ch_sync_late(int error) { return error == EBUSY ? ETIMEDOUT : error; }

#define pthread_mutex_t ch_mutex *
#define pthread_mutex_init(m, name) ch_sync_opened(*(m) = ch_mutex_open(name, CH_SYNC_CREATE, 0600, 1))
#define pthread_mutex_destroy(m) ch_mutex_close(*(m))
#define pthread_mutex_lock(m) ch_mutex_lock(*(m))
#define pthread_mutex_trylock(m) ch_mutex_trylock(*(m))
#define pthread_mutex_timedlock(m, end) ch_sync_late(ch_mutex_timedlock(*(m), ch_sync_ms_until(end)))
#define pthread_mutex_unlock(m) ch_mutex_unlock(*(m))
#define pthread_mutex_consistent(m) ch_mutex_consistent(*(m))

#define pthread_cond_t ch_cond *
#define pthread_cond_init(c, name) ch_sync_opened(*(c) = ch_cond_open(name, CH_SYNC_CREATE, 0600, 1))
#define pthread_cond_destroy(c) ch_cond_close(*(c))
#define pthread_cond_wait(c, m) ch_cond_wait(*(c), *(m))
#define pthread_cond_timedwait(c, m, end) ch_cond_timedwait(*(c), *(m), ch_sync_ms_until(end))
#define pthread_cond_signal(c) ch_cond_signal(*(c))
#define pthread_cond_broadcast(c) ch_cond_broadcast(*(c))

#define pthread_rwlock_t ch_rwlock *
#define pthread_rwlock_init(l, name) ch_sync_opened(*(l) = ch_rwlock_open(name, CH_SYNC_CREATE, 0600, 1))
#define pthread_rwlock_destroy(l) ch_rwlock_close(*(l))
#define pthread_rwlock_rdlock(l) ch_rwlock_rdlock(*(l))
#define pthread_rwlock_tryrdlock(l) ch_rwlock_tryrdlock(*(l))
#define pthread_rwlock_timedrdlock(l, end) ch_sync_late(ch_rwlock_timedrdlock(*(l), ch_sync_ms_until(end)))
#define pthread_rwlock_wrlock(l) ch_rwlock_wrlock(*(l))
#define pthread_rwlock_trywrlock(l) ch_rwlock_trywrlock(*(l))
#define pthread_rwlock_timedwrlock(l, end) ch_sync_late(ch_rwlock_timedwrlock(*(l), ch_sync_ms_until(end)))
#define pthread_rwlock_unlock(l) ch_rwlock_unlock(*(l))

#define pthread_barrier_t ch_barrier *
#define pthread_barrier_init(b, name, n) ch_sync_opened(*(b) = ch_barrier_open(name, CH_SYNC_CREATE, 0600, 1, n))
#define pthread_barrier_destroy(b) ch_barrier_close(*(b))
#define pthread_barrier_wait(b) ch_barrier_wait(*(b))
#endif

#endif

/* A thread that is cancelled in the middle of a call ends after it, and the library goes on. */
#include "commonhold.h"

#include <pthread.h>
#include <stdio.h>

static int calls;

static void *cancelled(void *unused) {
    (void)unused;
    /* From now on the first cancellation point ends the thread. The call has to connect, and sleeps meanwhile. */
    pthread_cancel(pthread_self());
    ch_object *o = ch_open("/a", CH_READ);
    calls += o != NULL;
    if (o && ch_close(o) == 0) calls++;
    pthread_testcancel();
    calls += 100;
    return NULL;
}

int main(void) {
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, cancelled, NULL) != 0 || pthread_join(thread, &result) != 0) return 2;
    if (calls != 2 || result != PTHREAD_CANCELED) {
        fprintf(stderr, "%d calls, %s: %s\n", calls, result == PTHREAD_CANCELED ? "cancelled" : "not", ch_last_error());
        return 1;
    }
    ch_object *o = ch_open("/a", CH_READ);
    if (!o || ch_close(o) != 0) {
        fprintf(stderr, "%s\n", ch_last_error());
        return 1;
    }
    puts("ok");
    return 0;
}

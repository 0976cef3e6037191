/* Watches from C: a notification by another process, poll(), a signal, wrong ranges. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "commonhold.h"

static char *bytes;

static int notifies(void) {
    bytes[100] = 7;
    return ch_notify(bytes + 100, 1);
}

static int waits_for_its_parents(void *watch) { return ch_watch_wait(watch, 0); }
static void *parents;
static int waits(void) { return waits_for_its_parents(parents) == -1 && errno == EINVAL ? 0 : 1; }

static void on_alarm(int signal) { (void)signal; }

int main(void) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 8200;
    ch_object *o = ch_create("/c/watched", &options);
    CHECK(o);
    bytes = ch_map(NULL, 0, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0);
    CHECK(bytes);
    ch_watcher *near = ch_watch(bytes + 96, 8), *far = ch_watch(bytes + 8192, 4096);
    CHECK(near && far);
    struct pollfd polled = {.fd = ch_watch_fd(near), .events = POLLIN};
    CHECK(polled.fd >= 0 && poll(&polled, 1, 0) == 0 && ch_watch_wait(near, 0) == 0);
    CHECK(in_child(notifies) == 0);
    CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
    CHECK(ch_watch_wait(near, -1) == 1 && bytes[100] == 7 && ch_watch_wait(near, 20) == 0);
    CHECK(ch_watch_wait(far, 0) == 0);
    CHECK(ch_notify(bytes, 8200) == 0 && ch_watch_wait(far, -1) == 1 && ch_watch_wait(near, -1) == 1);
    parents = near;
    CHECK(in_child(waits) == 0);
    /* A signal ends a wait, whatever SA_RESTART says. */
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    CHECK(!sigaction(SIGALRM, &action, NULL));
    alarm(1);
    CHECK(ch_watch_wait(near, -1) == -1 && errno == EINTR && strstr(ch_last_error(), "wait again"));
    CHECK(!ch_watch(bytes, 0) && errno == EINVAL);
    CHECK(!ch_watch(bytes + 8200, 1) && errno == EINVAL);
    CHECK(!ch_watch(bytes, 3 * 4096 + 1));
    CHECK(!ch_watch(&options, 1) && errno == ENOENT);
    CHECK(ch_notify(&options, 1) == -1 && errno == ENOENT);
    CHECK(ch_watch_fd(NULL) == -1 && errno == EINVAL && ch_watch_wait(NULL, 0) == -1 && ch_watch_close(NULL) == -1);
    CHECK(!ch_watch_close(near) && !ch_watch_close(far));
    ch_object *reads = ch_open("/c/watched", CH_READ);
    char *seen = ch_map(NULL, 0, CH_PROT_READ, CH_SHARED, reads, 0);
    ch_watcher *reader = ch_watch(seen, 1);
    CHECK(reader && ch_notify(seen, 1) == -1 && errno == EACCES && ch_watch_wait(reader, 0) == 0);
    CHECK(ch_notify(bytes, 1) == 0 && ch_watch_wait(reader, -1) == 1 && !ch_watch_close(reader));
    CHECK(!ch_unmap(seen, 3 * 4096) && !ch_unmap(bytes, 3 * 4096) && !ch_close(reads) && !ch_close(o));
    puts("ok");
    return 0;
}

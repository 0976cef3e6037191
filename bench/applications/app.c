/* See app.h. */
#define _GNU_SOURCE
#include "app.h"

#include <commonhold.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_ACTIVITIES 64

/* The first page of what is shared: what all activities have to agree on. */
struct app_header {
    char name[16];
    uint64_t size, steps, seed, bytes, page_size;
    uint32_t activities, locks, sync_kind;
    _Atomic uint32_t filled; /* activity 0 has put in what they begin with */
    _Atomic uint32_t there[MOST_ACTIVITIES];
};

_Static_assert(sizeof(struct app_header) <= APP_PAGE, "the header is one page");

/* ---- What is said ---- */

void app_fail(const app *app, const char *format, ...) {
    char text[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: activity %u: %s\n", app->kind->name, app->me, text);
    exit(1);
}

/* A page that cannot be had: its host is lost, or did not answer before the fault deadline. */
static void on_bus_error(int signal) {
    static const char text[] = "a page of the shared memory cannot be had (SIGBUS)\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(4); /* nobody hears it; the exit code says it, too */
    _exit(3);
}

void *app_take(const app *app, size_t bytes) {
    void *taken = malloc(bytes ? bytes : 1);
    if (!taken) app_fail(app, "there is no memory for %zu bytes", bytes);
    return taken;
}

/* ---- Arguments ---- */

static const char USAGE[] =
    "--memory plain|NAME   memory of the program's own, or an object (plain)\n"
    "--scheduler WORD      of the object: forwarding, central, local (forwarding)\n"
    "--page-size BYTES     what goes from host to host at once (4096)\n"
    "--activities N        processes in all (1)\n"
    "--index I             only activity I is started here; 0 creates the object\n"
    "--sync memory|named   words in the shared memory, or locks with names (memory)\n"
    "--size N --steps N --seed N\n"
    "--deadline SECONDS    no wait for another activity or a page takes longer (60)\n"
    "--touch               one activity: all memory is touched before the time counts\n"
    "--stepped             says `ready` and `done`, and waits for a line each time\n";

static uint64_t number(app *app, const char *what, const char *text, uint64_t least,
                       uint64_t most) {
    char *end;
    errno = 0;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || *text == '-' || value < least || value > most) {
        app_fail(app, "%s takes a number from %llu to %llu", what, (unsigned long long)least,
                 (unsigned long long)most);
    }
    return value;
}

static int one_of(app *app, const char *what, const char *text, const char *const *words) {
    for (int i = 0; words[i]; i++) {
        if (text && !strcmp(text, words[i])) return i;
    }
    app_fail(app, "%s cannot be %s", what, text ? text : "empty");
}

static void read_argument(app *app, const char *word, const char *value) {
    static const char *const schedulers[] = {"forwarding", "central", "local", NULL};
    static const char *const kinds[] = {"memory", "named", NULL};
    static const int coherences[] = {CH_FORWARDING, CH_CENTRAL, CH_LOCAL};
    if (!strcmp(word, "--memory") && value)
        app->memory = value;
    else if (!strcmp(word, "--scheduler"))
        app->scheduler = coherences[one_of(app, word, value, schedulers)];
    else if (!strcmp(word, "--sync"))
        app->sync_kind = one_of(app, word, value, kinds) ? SYNC_NAMED : SYNC_MEMORY;
    else if (!strcmp(word, "--activities"))
        app->activities = number(app, word, value, 1, MOST_ACTIVITIES);
    else if (!strcmp(word, "--page-size"))
        app->page_size = number(app, word, value, APP_PAGE, 2 << 20);
    else if (!strcmp(word, "--index"))
        app->me = number(app, word, value, 0, MOST_ACTIVITIES - 1), app->alone = 1;
    else if (!strcmp(word, "--size"))
        app->size = number(app, word, value, app->kind->least, app->kind->most);
    else if (!strcmp(word, "--steps"))
        app->steps = number(app, word, value, 1, 1000000);
    else if (!strcmp(word, "--seed"))
        app->seed = number(app, word, value, 0, UINT64_MAX);
    else if (!strcmp(word, "--deadline"))
        app->deadline_ms = 1000 * number(app, word, value, 1, 86400);
    else
        app_fail(app, "there is no argument %s\n%s", word, USAGE);
}

void app_arguments(app *app, const app_kind *kind, int argc, char **argv) {
    *app = (struct app){.kind = kind,
                        .memory = "plain",
                        .scheduler = CH_FORWARDING,
                        .activities = 1,
                        .size = kind->size,
                        .steps = kind->steps,
                        .seed = 1,
                        .deadline_ms = 60000,
                        .page_size = APP_PAGE};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--touch"))
            app->touch = 1;
        else if (!strcmp(argv[i], "--stepped"))
            app->stepped = 1;
        else {
            read_argument(app, argv[i], argv[i + 1]);
            i++;
        }
    }
    int plain = !strcmp(app->memory, "plain");
    if (app->page_size & (app->page_size - 1)) app_fail(app, "--page-size takes a power of two");
    if (app->me >= app->activities)
        app_fail(app, "there are %u activities, and none has this number", app->activities);
    if (plain && app->sync_kind == SYNC_NAMED)
        app_fail(app, "plain memory has no name for locks: --memory NAME");
    if (plain && app->alone && app->activities > 1)
        app_fail(app, "activities that are started alone meet in --memory NAME");
    if (app->touch && app->activities > 1)
        app_fail(app, "what several activities share, --touch would share already");
}

/* ---- Memory that is shared ---- */

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void short_sleep(void) {
    struct timespec sleep = {0, 1000000};
    nanosleep(&sleep, NULL); /* whoever sleeps looks again anyway */
}

static ch_object *create(app *app) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = app->whole_bytes;
    options.coherence = app->scheduler;
    if (app->page_size > APP_PAGE) options.page_size_bytes = app->page_size;
    /* Pages of a local object are not waited for. */
    if (app->scheduler != CH_LOCAL) options.fault_deadline_ms = app->deadline_ms;
    options.description = app->kind->name;
    ch_object *object = ch_create(app->memory, &options);
    if (!object) app_fail(app, "%s", ch_last_error());
    return object;
}

/* Activity 0 may not have made it yet, or this host has not joined its cluster yet. */
static ch_object *open_late(app *app) {
    int64_t end = now_ms() + app->deadline_ms;
    for (;;) {
        ch_object *object = ch_open(app->memory, CH_READ | CH_WRITE);
        if (object) return object;
        int is_late = errno == ENOENT || errno == ECONNREFUSED;
        if (!is_late || now_ms() > end) app_fail(app, "%s", ch_last_error());
        short_sleep();
    }
}

/* Who begins with other arguments than activity 0 would compute something else, or wait. */
static void agree(app *app, uint32_t locks) {
    struct app_header *header = app->header;
    int64_t end = now_ms() + app->deadline_ms;
    while (!atomic_load(&header->filled)) {
        if (now_ms() > end)
            app_fail(app, "activity 0 did not begin within %d s", app->deadline_ms / 1000);
        short_sleep();
    }
    if (strcmp(header->name, app->kind->name))
        app_fail(app, "%s is memory of %.15s", app->memory, header->name);
    if (header->activities != app->activities) {
        app_fail(app, "%s is for %u activities, not for %u", app->memory, header->activities,
                 app->activities);
    }
    if (header->size != app->size || header->steps != app->steps || header->seed != app->seed) {
        app_fail(app, "%s has size %llu, steps %llu and seed %llu", app->memory,
                 (unsigned long long)header->size, (unsigned long long)header->steps,
                 (unsigned long long)header->seed);
    }
    if (header->sync_kind != app->sync_kind || header->locks != locks ||
        header->bytes != app->bytes || header->page_size != app->page_size) {
        app_fail(app, "activity 0 waits for the others in another way, or has other pages: "
                      "--sync, --page-size");
    }
}

static void map_object(app *app) {
    ch_object *object = app->me == 0 ? create(app) : open_late(app);
    ch_info info = {.struct_bytes = sizeof info};
    if (ch_object_info(object, &info)) app_fail(app, "%s", ch_last_error());
    if (info.size_bytes < app->whole_bytes) {
        app_fail(app, "%s has %llu bytes, and %zu are needed: another size, or not an object of %s",
                 app->memory, (unsigned long long)info.size_bytes, app->whole_bytes,
                 app->kind->name);
    }
    app->header = ch_map(NULL, app->whole_bytes, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object,
                         0);
    if (!app->header) app_fail(app, "%s", ch_last_error());
    if (ch_close(object)) app_fail(app, "%s", ch_last_error()); /* the mapping stays */
}

static void map_plain(app *app) {
    void *memory = mmap(NULL, app->whole_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (memory == MAP_FAILED)
        app_fail(app, "there is no memory for %zu bytes: %s", app->whole_bytes, strerror(errno));
    app->header = memory;
}

/* ---- Processes ---- */

/* Ends those that run: they would wait for one that does not come. A 0 is none. */
static void end_all(const pid_t *children, uint32_t count) {
    for (uint32_t other = 0; other < count; other++) {
        if (children[other] > 0) kill(children[other], SIGTERM); /* not reaped: it is this child */
    }
}

/* Waits for all, in the process that started them. When one fails the others are ended. */
static _Noreturn void wait_for(app *app, pid_t *children) {
    int failed = 0, status;
    for (uint32_t left = app->activities; left > 0; left--) {
        pid_t ended = wait(&status);
        if (ended < 0) app_fail(app, "waiting for the activities: %s", strerror(errno));
        uint32_t which = 0;
        while (which < app->activities && children[which] != ended) which++;
        if (which < app->activities) children[which] = 0;
        if (failed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        failed = 1;
        if (WIFSIGNALED(status)) {
            fprintf(stderr, "%s: activity %u ended by signal %d\n", app->kind->name, which,
                    WTERMSIG(status));
        }
        end_all(children, app->activities);
    }
    exit(failed);
}

/* Returns in each activity, which ends with the process that started it. */
static void fork_all(app *app) {
    pid_t children[MOST_ACTIVITIES], parent = getpid();
    for (uint32_t other = 0; other < app->activities; other++) {
        children[other] = fork();
        if (children[other] < 0) {
            int error = errno;
            end_all(children, other);
            app_fail(app, "fork: %s", strerror(error));
        }
        if (children[other] == 0) {
            app->me = other;
            if (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent) exit(1);
            return;
        }
    }
    wait_for(app, children);
}

static void fill_header(app *app, uint32_t locks, void (*fill)(struct app *)) {
    struct app_header *header = app->header;
    snprintf(header->name, sizeof header->name, "%s", app->kind->name);
    header->size = app->size, header->steps = app->steps, header->seed = app->seed;
    header->page_size = app->page_size;
    header->bytes = app->bytes, header->activities = app->activities;
    header->locks = locks, header->sync_kind = app->sync_kind;
    fill(app);
}

void app_begin(app *app, size_t bytes, uint32_t locks, void (*fill)(struct app *)) {
    struct sigaction action = {.sa_handler = on_bus_error};
    if (sigaction(SIGBUS, &action, NULL)) app_fail(app, "sigaction: %s", strerror(errno));
    app->bytes = app_pages(bytes);
    uint64_t page = app->page_size;
    size_t before = (APP_PAGE + sync_bytes(locks) + page - 1) & ~(page - 1);
    app->whole_bytes = before + app->bytes;
    int plain = !strcmp(app->memory, "plain");
    if (plain) map_plain(app);
    if (!app->alone) fork_all(app);
    if (!plain) map_object(app);
    app->shared = (uint8_t *)app->header + before;
    if (app->me == 0)
        fill_header(app, locks, fill);
    else
        agree(app, locks);
    if (atomic_exchange(&app->header->there[app->me], 1))
        app_fail(app, "this activity is there already");
    sync_options options = {.kind = app->sync_kind,
                            .memory = (uint8_t *)app->header + APP_PAGE,
                            .name = app->memory,
                            .activities = app->activities,
                            .locks = locks,
                            .create = app->me == 0,
                            .deadline_ms = app->deadline_ms};
    app->sync = sync_open(&options);
    if (!app->sync) app_fail(app, "locks and barrier of %s: %s", app->memory, ch_last_error());
    if (app->me == 0) atomic_store(&app->header->filled, 1);
}

uint64_t app_share(const app *app, uint32_t activity, uint64_t all, uint64_t unit) {
    uint64_t units = (all + unit - 1) / unit;
    uint64_t first = units * activity / app->activities * unit;
    return first < all ? first : all;
}

/* ---- Waiting and counting ---- */

static void waited(app *app, int error, const char *what, uint32_t which) {
    if (!error) return;
    const char *why = error == ETIMEDOUT
                          ? "not within the deadline: an activity ended, or does not come"
                      : error == ECANCELED || error == EOWNERDEAD ? "an activity ended"
                                                                  : strerror(error);
    app_fail(app, "%s %u: %s", what, which, why);
}

void app_barrier(app *app) {
    app->barriers++;
    waited(app, sync_barrier(app->sync), "barrier", (uint32_t)app->barriers);
}

void app_lock(app *app, uint32_t lock) {
    app->locks++;
    waited(app, sync_lock(app->sync, lock), "lock", lock);
}

void app_unlock(app *app, uint32_t lock) {
    waited(app, sync_unlock(app->sync, lock), "lock", lock);
}

void app_pause(app *app, uint32_t looks) {
    if (looks == 0) app->pause_end_ms = 0;
    waited(app, sync_pause(app->sync, looks, &app->pause_end_ms), "look", looks);
}

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static uint64_t page_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

/* Says a word, and waits for a line: whoever started this looks at the hosts meanwhile. Of
 * activities that were started together the first does. */
static void step(app *app, const char *word) {
    if (!app->stepped || (!app->alone && app->me > 0)) return;
    printf("%s\n", word);
    fflush(stdout);
    for (int c; (c = getchar()) != '\n';) {
        if (c == EOF) app_fail(app, "nobody says how to go on after `%s`", word);
    }
}

static void touch_all(app *app) {
    for (size_t at = 0; at < app->bytes; at += APP_PAGE) {
        volatile uint8_t *byte = app->shared + at;
        *byte = *byte;
    }
}

void app_start(app *app) {
    if (app->touch) touch_all(app);
    step(app, "ready");
    app_barrier(app);
    app->counted[0] = app->barriers, app->counted[1] = app->locks;
    app->faults = page_faults();
    app->processor_begun = seconds(CLOCK_PROCESS_CPUTIME_ID);
    app->begun = seconds(CLOCK_MONOTONIC);
}

void app_stop(app *app) {
    app_barrier(app);
    app->elapsed = seconds(CLOCK_MONOTONIC) - app->begun;
    app->processor = seconds(CLOCK_PROCESS_CPUTIME_ID) - app->processor_begun;
    app->faults = page_faults() - app->faults;
    app->barriers -= app->counted[0], app->locks -= app->counted[1];
    step(app, "done");
}

void app_report(app *app, int right, const char *more) {
    int named = strcmp(app->memory, "plain");
    printf("{\"application\": \"%s\", \"activity\": %u, \"activities\": %u, \"memory\": \"%s\", "
           "\"sync\": \"%s\", "
           "\"size\": %llu, \"steps\": %llu, \"seed\": %llu, \"elapsed_s\": %.6f, \"processor_s\": "
           "%.6f, "
           "\"barriers\": %llu, \"locks\": %llu, \"faults\": %llu, \"right\": %s%s}\n",
           app->kind->name, app->me, app->activities, app->memory,
           app->sync_kind == SYNC_NAMED ? "named" : "memory", (unsigned long long)app->size,
           (unsigned long long)app->steps, (unsigned long long)app->seed, app->elapsed,
           app->processor, (unsigned long long)app->barriers, (unsigned long long)app->locks,
           (unsigned long long)app->faults, right ? "true" : "false", more);
    fflush(stdout);
    if (sync_close(app->sync, app->me == 0))
        app_fail(app, "closing the locks: %s", ch_last_error());
    if (named && app->me == 0 && ch_remove(app->memory)) app_fail(app, "%s", ch_last_error());
    exit(right ? 0 : 1);
}

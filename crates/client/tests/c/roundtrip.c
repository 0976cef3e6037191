/* Everything in commonhold.h once, good and bad, against the host that COMMONHOLD_HOST names.
 * With the argument "plain" (as against a pretended host) only what needs no paging is done; with "full" all. */
#define _POSIX_C_SOURCE 200809L
#include "commonhold.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u

static int failures;

static void fail(int line, const char *what) {
    fprintf(stderr, "roundtrip.c:%d: %s (errno %d, %s: %s)\n", line, what, errno, strerror(errno), ch_last_error());
    failures++;
}

#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition))
#define REFUSED(call, number) \
    (errno = 0, (call) == -1 && errno == (number) && *ch_last_error() ? (void)0 : fail(__LINE__, #call " -> " #number))
#define NO_POINTER(call, number) \
    (errno = 0, (call) == NULL && errno == (number) && *ch_last_error() ? (void)0 : fail(__LINE__, #call " -> " #number))

struct listing {
    int entries;
    int found;
};

static int each_entry(void *user, const ch_info *entry) {
    struct listing *listing = user;
    listing->entries++;
    listing->found |= strcmp(entry->name, "/c/direct") == 0;
    return 0;
}

static void null_arguments(void) {
    unsigned char state;
    ch_options options = CH_OPTIONS_INIT;
    ch_info info = {0};
    NO_POINTER(ch_open(NULL, CH_READ), EINVAL);
    NO_POINTER(ch_create(NULL, &options), EINVAL);
    NO_POINTER(ch_create("/c/x", NULL), EINVAL);
    NO_POINTER(ch_create_file("/c/x", &options, -1), EINVAL);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, NULL, 0), EINVAL);
    REFUSED(ch_map_many(NULL, 1), EINVAL);
    REFUSED(ch_close(NULL), EINVAL);
    ch_place place;
    REFUSED(ch_guard(NULL, &place), EINVAL);
    REFUSED(ch_unguard(NULL), EINVAL);
    REFUSED(ch_read(NULL, &state, 1, 0), EINVAL);
    REFUSED(ch_write(NULL, &state, 1, 0), EINVAL);
    REFUSED(ch_stat(NULL, &info), EINVAL);
    REFUSED(ch_stat("/c", NULL), EINVAL);
    REFUSED(ch_object_info(NULL, &info), EINVAL);
    REFUSED(ch_tag(NULL, 0, PAGE, "int32"), EINVAL);
    REFUSED(ch_tag_name(NULL, 0, PAGE, "int32"), EINVAL);
    REFUSED(ch_tag_name("/c/x", 0, PAGE, NULL), EINVAL);
    REFUSED(ch_tags(NULL, NULL, 0), EINVAL);
    REFUSED(ch_list(NULL, each_entry, NULL), EINVAL);
    REFUSED(ch_list("/c", NULL, NULL), EINVAL);
    REFUSED(ch_resize(NULL, PAGE), EINVAL);
    REFUSED(ch_remove(NULL), EINVAL);
    REFUSED(ch_rename(NULL, "/c/x"), EINVAL);
    REFUSED(ch_rename("/c/x", NULL), EINVAL);
    REFUSED(ch_chmod(NULL, 0600), EINVAL);
    REFUSED(ch_chown(NULL, 0, 0), EINVAL);
    REFUSED(ch_revert(NULL, NULL), EINVAL);
    REFUSED(ch_serve_pager(NULL, NULL), EINVAL);
    REFUSED(ch_serve_pager("/c/pager", NULL), EINVAL);
    REFUSED(ch_unmap(NULL, PAGE), ENOENT);
    REFUSED(ch_sync(NULL, PAGE), ENOENT);
    REFUSED(ch_incore(NULL, PAGE, &state), ENOENT);
    REFUSED(ch_incore(NULL, PAGE, NULL), EINVAL);
    ch_options_init(NULL);
}

static void bad_options(void) {
    ch_options options = CH_OPTIONS_INIT;
    NO_POINTER(ch_create("/c/x", &options), EINVAL); /* no size */
    options.size_bytes = PAGE;
    options.sync = 9;
    NO_POINTER(ch_create("/c/x", &options), EINVAL);
    options.sync = CH_SYNC_PLAIN;
    options.pager = CH_PAGER_EXTERNAL; /* without a name */
    NO_POINTER(ch_create("/c/x", &options), EINVAL);
    options.pager = CH_PAGER_FILE; /* without a file */
    NO_POINTER(ch_create("/c/x", &options), EINVAL);
    options.pager = CH_PAGER_ANONYMOUS;
    options.mode = 07777;
    NO_POINTER(ch_create("/c/x", &options), EINVAL);
    options.mode = 0600;
    options.struct_bytes = 8;
    NO_POINTER(ch_create("/c/x", &options), EINVAL);
    NO_POINTER(ch_open("relative", CH_READ), EINVAL);
    NO_POINTER(ch_open("/c/../x", CH_READ), EINVAL);
    NO_POINTER(ch_open("/c/\xff", CH_READ), EINVAL);
    NO_POINTER(ch_open("/c/none", CH_READ), ENOENT);
    NO_POINTER(ch_open("/c/none", 0), EINVAL);
}

static void page_sizes(void) {
    static const uint64_t bad[] = {1, 4095, 5000, 12288, 4 << 20, 4096ull << 32};
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 4 << 20;
    options.coherence = CH_STRICT;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        options.page_size_bytes = bad[n];
        NO_POINTER(ch_create("/c/paged", &options), EINVAL);
    }
    options.page_size_bytes = 2 << 20;
    ch_object *o = ch_create("/c/paged", &options);
    CHECK(o != NULL);
    CHECK(ch_close(o) == 0 && ch_remove("/c/paged") == 0);
    options.coherence = CH_EXPLICIT;
    NO_POINTER(ch_create("/c/paged", &options), EINVAL);
    options.coherence = CH_LOCAL;
    NO_POINTER(ch_create("/c/paged", &options), EINVAL);
}

static void snapshots(void) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 4 * PAGE;
    options.freezable = 1;
    ch_object *o = ch_create("/c/snapped", &options);
    uint32_t word = 42;
    CHECK(o != NULL && ch_write(o, &word, sizeof word, 2 * PAGE) == 0);
    NO_POINTER(ch_snapshot(o, "/c/s", 4, 0600, 0, 0), EINVAL);
    NO_POINTER(ch_snapshot(o, "/c/s", 0, 0600, 1, 0), EINVAL);
    NO_POINTER(ch_snapshot(o, "/c/s", 0, 0600, 0, 5 * PAGE), EINVAL);
    NO_POINTER(ch_snapshot(o, "/c/snapped", 0, 0600, 0, 0), EEXIST);
    NO_POINTER(ch_snapshot(NULL, "/c/s", 0, 0600, 0, 0), EINVAL);
    NO_POINTER(ch_snapshot_file(o, "/c/s", "s.bin", 0, 0600, 0, 0), EOPNOTSUPP);
    NO_POINTER(ch_snapshot_file(o, "/c/s", NULL, 0, 0600, 0, 0), EINVAL);
    NO_POINTER(ch_snapshot_file(o, "/c/s", "s.bin", 4, 0600, 0, 0), EINVAL);
    ch_object *s = ch_snapshot(o, "/c/s", 0, 0600, 0, 0);
    ch_object *t = ch_snapshot(o, "/c/t", CH_SNAPSHOT_WRITABLE | CH_SNAPSHOT_WHOLE, 0600, 2 * PAGE, PAGE);
    CHECK(s != NULL && t != NULL);
    if (!o || !s || !t) return;
    word = 43;
    CHECK(ch_write(o, &word, sizeof word, 2 * PAGE) == 0);
    CHECK(ch_read(s, &word, sizeof word, 2 * PAGE) == 0 && word == 42);
    CHECK(ch_read(t, &word, sizeof word, 0) == 0 && word == 42);
    word = 44;
    CHECK(ch_write(t, &word, sizeof word, 0) == 0);
    REFUSED(ch_write(s, &word, sizeof word, 0), EACCES);
    CHECK(ch_read(o, &word, sizeof word, 2 * PAGE) == 0 && word == 43);
    CHECK(ch_close(o) == 0 && ch_close(s) == 0 && ch_close(t) == 0);
    CHECK(ch_remove("/c/snapped") == 0 && ch_remove("/c/s") == 0 && ch_remove("/c/t") == 0);
}

static void direct_object(void) {
    unsigned char states[4], byte = 0;
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 4 * PAGE - 100;
    options.reserve = CH_RESERVE_NO;
    ch_object *o = ch_create("/c/direct", &options);
    CHECK(o != NULL);
    uint32_t *words = ch_map(NULL, 4 * PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0);
    CHECK(words != NULL);
    if (!o || !words) return;
    words[7] = 42;
    words[2 * PAGE / 4] = 43;
    CHECK(ch_sync(words, 4 * PAGE) == 0);
    CHECK(ch_sync(words, 4 * PAGE - 100) == 0); /* ends in the last page */
    REFUSED(ch_sync(words, PAGE + 1), EINVAL);
    REFUSED(ch_sync((char *)words + 4, PAGE), EINVAL);
    REFUSED(ch_sync(words, 0), EINVAL);
    REFUSED(ch_lock(words, PAGE), EOPNOTSUPP);
    REFUSED(ch_sync_frozen(words, PAGE), EOPNOTSUPP);
    CHECK(ch_prefetch(words, 4 * PAGE) == 0);
    CHECK(ch_incore(words, 4 * PAGE, states) == 0);
    CHECK(states[0] != CH_ABSENT && states[1] == CH_ABSENT && states[2] != CH_ABSENT);

    ch_place place;
    REFUSED(ch_guard(o, &place), EINVAL); /* it was not opened movable */
    REFUSED(ch_guard(o, NULL), EINVAL);
    REFUSED(ch_unguard(o), EINVAL);
    NO_POINTER(ch_open("/c/direct", CH_MOVABLE), EINVAL);

    ch_object *reader = ch_open("/c/direct", CH_READ);
    CHECK(reader != NULL);
    NO_POINTER(ch_open("/c/direct", CH_READ | CH_MOVABLE), EOPNOTSUPP); /* not wired */
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, reader, 0), EACCES);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, 0, reader, 0), EINVAL);
    NO_POINTER(ch_map(NULL, PAGE, 8, CH_SHARED, reader, 0), EINVAL);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED | 0x4000, reader, 0), EINVAL);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, reader, 1), EINVAL);
    NO_POINTER(ch_map(NULL, 0, CH_PROT_READ, CH_SHARED, reader, 4 * PAGE), EINVAL);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, reader, 4 * PAGE), EINVAL);
    NO_POINTER(ch_map(words, PAGE, CH_PROT_READ, CH_SHARED | CH_FIXED, reader, 0), EBUSY);
    const uint32_t *seen = ch_map(NULL, 2 * PAGE, CH_PROT_READ, CH_SHARED, reader, 0);
    CHECK(seen != NULL && seen[7] == 42);
    REFUSED(ch_write(reader, &byte, 1, 0), EACCES);
    REFUSED(ch_read(reader, &byte, 1, 4 * PAGE - 100), EINVAL);
    CHECK(ch_read(reader, &byte, 1, 28) == 0 && byte == 42);
    byte = 44;
    CHECK(ch_write(o, &byte, 1, 28) == 0 && seen[7] == 44);

    ch_region both[2] = {
        {NULL, PAGE, CH_PROT_READ, CH_SHARED, reader, 0},
        {NULL, PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_PRIVATE, reader, 2 * PAGE},
    };
    CHECK(ch_map_many(both, 2) == 0 && *(uint32_t *)both[1].address == 43);
    const uint32_t *all = ch_map(NULL, 0, CH_PROT_READ, CH_SHARED, reader, PAGE);
    CHECK(all != NULL && all[PAGE / 4] == 43);
    CHECK(ch_unmap((void *)all, 3 * PAGE) == 0);
    ch_region rest = {NULL, 0, CH_PROT_READ, CH_SHARED, reader, 2 * PAGE};
    CHECK(ch_map_many(&rest, 1) == 0 && rest.length == 2 * PAGE && *(uint32_t *)rest.address == 43);
    CHECK(ch_unmap(rest.address, rest.length) == 0);
    *(uint32_t *)both[1].address = 99;
    CHECK(words[2 * PAGE / 4] == 43);
    CHECK(ch_unmap(both[0].address, PAGE) == 0 && ch_unmap(both[1].address, PAGE) == 0);

    /* Split: the middle goes, the rest stays. */
    CHECK(ch_unmap((char *)words + PAGE, PAGE) == 0);
    REFUSED(ch_sync(words, 4 * PAGE), ENOENT);
    CHECK(words[7] == 44 && words[2 * PAGE / 4] == 43);
    CHECK(ch_close(reader) == 0 && seen[7] == 44); /* mappings outlive handles */
    CHECK(ch_unmap((void *)seen, 2 * PAGE) == 0);
    CHECK(ch_unmap(words, PAGE) == 0);
    CHECK(ch_unmap((char *)words + 2 * PAGE, 2 * PAGE) == 0);
    REFUSED(ch_unmap(words, PAGE), ENOENT);
    CHECK(ch_close(o) == 0);
}

static void names(void) {
    ch_info *info = calloc(1, sizeof *info);
    struct listing listing = {0, 0};
    REFUSED(ch_stat("/c/direct", info), EINVAL); /* struct_bytes is 0 */
    info->struct_bytes = sizeof *info;
    CHECK(ch_stat("/c/direct", info) == 0);
    CHECK(info->size_bytes == 4 * PAGE - 100 && !info->is_directory && strcmp(info->name, "/c/direct") == 0);
    CHECK(info->struct_bytes == sizeof *info && info->mode == 0600 && info->sync == CH_SYNC_PLAIN);
    CHECK(ch_stat("/c", info) == 0 && info->is_directory);
    CHECK(ch_list("/c", each_entry, &listing) == 0 && listing.entries >= 1 && listing.found);
    ch_object *before = ch_open("/c/direct", CH_READ);
    CHECK(before != NULL && ch_resize("/c/direct", 2 * PAGE) == 0);
    /* A handle from before the change: the size of now counts. */
    NO_POINTER(ch_map(NULL, 4 * PAGE - 100, CH_PROT_READ, CH_SHARED, before, 0), EINVAL);
    CHECK(ch_object_info(before, info) == 0 && info->size_bytes == 2 * PAGE);
    CHECK(ch_resize("/c/direct", 6 * PAGE) == 0);
    void *larger = ch_map(NULL, 6 * PAGE, CH_PROT_READ, CH_SHARED, before, 0);
    CHECK(larger != NULL && ch_unmap(larger, 6 * PAGE) == 0);
    CHECK(ch_close(before) == 0 && ch_resize("/c/direct", 2 * PAGE) == 0);
    REFUSED(ch_resize("/c/direct", UINT64_MAX), EINVAL);
    CHECK(ch_chmod("/c/direct", 0640) == 0);
    REFUSED(ch_chmod("/c/direct", 01777), EINVAL);
    CHECK(ch_stat("/c/direct", info) == 0 && info->mode == 0640 && info->size_bytes == 2 * PAGE);
    CHECK(ch_chown("/c/direct", (uint32_t)-1, (uint32_t)-1) == 0);
    CHECK(ch_rename("/c/direct", "/c/other") == 0);
    REFUSED(ch_stat("/c/direct", info), ENOENT);
    ch_object *o = ch_open("/c/other", CH_READ | CH_WRITE);
    CHECK(o != NULL && ch_object_info(o, info) == 0 && strcmp(info->name, "/c/other") == 0);
    CHECK(ch_remove("/c/other") == 0);
    NO_POINTER(ch_open("/c/other", CH_READ), ENOENT);
    CHECK(ch_close(o) == 0);
    free(info);
}

/* How a child ends that reads a byte, or minus its signal. */
static int child_reads(const volatile unsigned char *byte) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) _exit(*byte);
    if (child < 0 || waitpid(child, &status, 0) != child) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void inheritance(void) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 4 * PAGE;
    ch_object *o = ch_create("/c/inherited", &options);
    CHECK(o != NULL);
    if (!o) return;
    unsigned char *bytes = ch_map(NULL, 4 * PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED | CH_INHERIT_COPY, o, 0);
    CHECK(bytes != NULL);
    if (!bytes) return;
    bytes[0] = 7, bytes[PAGE] = 8, bytes[2 * PAGE] = 9;
    CHECK(ch_inherit(bytes + PAGE, PAGE, CH_INHERIT_NONE) == 0);
    CHECK(child_reads(bytes) == 7 && child_reads(bytes + 2 * PAGE) == 9);
    /* Under the sanitizer SIGSEGV is an exit with an error. */
    CHECK(child_reads(bytes + PAGE) != 8);
    pid_t child = fork();
    if (child == 0) {
        bytes[0] = 70;
        _exit(ch_sync(bytes, PAGE) == -1 && errno == ENOENT && ch_unmap(bytes, PAGE) == 0 ? 0 : 1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && bytes[0] == 7);
    CHECK(ch_inherit(bytes, 4 * PAGE, CH_INHERIT_SHARE) == 0 && child_reads(bytes + PAGE) == 8);
    REFUSED(ch_inherit(bytes, 4 * PAGE, CH_INHERIT_COPY | CH_INHERIT_NONE), EINVAL);
    REFUSED(ch_inherit(bytes, 4 * PAGE, 1), EINVAL);
    REFUSED(ch_inherit(bytes, 5 * PAGE, CH_INHERIT_COPY), ENOENT);
    REFUSED(ch_inherit(NULL, PAGE, CH_INHERIT_COPY), ENOENT);
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED | CH_INHERIT_COPY | CH_INHERIT_NONE, o, 0), EINVAL);
    CHECK(ch_unmap(bytes, 4 * PAGE) == 0 && ch_close(o) == 0 && ch_remove("/c/inherited") == 0);
}

/* What a plain read() of the file shows. */
static char stored(int fd, unsigned page) {
    char byte = 0;
    return pread(fd, &byte, 1, page * PAGE) == 1 ? byte : '?';
}

/* A chain of ordinary pointers in an object that has one address. */
struct link {
    struct link *next;
    int number;
};

static void one_address(void) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 4 * PAGE;
    options.room_bytes = 1 << 22;
    NO_POINTER(ch_create("/c/fixed", &options), EINVAL); /* room without an address */
    options.fixed = 2;
    NO_POINTER(ch_create("/c/fixed", &options), EINVAL);
    options.fixed = 1;
    ch_object *o = ch_create("/c/fixed", &options);
    ch_info info = {.struct_bytes = sizeof info};
    CHECK(o && ch_object_info(o, &info) == 0 && info.address && info.room_bytes == 1 << 22);
    struct link *first = ch_map(NULL, 4 * PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0);
    CHECK((uintptr_t)first == info.address);
    if (!first) return;
    struct link *second = (struct link *)((char *)first + 2 * PAGE);
    *first = (struct link){second, 1};
    *second = (struct link){NULL, 2};
    NO_POINTER(ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, o, 0), EBUSY);
    NO_POINTER(ch_map((char *)first + PAGE, PAGE, CH_PROT_READ, CH_SHARED | CH_FIXED, o, 0), EINVAL);
    struct link *again = ch_map(NULL, 4 * PAGE, CH_PROT_READ, CH_SHARED | CH_ANYWHERE, o, 0);
    CHECK(again && again != first && again->next == second && again->number == 1);
    CHECK(ch_unmap(again, 4 * PAGE) == 0 && ch_unmap(first, 4 * PAGE) == 0);
    /* Another mapping, of parts, in another order: the pointers hold. */
    second = ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, o, 2 * PAGE);
    first = ch_map(NULL, PAGE, CH_PROT_READ, CH_SHARED, o, 0);
    CHECK(first && first->next == second && first->next->number == 2);
    CHECK(ch_unmap(second, PAGE) == 0 && ch_unmap(first, PAGE) == 0 && ch_close(o) == 0);
    REFUSED(ch_resize("/c/fixed", (1 << 22) + 1), EINVAL);
    CHECK(ch_resize("/c/fixed", 1 << 22) == 0 && ch_remove("/c/fixed") == 0);
}

static void controlled_object(const char *path) {
    static char content[8 * PAGE];
    unsigned char states[8];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    for (unsigned i = 0; i < sizeof content; i++) content[i] = (char)('a' + i / PAGE);
    CHECK(write(fd, content, sizeof content) == (ssize_t)sizeof content);
    ch_options options = CH_OPTIONS_INIT;
    options.sync = CH_SYNC_ATOMIC;
    ch_object *o = ch_create_file("/c/atomic", &options, fd);
    CHECK(o != NULL);
    volatile char *bytes = o ? ch_map(NULL, 8 * PAGE, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0) : NULL;
    CHECK(bytes != NULL);
    if (!bytes) return;
    void *start = (void *)bytes, *third = (void *)(bytes + 3 * PAGE);
    CHECK(bytes[0] == 'a' && bytes[7 * PAGE] == 'h');
    bytes[3 * PAGE] = 'X';
    CHECK(ch_incore(start, 8 * PAGE, states) == 0);
    CHECK(CH_STATE(states[3]) == CH_DIRTY && CH_STATE(states[0]) == CH_CLEAN);
    CHECK(stored(fd, 3) == 'd');
    CHECK(ch_lock(third, PAGE) == 0);
    CHECK(ch_incore(start, 8 * PAGE, states) == 0 && (states[3] & CH_LOCKED) && !(states[4] & CH_LOCKED));
    CHECK(ch_sync(start, 8 * PAGE) == 0);
    CHECK(ch_unlock(third, PAGE) == 0);
    CHECK(ch_incore(start, 8 * PAGE, states) == 0 && states[3] == CH_CLEAN);
    CHECK(stored(fd, 3) == 'X');
    bytes[5 * PAGE] = 'Y';
    uint64_t dropped = 0;
    CHECK(ch_revert("/c/atomic", &dropped) == 0 && dropped == 1 && bytes[5 * PAGE] == 'f');
    /* The last unmap of a modified page stores it. */
    bytes[6 * PAGE] = 'Z';
    CHECK(ch_unmap(start, 8 * PAGE) == 0);
    CHECK(stored(fd, 6) == 'Z');
    char byte = 0;
    CHECK(ch_read(o, &byte, 1, 3 * PAGE) == 0 && byte == 'X');
    byte = 'W';
    CHECK(ch_write(o, &byte, 1, PAGE) == 0 && stored(fd, 1) == 'W');
    CHECK(ch_close(o) == 0);
    CHECK(ch_remove("/c/atomic") == 0);
    CHECK(close(fd) == 0);
    CHECK(access(path, R_OK) == 0); /* a backing file is never deleted */
}

static void types(void) {
    char tags[32];
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 2 * PAGE;
    ch_object *o = ch_create("/c/typed", &options);
    CHECK(o != NULL && ch_tag_name("/c/typed", 0, PAGE, "float64") == 0);
    CHECK(ch_tag(o, PAGE, 0, "{24: 0 int32, 8 float64*2}") == 0);
    const char *all = "0 4096 float64\n4096 4096 {24: 0 int32, 8 float64*2}\n";
    CHECK(ch_tags(o, NULL, 0) == (int64_t)strlen(all));
    CHECK(ch_tags(o, tags, sizeof tags) == (int64_t)strlen(all) && strlen(tags) == 31 && strncmp(tags, all, 31) == 0);
    REFUSED(ch_tag(o, 0, 100, "int32"), EINVAL);
    REFUSED(ch_tag_name("/c/typed", 0, PAGE, "int24"), EINVAL);
    CHECK(ch_tag(o, 0, 0, "bytes") == 0 && ch_tags(o, tags, sizeof tags) == 0 && tags[0] == 0);
    CHECK(ch_close(o) == 0 && ch_remove("/c/typed") == 0);
}

int main(int count, char **arguments) {
    CHECK(*ch_version() != 0 && *ch_last_error() == 0);
    null_arguments();
    bad_options();
    page_sizes();
    direct_object();
    if (count > 1 && strcmp(arguments[1], "full") == 0) {
        types();
        names();
        snapshots();
        inheritance();
        one_address();
        controlled_object(count > 2 ? arguments[2] : "roundtrip.bin");
    }
    REFUSED(ch_connect("/nowhere/at/all"), ECONNREFUSED);
    if (failures) return 1;
    puts("ok");
    return 0;
}

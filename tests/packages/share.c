/* Two processes and an object, with the library that was installed.
 *
 *     share hold NAME     makes the object, says so, and waits for a line; then another has written to it
 *     share touch NAME    is that other */
#include <commonhold.h>
#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                               \
    do {                                                                                               \
        if (!(condition)) return fprintf(stderr, "%s: %s\n", #condition, ch_last_error()), 1;          \
    } while (0)

static int hold(const char *name) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 1 << 20;
    options.controlled = 1;
    ch_object *object = ch_create(name, &options);
    CHECK(object);
    uint32_t *words = ch_map(NULL, 0, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    CHECK(words);
    words[7] = 41;
    puts("ready");
    fflush(stdout);
    CHECK(getchar() == '\n');
    CHECK(words[7] == 42 && words[(1 << 18) - 1] == 43);
    CHECK(ch_unmap(words, 1 << 20) == 0 && ch_close(object) == 0 && ch_remove(name) == 0);
    puts("ok");
    return 0;
}

static int touch(const char *name) {
    ch_object *object = ch_open(name, CH_READ | CH_WRITE);
    CHECK(object);
    uint32_t *words = ch_map(NULL, 0, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    CHECK(words && words[7] == 41);
    words[7] = 42;
    words[(1 << 18) - 1] = 43;
    return ch_unmap(words, 1 << 20);
}

int main(int count, char **words) {
    if (strcmp(ch_version(), CH_VERSION)) return fprintf(stderr, "library %s, header %s\n", ch_version(), CH_VERSION), 1;
    if (count == 3 && !strcmp(words[1], "hold")) return hold(words[2]);
    if (count == 3 && !strcmp(words[1], "touch")) return touch(words[2]);
    return 2;
}

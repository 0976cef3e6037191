/* The library, loaded and unloaded at run time: its thread and its handlers of fork and exit outlive dlclose(). */
#include "commonhold.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), 1)

static void *function(void *library, const char *name) {
    return dlsym(library, name);
}

static volatile uint32_t *map_one(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return NULL;
    /* Through memcpy: ISO C has no conversion from object pointers to functions. */
    ch_object *(*create)(const char *, const ch_options *);
    void *(*map)(void *, size_t, int, int, ch_object *, uint64_t);
    void (*init)(ch_options *);
    void *found = function(library, "ch_create");
    memcpy(&create, &found, sizeof create);
    found = function(library, "ch_map");
    memcpy(&map, &found, sizeof map);
    found = function(library, "ch_options_init");
    memcpy(&init, &found, sizeof init);
    if (!create || !map || !init) return NULL;
    ch_options options;
    options.struct_bytes = sizeof options;
    init(&options);
    options.size_bytes = 4 * 4096;
    options.sync = CH_SYNC_ORDERED;
    ch_object *o = create(name, &options);
    volatile uint32_t *words = o ? map(NULL, 4 * 4096, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0) : NULL;
    dlclose(library);
    return words;
}

int main(int count, char **arguments) {
    if (count < 2) return FAIL("which library?\n");
    volatile uint32_t *words = map_one(arguments[1], "/loaded/one");
    if (!words) return FAIL("no mapping\n");
    words[0] = 1;
    words[1024] = 2;
    pid_t child = fork();
    if (child == 0) {
        words[2048] = words[0] + 2;
        _exit(words[1024] == 2 ? 0 : 1);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return FAIL("the child ended with %#x\n", (unsigned)status);
    if (words[2048] != 3) return FAIL("the child's word is %u\n", (unsigned)words[2048]);
    volatile uint32_t *again = map_one(arguments[1], "/loaded/two");
    if (!again) return FAIL("no mapping the second time\n");
    again[3072] = 4;
    puts("ok");
    return 0; /* the library's exit handler unmaps both */
}

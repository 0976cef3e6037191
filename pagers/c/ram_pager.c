/* A pager in C: the pages of one object, in this process's memory. They are durable for as long as it lives.
 *
 *   cc ram_pager.c -lcommonhold -o ram_pager && ./ram_pager /pagers/ram 1048576 &
 *   commonhold create /lab/x --size 1MiB --pager /pagers/ram */
#include <commonhold.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct store {
    char *bytes;
    uint64_t size;
};

static int page_in(void *user, const char *object, uint64_t offset, void *buffer, size_t length) {
    struct store *store = user;
    (void)object; /* this pager serves one object alone */
    if (offset > store->size || length > store->size - offset) return ERANGE;
    memcpy(buffer, store->bytes + offset, length);
    return 0;
}

static int page_out(void *user, const char *object, uint64_t offset, const void *data, size_t length) {
    struct store *store = user;
    (void)object;
    if (offset > store->size || length > store->size - offset) return ENOSPC;
    memcpy(store->bytes + offset, data, length);
    return 0;
}

int main(int count, char **words) {
    if (count != 3) {
        fprintf(stderr, "usage: ram_pager NAME BYTES\n");
        return 2;
    }
    struct store store = {.size = strtoull(words[2], NULL, 10)};
    store.bytes = calloc(1, store.size);
    ch_pager pager = {.struct_bytes = sizeof pager, .page_in = page_in, .page_out = page_out, .user = &store};
    if (!store.bytes || ch_serve_pager(words[1], &pager)) {
        fprintf(stderr, "ram_pager: %s\n", store.bytes ? ch_last_error() : "no memory");
        return 1;
    }
    return 0;
}

/* A heap from C: a typed malloc, words that keep blocks, two processes, and what is refused. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "commonhold_heap.h"

#define malloc_double(heap, n) ((double *)ch_heap_alloc(heap, CH_FLOAT64, n))

static ch_heap *heap;

static int allocates_and_dies(void) {
    uint64_t root = ch_heap_root(heap, "a child's");
    CHECK(ch_heap_alloc_into(heap, CH_INT32, 100, root));
    for (int n = 0; n < 1000; n++) CHECK(ch_heap_alloc(heap, CH_INT32, 10));
    raise(SIGKILL);
    return 0;
}

static int frees(void) {
    uint64_t root = ch_heap_root(heap, "a parent's");
    return ch_heap_free_from(heap, root);
}

int main(void) {
    CHECK(!ch_heap_open("/c/heap", 0, 0600, 0) && errno == ENOENT);
    CHECK(!ch_heap_open("/c/heap", CH_HEAP_CREATE, 0600, 4096) && errno == EINVAL);
    CHECK(!ch_heap_open("/c/heap", 9, 0600, 4096) && errno == EINVAL);
    heap = ch_heap_open("/c/heap", CH_HEAP_CREATE, 0600, 4 << 20);
    CHECK(heap);
    double *numbers = malloc_double(heap, 1000);
    CHECK(numbers);
    for (int n = 0; n < 1000; n++) numbers[n] = n;
    uint64_t at = ch_heap_offset(heap, numbers);
    CHECK(at && ch_heap_pointer(heap, at) == numbers);
    /* Another handle, as another process has it, somewhere else. */
    ch_heap *other = ch_heap_open("/c/heap", 0, 0600, 0);
    CHECK(other);
    double *there = ch_heap_pointer(other, at);
    CHECK(there && there != numbers && there[999] == 999);
    /* What is no block. */
    double mine;
    CHECK(ch_heap_free(heap, &mine) == -1 && errno == EINVAL && strstr(ch_last_error(), "is not in heap"));
    CHECK(ch_heap_free(heap, numbers + 1) == -1 && errno == EINVAL);
    CHECK(!ch_heap_pointer(heap, 4 << 20) && errno == EINVAL);
    CHECK(!ch_heap_alloc(heap, "float63", 1) && errno == EINVAL);
    CHECK(!ch_heap_alloc(heap, CH_FLOAT64, 1 << 20) && errno == ENOSPC);
    CHECK(!ch_heap_alloc(heap, CH_FLOAT64, UINT64_MAX) && errno == ENOSPC);
    CHECK(!ch_heap_alloc_into(heap, CH_INT8, 1, 64) && errno == EINVAL);
    CHECK(ch_heap_free(other, there) == 0);
    CHECK(ch_heap_free(heap, numbers) == -1 && errno == EINVAL);
    CHECK(ch_heap_free(heap, NULL) == 0);
    CHECK(ch_heap_free(NULL, numbers) == -1 && errno == EINVAL);
    /* One process allocates, another frees; one is killed. */
    uint64_t root = ch_heap_root(heap, "a parent's");
    CHECK(root && ch_heap_alloc_into(heap, "{24: 0 int32, 8 float64*2}", 10, root));
    CHECK(!ch_heap_alloc_into(heap, CH_INT8, 1, root) && errno == EBUSY);
    CHECK(in_child(frees) == 0);
    CHECK(*(uint64_t *)ch_heap_pointer(heap, root) == 0);
    CHECK(in_child(allocates_and_dies) == -1);
    uint64_t its = ch_heap_root(heap, "a child's");
    CHECK(*(uint64_t *)ch_heap_pointer(heap, its));
    CHECK(ch_heap_free_from(heap, its) == 0);
    CHECK(ch_heap_check(heap) == 0);
    /* A broken program. */
    *(uint64_t *)ch_heap_pointer(heap, 22 * 4096) = 0x123456789abcdef;
    CHECK(ch_heap_check(heap) == 1 && strstr(ch_last_error(), "is none at byte 90112"));
    CHECK(ch_heap_close(other) == 0 && ch_heap_close(heap) == 0);
    CHECK(ch_heap_close(NULL) == -1);
    puts("ok");
    return 0;
}

/* commonhold_heap.h - a heap in an object: blocks that any process allocates and any other frees (docs/HEAP.md).
 *
 *     ch_heap *heap = ch_heap_open("/lab/heap", CH_HEAP_CREATE, 0600, 1 << 30);
 *     uint64_t root = ch_heap_root(heap, "samples");              a word that all find by its name
 *     double *samples = ch_heap_alloc(heap, CH_FLOAT64, 1000);    Figure 5's typed malloc
 *     ch_heap_free(heap, samples);
 *     ch_heap_alloc_into(heap, CH_FLOAT64, 1000, root);           both or none, whoever dies meanwhile
 *     ch_heap_free_from(heap, root);
 *
 * A block is known to all by its offset in the object; 0 is none. Functions that give a pointer or an offset return NULL or 0
 * on failure, those that return int return -1, and all set errno. ch_last_error() (commonhold.h) tells the whole story.
 *
 *   ENOSPC    the heap is full, or so much never fits
 *   EINVAL    no block begins there; the block is free already; no word; no type
 *   EBUSY     the word into which to allocate is not 0
 *   EBADMSG   a program wrote where the heap keeps its own words: it is damaged, and nothing was changed
 *   EMFILE    no place is left for another process, name or type
 *
 * Any thread may use a heap; they take turns. A thread that allocates much has an arena of its own. */
#ifndef COMMONHOLD_HEAP_H
#define COMMONHOLD_HEAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ch_heap ch_heap;

enum { CH_HEAP_CREATE = 1 /* if there is none, create it, with the mode and size that are given */ };

/* Types (docs/TYPES.md). A record, or any other type, is given as a text: ch_heap_type(). */
#define CH_BYTES "bytes"
#define CH_INT8 "int8"
#define CH_INT16 "int16"
#define CH_INT32 "int32"
#define CH_INT64 "int64"
#define CH_FLOAT32 "float32"
#define CH_FLOAT64 "float64"
#define CH_OFFSET "offset"

/* Opens a heap; mode and size are of no account unless it is created. */
ch_heap *ch_heap_open(const char *name, int flags, uint32_t mode, uint64_t size_bytes);
/* The same, mapped at that address: where all do so, a pointer is the same for all. */
ch_heap *ch_heap_open_at(const char *name, void *address);
/* What is in use stays. */
int ch_heap_close(ch_heap *heap);

/* count elements of a type; what is in them is what was there before. */
void *ch_heap_alloc(const ch_heap *heap, const char *type, uint64_t count);
/* A pointer that this heap gave here, or that is mapped at the same address as where it was given. NULL is freed, too. */
int ch_heap_free(const ch_heap *heap, void *pointer);

/* Allocates, and stores the offset in the word of the heap at that offset, which is 0 before; gives the offset. */
uint64_t ch_heap_alloc_into(const ch_heap *heap, const char *type, uint64_t count, uint64_t word);
/* Frees the block whose offset that word has, and makes the word 0. */
int ch_heap_free_from(const ch_heap *heap, uint64_t word);

/* The offset of a root's word, by its name, of 1 to 48 bytes. One that is new is 0. */
uint64_t ch_heap_root(const ch_heap *heap, const char *name);

/* Where an offset is mapped, and the offset of an address. NULL, 0: it is not in the heap. */
void *ch_heap_pointer(const ch_heap *heap, uint64_t offset);
uint64_t ch_heap_offset(const ch_heap *heap, const void *pointer);

/* How many things are wrong in it: 0: it is whole. -1: it could not be read. ch_last_error() names the first. */
int ch_heap_check(const ch_heap *heap);

#ifdef __cplusplus
}
#endif

#endif

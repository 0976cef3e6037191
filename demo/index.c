/* Indexes documents from the first to the last, until it meets the Python program. Usage: index NAME
 *
 * layout.py says what lies where in the object. Only this program writes region 0; it reads the position of
 * region 1, which the Python program moves meanwhile. */
#include <commonhold.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, BATCH = 64, DOCUMENT_BYTES = 1 << 20, SHORTEST = 3, LONGEST = 24 };
#define MAGIC UINT64_C(0x315845444E494843) /* "CHINDEX1" */

struct header {
    uint64_t magic, documents, paths_at, paths_bytes, region_at[2], region_bytes, slots, word_bytes, postings;
};

struct position {
    uint64_t finished, posting, word, unused[5];
};

/* The first page of a region. A commit fills the one that is not in use, and then counts up. */
struct commits {
    _Atomic uint64_t count;
    uint64_t unused[7];
    struct position position[2];
};

struct posting {
    uint32_t document, times, older;
};

struct region {
    char *start;
    struct commits *commits;
    _Atomic uint32_t *word_at, *head;
    unsigned char *words;
    struct posting *postings;
};

static const struct header *header;
static struct region mine, theirs;
static struct position now;
static uint64_t words_in_use;

static void fail(const char *what) {
    fprintf(stderr, "index: %s: %s\n", what, ch_last_error());
    exit(1);
}

static struct region region_at(char *start) {
    struct region r = {.start = start, .commits = (void *)start};
    r.word_at = (void *)(start + PAGE);
    r.head = r.word_at + header->slots;
    r.words = (void *)(r.head + header->slots);
    r.postings = (void *)(r.words + header->word_bytes);
    return r;
}

static struct position position_of(const struct region *r) {
    uint64_t count = atomic_load_explicit(&r->commits->count, memory_order_acquire);
    struct position p = r->commits->position[count & 1];
    if (!p.posting) p.posting = 1;
    if (!p.word) p.word = 1;
    return p;
}

/* Makes all documents so far count, and durable: everything of this region, or nothing. */
static void commit(void) {
    uint64_t count = atomic_load_explicit(&mine.commits->count, memory_order_relaxed) + 1;
    mine.commits->position[count & 1] = now;
    atomic_store_explicit(&mine.commits->count, count, memory_order_release);
    if (ch_sync(mine.start, header->region_bytes)) fail("sync");
}

/* Takes back what a killed predecessor began after its last commit. */
static void recover(void) {
    uint64_t words = 0, postings = 0;
    now = position_of(&mine);
    for (uint64_t slot = 0; slot < header->slots; slot++) {
        if (mine.word_at[slot] >= now.word) {
            mine.word_at[slot] = 0;
            mine.head[slot] = 0;
            words++;
        }
        for (; mine.head[slot] >= now.posting; postings++) mine.head[slot] = mine.postings[mine.head[slot]].older;
        words_in_use += mine.word_at[slot] != 0;
    }
    printf("   [C] begins after %llu documents; takes back %llu words, %llu postings\n",
           (unsigned long long)now.finished, (unsigned long long)words, (unsigned long long)postings);
    fflush(stdout);
}

static uint64_t slot_of(const unsigned char *word, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ word[i]) * 16777619u;
    uint64_t slot = hash % header->slots;
    for (uint32_t at; (at = mine.word_at[slot]) != 0; slot = (slot + 1) % header->slots)
        if (mine.words[at] == length && !memcmp(mine.words + at + 1, word, length)) return slot;
    if (now.word + 1 + length > header->word_bytes || ++words_in_use > header->slots - header->slots / 8) {
        fprintf(stderr, "index: the region has no room for more words\n");
        exit(1);
    }
    mine.words[now.word] = (unsigned char)length;
    memcpy(mine.words + now.word + 1, word, length);
    atomic_store_explicit(&mine.word_at[slot], (uint32_t)now.word, memory_order_release);
    now.word += 1 + length;
    return slot;
}

static void add_word(const unsigned char *word, size_t length, uint64_t first_posting) {
    uint64_t slot = slot_of(word, length);
    uint32_t newest = mine.head[slot];
    if (newest >= first_posting) { /* seen before in this document */
        mine.postings[newest].times++;
        return;
    }
    if (now.posting == header->postings) {
        fprintf(stderr, "index: the region has no room for more postings\n");
        exit(1);
    }
    mine.postings[now.posting] = (struct posting){(uint32_t)now.finished, 1, newest};
    atomic_store_explicit(&mine.head[slot], (uint32_t)now.posting++, memory_order_release);
}

static void add_document(const char *path) {
    static unsigned char text[DOCUMENT_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t length = fread(text, 1, sizeof text, file);
    fclose(file);
    uint64_t first_posting = now.posting;
    for (size_t i = 0, start; i < length; i++) {
        for (start = i; i < length && ((text[i] | 0x20) >= 'a' && (text[i] | 0x20) <= 'z'); i++) text[i] |= 0x20;
        if (i - start >= SHORTEST && i - start <= LONGEST) add_word(text + start, i - start, first_posting);
    }
    now.finished++;
}

int main(int count, char **arguments) {
    ch_info info = {.struct_bytes = sizeof info};
    ch_object *object = count == 2 ? ch_open(arguments[1], CH_READ | CH_WRITE) : NULL;
    if (!object || ch_object_info(object, &info)) fail("open");
    char *content = ch_map(NULL, info.size_bytes, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    if (!content) fail("map");
    header = (void *)content;
    if (header->magic != MAGIC) {
        fprintf(stderr, "index: this object is no index of the demo\n");
        return 1;
    }
    mine = region_at(content + header->region_at[0]);
    theirs = region_at(content + header->region_at[1]);
    recover();

    const char *path = content + header->paths_at;
    char line[PAGE * 2];
    for (uint64_t document = 0; document < header->documents - position_of(&theirs).finished; document++) {
        const char *end = strchr(path, '\n');
        if (document >= now.finished) {
            snprintf(line, sizeof line, "%.*s", (int)(end - path), path);
            add_document(line);
            if (now.finished % BATCH == 0) commit();
        }
        path = end + 1;
    }
    commit();
    printf("   [C] met the Python program; documents 0 to %llu are mine\n", (unsigned long long)now.finished - 1);
    if (ch_unmap(content, info.size_bytes) || ch_close(object)) fail("unmap");
    return 0;
}

/* Images that lead into others: "build", then "read" in another process. COMMONHOLD_IMAGES names the store. */
#include "check.h"
#include "commonhold.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct letter {
    uint64_t weight;
    struct {
        const char *first;
        size_t count;
    } name;
};

struct word {
    const struct letter *const *first;
    size_t count;
    const struct word *next;
};

static const ch_field letter_fields[] = {
    {"weight", offsetof(struct letter, weight), &ch_u64, 0},
    {"name", offsetof(struct letter, name), &ch_text, 0},
};
static const ch_type letter = CH_TYPE_STRUCT_OF(struct letter, letter_fields);
static const ch_type letter_pointer = CH_TYPE_OF(CH_TYPE_POINTER, letter);
static const ch_type letters = CH_TYPE_OF(CH_TYPE_RUN, letter_pointer);
static const ch_type word;
static const ch_type word_or_null = CH_TYPE_OF(CH_TYPE_POINTER_OR_NULL, word);
static const ch_field word_fields[] = {
    {"letters", offsetof(struct word, first), &letters, 0},
    {"next", offsetof(struct word, next), &word_or_null, 0},
};
static const ch_type word = CH_TYPE_STRUCT_OF(struct word, word_fields);

/* Two letters, from this weight on. */
static void build_letters(const char *version, uint64_t weight) {
    ch_arena *arena = ch_arena_new(version, NULL, NULL, 1 << 20, NULL, 0);
    CHECK(arena);
    struct letter *all = ch_arena_take(arena, 2 * sizeof *all, _Alignof(struct letter));
    char *names = ch_arena_take(arena, 2, 1);
    CHECK(all && names);
    for (int i = 0; i < 2; i++) {
        names[i] = "ab"[i];
        all[i].weight = weight + i;
        all[i].name.first = names + i;
        all[i].name.count = 1;
    }
    CHECK(ch_arena_root(arena, "letters", all, 2, &letter) == 0 && ch_arena_seal(arena) == 0);
    ch_arena_free(arena);
}

/* A word of the letters of another image, "bab", with a second word in the arena behind it. */
static int build_word(const char *name, const struct letter *of, const ch_image *const *imports, size_t count) {
    ch_arena *arena = ch_arena_new(name, NULL, NULL, 1 << 20, imports, count);
    CHECK(arena);
    struct word *all = ch_arena_take(arena, 2 * sizeof *all, _Alignof(struct word));
    const struct letter **letters = ch_arena_take(arena, 3 * sizeof *letters, 8);
    CHECK(all && letters);
    letters[0] = letters[2] = &of[1];
    letters[1] = &of[0];
    all[0].first = letters;
    all[0].count = 3;
    all[0].next = &all[1];
    all[1].first = letters + 1;
    all[1].count = 1;
    CHECK(ch_arena_root(arena, "word", all, 1, &word) == 0);
    int sealed = ch_arena_seal(arena), why = errno;
    ch_arena_free(arena);
    errno = why;
    return sealed;
}

static void build(void) {
    build_letters("letters@1.0.0", 10);
    const ch_image *image = ch_include("letters@1.0.0");
    CHECK(image);
    size_t count = 0;
    const struct letter *of = ch_image_root(image, "letters", &letter, &count);
    CHECK(of && count == 2);
    /* Without the import it leads out, and the way to it is said. */
    CHECK(build_word("words@1.0.0", of, NULL, 0) == -1 && errno == EINVAL);
    CHECK(strstr(ch_last_error(), "root \"word\" -> letters"));
    CHECK(!ch_include("words") && errno == ENOENT);
    CHECK(build_word("words@1.0.0", of, &image, 1) == 0);
    /* Imports that are none. */
    const ch_image *none = NULL;
    CHECK(!ch_arena_new("others@1.0.0", NULL, NULL, 1 << 20, &none, 1) && errno == EINVAL);
    CHECK(!ch_arena_new("others@1.0.0", NULL, NULL, 1 << 20, NULL, 1) && errno == EINVAL);
    /* A newer one does not matter to what leads into the older. */
    build_letters("letters@1.1.0", 50);
}

static void read_again(void) {
    const ch_image *image = ch_include("words");
    CHECK(image);
    const struct word *first = ch_image_root(image, "word", &word, NULL);
    CHECK(first && first->count == 3 && first->next && first->next->count == 1 && !first->next->next);
    CHECK(first->first[0]->weight == 11 && first->first[1]->weight == 10 && first->first[0] == first->first[2]);
    CHECK(first->next->first[0] == first->first[1] && first->first[0]->name.first[0] == 'b');
    /* What it leads into is included too, and is the same for whoever asks. */
    const ch_image *letters = ch_include("letters");
    CHECK(letters && strcmp(ch_image_name(letters), "letters@1.0.0") == 0);
    CHECK(ch_image_root(letters, "letters", &letter, NULL) == first->first[1]);
    const ch_image *newer = ch_include_newest("letters");
    CHECK(newer && strcmp(ch_image_name(newer), "letters@1.1.0") == 0);
    const struct letter *of = ch_image_root(newer, "letters", &letter, NULL);
    CHECK(of && of->weight == 50 && of != first->first[1]);
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "build") == 0) build();
    if (count == 2 && strcmp(words[1], "read") == 0) read_again();
    puts("ok");
    return 0;
}

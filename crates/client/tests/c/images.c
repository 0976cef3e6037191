/* Builds an image, and reads one: "build NAME" and "read NAME". COMMONHOLD_IMAGES names the store. */
#include "check.h"
#include "commonhold.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
    const char *first;
    size_t count;
};

struct node {
    uint64_t key;
    const struct node *left, *right;
    struct text word;
    uint8_t rare;
};

struct forest {
    const struct node *const *first;
    size_t count;
    float corners[3];
    int16_t season; /* as an enumeration of 2 bytes */
};

enum { WINTER = -1, SPRING = 0, SUMMER = 7 };

static const ch_type node;
static const ch_type node_pointer = CH_TYPE_OF(CH_TYPE_POINTER, node);
static const ch_type node_or_null = CH_TYPE_OF(CH_TYPE_POINTER_OR_NULL, node);
static const ch_type node_pointers = CH_TYPE_OF(CH_TYPE_RUN, node_pointer);
static const ch_field node_fields[] = {
    {"key", offsetof(struct node, key), &ch_u64, 0},
    {"left", offsetof(struct node, left), &node_or_null, 0},
    {"right", offsetof(struct node, right), &node_or_null, 0},
    {"word", offsetof(struct node, word), &ch_text, 0},
    {"rare", offsetof(struct node, rare), &ch_bool, 0},
};
static const ch_type node = CH_TYPE_STRUCT_OF(struct node, node_fields);
static const ch_field seasons[] = {
    {"Summer", SUMMER, NULL, 0},
    {"Winter", (size_t)WINTER, NULL, 0},
    {"Spring", SPRING, NULL, 0},
};
static const ch_type season = CH_TYPE_ENUM_OF(int16_t, seasons);
static const ch_field forest_fields[] = {
    {"trees", offsetof(struct forest, first), &node_pointers, 0},
    {"corners", offsetof(struct forest, corners), &ch_f32, 3},
    {"season", offsetof(struct forest, season), &season, 0},
};
static const ch_type forest = CH_TYPE_STRUCT_OF(struct forest, forest_fields);

static const ch_type itself;
static const ch_field inner[] = {{"itself", 0, &itself, 0}};
static const ch_type itself = {"itself", CH_TYPE_STRUCT, 8, 8, NULL, inner, 1};

static struct node *leaf(ch_arena *arena, uint64_t key, const char *word) {
    struct node *leaf = ch_arena_take(arena, sizeof *leaf, _Alignof(struct node));
    char *text = ch_arena_take(arena, strlen(word), 1);
    CHECK(leaf && text);
    memcpy(text, word, strlen(word));
    leaf->key = key;
    leaf->word.first = text;
    leaf->word.count = strlen(word);
    leaf->rare = key > 2;
    return leaf;
}

static void build(const char *name) {
    ch_arena *arena = ch_arena_new(name, NULL, NULL, 1 << 24, NULL, 0);
    CHECK(arena);
    struct node *top = leaf(arena, 2, "two");
    top->left = leaf(arena, 1, "one");
    top->right = leaf(arena, 3, "three");
    const struct node **trees = ch_arena_take(arena, 2 * sizeof *trees, 8);
    trees[0] = top;
    trees[1] = top->right;
    struct forest *all = ch_arena_take(arena, sizeof *all, _Alignof(struct forest));
    all->first = trees;
    all->count = 2;
    all->corners[2] = 0.5f;
    CHECK(ch_arena_root(arena, "forest", all, 1, &forest) == 0);
    CHECK(ch_arena_root(arena, "tree", top, 1, &node) == 0);
    CHECK(ch_arena_root(arena, "tree", top, 1, &node) == -1 && errno == EINVAL);
    /* A pointer to a string of the program: refused with the way to it, and then mended. */
    struct node *third = (struct node *)top->right;
    struct text word = third->word;
    third->word.first = "three";
    CHECK(ch_arena_seal(arena) == -1 && errno == EINVAL);
    CHECK(strstr(ch_last_error(), "root \"tree\" -> right -> word: 0x"));
    third->word = word;
    all->season = 3;
    CHECK(ch_arena_seal(arena) == -1 && errno == EINVAL);
    CHECK(strstr(ch_last_error(), "root \"forest\" -> season: 3 is none of the values"));
    all->season = WINTER;
    CHECK(ch_arena_seal(arena) == 0);
    ch_arena_free(arena);
}

static void read_again(const char *name) {
    const ch_image *image = ch_include(name);
    CHECK(image && ch_include(name) == image && ch_include_newest(name) == image);
    CHECK(strncmp(ch_image_name(image), name, strlen(name)) == 0);
    size_t count = 0;
    const struct forest *all = ch_image_root(image, "forest", &forest, &count);
    CHECK(all && count == 1 && all->count == 2 && all->corners[2] == 0.5f && all->season == WINTER);
    const struct node *top = ch_image_root(image, "tree", &node, NULL);
    CHECK(top && top == all->first[0] && all->first[1] == top->right);
    CHECK(top->key == 2 && top->left->key == 1 && top->right->rare == 1 && !top->right->left);
    CHECK(top->right->word.count == 5 && memcmp(top->right->word.first, "three", 5) == 0);
    CHECK(!ch_image_root(image, "tree", &forest, NULL) && errno == EPROTOTYPE);
    CHECK(!ch_image_root(image, "trees", &forest, NULL) && errno == ENOENT);
    CHECK(!ch_image_root(NULL, "trees", &forest, NULL) && errno == EINVAL);
}

static void refuse(void) {
    CHECK(!ch_include("nowhere") && errno == ENOENT);
    CHECK(!ch_include("no where") && errno == EINVAL);
    CHECK(!ch_include(NULL) && errno == EINVAL);
    CHECK(!ch_arena_new("words@1", NULL, NULL, 0, NULL, 0) && errno == EINVAL);
    ch_arena *arena = ch_arena_new("refused@1.0.0", NULL, NULL, 1 << 20, NULL, 0);
    CHECK(arena);
    CHECK(!ch_arena_take(arena, 1 << 28, 8) && errno == ENOSPC);
    CHECK(!ch_arena_take(arena, 8, 3) && errno == EINVAL);
    uint64_t *number = ch_arena_take(arena, 8, 8);
    static const ch_type odd = {"odd", 17, 8, 8, NULL, NULL, 0};
    CHECK(ch_arena_root(arena, "x", number, 1, &odd) == -1 && errno == EINVAL);
    CHECK(ch_arena_root(arena, "x", number, 1, NULL) == -1 && errno == EINVAL);
    CHECK(ch_arena_root(arena, "x", number, 1, &itself) == -1 && errno == EINVAL);
    CHECK(strstr(ch_last_error(), "contains itself"));
    ch_arena_free(arena);
    ch_arena_free(NULL);
}

/* Images of one group: at one address, and one of them in a process. */
static void group(void) {
    static const char *const names[] = {"german@1.0.0", "french@1.0.0"};
    void *first[2];
    for (int i = 0; i < 2; i++) {
        ch_arena *arena = ch_arena_new(names[i], NULL, "language", 1 << 20, NULL, 0);
        CHECK(arena);
        uint64_t *number = first[i] = ch_arena_take(arena, 8, 8);
        *number = 7;
        CHECK(ch_arena_root(arena, "one", number, 1, &ch_u64) == 0 && ch_arena_seal(arena) == 0);
        ch_arena_free(arena);
    }
    CHECK(first[0] == first[1]);
    CHECK(ch_include("german") && !ch_include("french") && errno == ENOSPC);
    CHECK(strstr(ch_last_error(), "images of the group language are declared never to be in one"));
    CHECK(!ch_arena_new("dutch@1.0.0", NULL, "no group", 1 << 20, NULL, 0) && errno == EINVAL);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "build") == 0) build(words[2]);
    if (count == 3 && strcmp(words[1], "read") == 0) read_again(words[2]);
    if (count == 2 && strcmp(words[1], "group") == 0) group();
    if (count == 2 && strcmp(words[1], "refuse") == 0) refuse();
    puts("ok");
    return 0;
}

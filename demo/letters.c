#define _GNU_SOURCE
/* Counts the letters of texts together with the same program on other machines. Usage: letters NAME LIST
 *
 * LIST has a path on each line. The object NAME is one page of tickets and then one page for each batch of BATCH texts:
 * who draws a batch's ticket counts it and fills its page, `done` last. A page whose host died before anybody else had it
 * comes back as it was before: not done, and whoever is left counts that batch again. */
#include <commonhold.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 8, MOST_BYTES = 1 << 20 };

struct tickets {
    _Atomic uint64_t next;
    uint64_t batches;
};

struct batch {
    _Atomic uint64_t done;
    uint64_t letters[26];
    char unused[PAGE - 27 * 8];
};

static char **paths;
static uint64_t texts;
static uint64_t counted;

static void fail(const char *what) {
    fprintf(stderr, "letters: %s: %s\n", what, ch_last_error());
    exit(1);
}

static void read_list(const char *list) {
    FILE *file = fopen(list, "r");
    char *line = NULL;
    size_t room = 0;
    for (ssize_t length; file && (length = getline(&line, &room, file)) > 0; texts++) {
        line[length - 1] = '\0';
        paths = realloc(paths, (texts + 1) * sizeof *paths);
        paths[texts] = strdup(line);
    }
    if (!file || !texts) {
        fprintf(stderr, "letters: there is nothing in %s\n", list);
        exit(1);
    }
    free(line);
    fclose(file);
}

static void count_text(const char *path, uint64_t letters[26]) {
    static unsigned char text[MOST_BYTES];
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(text, 1, sizeof text, file) : 0;
    for (size_t at = 0; at < length; at++) {
        unsigned letter = (text[at] | 32u) - 'a';
        if (letter < 26 && text[at] >= 'A') letters[letter]++;
    }
    if (file) fclose(file);
}

static void count_batch(struct batch *batch, uint64_t number) {
    uint64_t letters[26] = {0};
    for (uint64_t text = number * BATCH; text < texts && text < (number + 1) * BATCH; text++)
        count_text(paths[text], letters);
    memcpy(batch->letters, letters, sizeof letters);
    atomic_store(&batch->done, 1);
    counted++;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: letters NAME LIST\n");
        return 2;
    }
    read_list(argv[2]);
    uint64_t batches_of_texts = (texts + BATCH - 1) / BATCH, bytes = PAGE + batches_of_texts * PAGE;
    ch_object *object = ch_open(argv[1], CH_READ | CH_WRITE);
    if (!object) fail(argv[1]);
    char *start = ch_map(NULL, bytes, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    if (!start) fail("mapping");
    struct tickets *tickets = (void *)start;
    struct batch *batches = (void *)(start + PAGE);
    for (uint64_t number; (number = atomic_fetch_add(&tickets->next, 1)) < tickets->batches;)
        count_batch(&batches[number], number);
    /* What the dead drew and did not finish. */
    for (uint64_t number = 0; number < tickets->batches; number++)
        if (!atomic_load(&batches[number].done)) count_batch(&batches[number], number);
    printf("   [process %ld] counted %llu of %llu batches\n", (long)getpid(), (unsigned long long)counted,
           (unsigned long long)tickets->batches);
    return 0;
}

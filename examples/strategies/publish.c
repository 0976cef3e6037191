/* Publish and subscribe over explicit coherence (Shirriff, section 5.3: changes "will not be
 * visible to processes on other processors until the modified page is returned to the server by
 * msync"; section 7.2: the other hosts' copies are invalid then).
 *
 * What it promises: a topic is a page with one publisher. Each subscriber sees whole publications,
 * never an older one after a newer one, and the last one in the end. It may leave out some in
 * between. Whoever published first has been told to all when the call returns, so that publications
 * of several topics are seen in their order.
 *
 * How: who publishes writes the page and syncs it. Who subscribes asks incore, one call for all
 * topics, which of them are not here any more: those were published since, and a touch fetches
 * them. That asks nobody else, and nothing is fetched twice. On the publisher's own host the page
 * is the same memory: there, and while a page is changed, two stamps say what is whole.
 *
 *    publish NAME publisher|subscriber COUNT SECONDS     so many of each topic, in turn */
#include "strategy.h"

enum { TOPICS = 4, TEXT = PAGE / 8 - 2 };

/* Whole, if both stamps are one number. */
struct topic {
    _Atomic uint64_t begun;
    _Atomic uint64_t words[TEXT];
    _Atomic uint64_t whole;
};

static void publish(struct topic *topic, const uint64_t *words) {
    uint64_t next = atomic_load(&topic->whole) + 1;
    atomic_store(&topic->begun, next);
    for (size_t i = 0; i < TEXT; i++) atomic_store(&topic->words[i], words[i]);
    atomic_store(&topic->whole, next);
    if (ch_sync(topic, PAGE)) fail("sync");
}

/* Copies a topic, if it is whole: gives its number, or 0. */
static uint64_t copy(struct topic *topic, uint64_t *words) {
    uint64_t whole = atomic_load(&topic->whole);
    for (size_t i = 0; i < TEXT; i++) words[i] = atomic_load(&topic->words[i]);
    return atomic_load(&topic->begun) == whole ? whole : 0;
}

struct subscription {
    struct topic *topics;
    uint64_t seen[TOPICS];
};

/* Waits for a topic that was published since it was seen; copies it. Gives which one it is. */
static size_t receive(struct subscription *subscription, uint64_t *words) {
    for (;; wait_for("a publication")) {
        unsigned char states[TOPICS];
        if (ch_incore(subscription->topics, TOPICS * (size_t)PAGE, states)) fail("incore");
        for (size_t i = 0; i < TOPICS; i++) {
            struct topic *topic = &subscription->topics[i];
            /* What is here is what was seen, unless its publisher is on this host. */
            int is_here = CH_STATE(states[i]) != CH_ABSENT;
            if (is_here && atomic_load(&topic->whole) == subscription->seen[i]) continue;
            uint64_t number = copy(topic, words);
            if (number == 0 || number == subscription->seen[i]) continue;
            if (number < subscription->seen[i]) {
                fprintf(stderr, "topic %zu went back\n", i);
                _exit(3);
            }
            subscription->seen[i] = number;
            return i;
        }
    }
}

static int publishes(struct topic *topics, uint64_t count) {
    uint64_t words[TEXT];
    for (uint64_t number = 1; number <= count; number++)
        for (uint64_t topic = 0; topic < TOPICS; topic++) {
            for (uint64_t i = 0; i < TEXT; i++) words[i] = number * 1000003 + topic * 1009 + i;
            publish(&topics[topic], words);
        }
    printf("published\n");
    fflush(stdout);
    /* Its end would be a sync, too: it stays until all have seen what it synced. */
    return getchar() == EOF ? 0 : 1;
}

static int subscribes(struct topic *topics, uint64_t count) {
    struct subscription subscription = {topics, {0}};
    uint64_t words[TEXT], received = 0;
    for (size_t done = 0; done < TOPICS; received++) {
        size_t topic = receive(&subscription, words);
        uint64_t number = subscription.seen[topic];
        for (uint64_t i = 0; i < TEXT; i++)
            if (words[i] != number * 1000003 + topic * 1009 + i)
                return fprintf(stderr, "publication %llu is torn\n", (unsigned long long)number), 3;
        /* Topics come in their order: what was published before is there. */
        for (size_t before = 0; before < topic; before++)
            if (atomic_load(&topics[before].whole) < number)
                return fprintf(stderr, "topic %zu came before topic %zu\n", topic, before), 3;
        done += number == count;
    }
    printf("%llu publications, the last of each topic among them\n", (unsigned long long)received);
    return 0;
}

int main(int count, char **words) {
    if (count != 5) return fprintf(stderr, "publish NAME publisher|subscriber COUNT SECONDS\n"), 64;
    struct topic *topics = (struct topic *)(void *)shared(words[1], TOPICS, atof(words[4]));
    uint64_t number = strtoull(words[3], NULL, 10);
    return words[2][0] == 'p' ? publishes(topics, number) : subscribes(topics, number);
}

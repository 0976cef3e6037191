/* An audio callback of 64 frames, fed by a channel.
 *
 *     commonhold host start
 *     cc -O2 examples/audio.c -Iinclude -Ltarget/release -lcommonhold -lm -o audio
 *     LD_LIBRARY_PATH=target/release ./audio 5
 *
 * One process makes sound and sends it, 64 frames a message. Another takes a message each 1.33 ms
 * (64 frames at 48 kHz), as the callback of a sound card does: it must not wait, allocate or fault.
 * It calls ch_channel_receive() with a time of 0, into memory of its own. The channel is wired, so
 * that no page of it can be missing.
 *
 * There is no sound card here: a clock calls the callback. At the end it says how often there was no
 * sound in time, and fails if a block was lost, came twice or out of order. */
#include <commonhold.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FRAMES = 64, RATE = 48000, SOUND = 1, SILENCE = 2, AHEAD = 16 };

struct block {
    uint64_t number;
    float frames[FRAMES][2];
};

static int fail(const char *what) {
    fprintf(stderr, "audio: %s: %s\n", what, ch_last_error());
    return 1;
}

/* The other process: a tone of 440 Hz. It is ahead of the callback by what the channel holds. */
static int make_sound(const char *name, uint64_t blocks) {
    ch_channel *channel = ch_channel_open(name);
    if (!channel) return fail("opening the channel");
    struct block block;
    for (block.number = 0; block.number < blocks; block.number++) {
        for (int frame = 0; frame < FRAMES; frame++) {
            double at = (double)(block.number * FRAMES + frame) / RATE;
            float sample = (float)sin(2 * 3.14159265358979 * 440 * at);
            block.frames[frame][0] = block.frames[frame][1] = sample;
        }
        if (ch_channel_send(channel, SOUND, &block, sizeof block, 10000) != 1)
            return fail("sending");
    }
    if (ch_channel_send(channel, SILENCE, NULL, 0, 10000) != 1)
        return fail("sending the end");
    return ch_channel_close(channel) ? fail("closing") : 0;
}

struct player {
    ch_channel *channel;
    uint64_t next, late;
    double loudness;
    int ended, wrong;
};

/* What a sound card would call. It has 1.33 ms. */
static void callback(struct player *player, float out[FRAMES][2]) {
    static struct block block;
    ch_message message = CH_MESSAGE_INIT;
    int got = ch_channel_receive(player->channel, &message, &block, sizeof block, 0);
    if (got != 1) { /* nothing yet, or the sender is in the queue just now: silence this time */
        memset(out, 0, sizeof(float[FRAMES][2]));
        player->late += 1;
        return;
    }
    if (message.kind == SILENCE) {
        player->ended = 1;
        return;
    }
    player->wrong |= message.length != sizeof block || block.number != player->next;
    player->next++;
    memcpy(out, block.frames, sizeof block.frames);
}

static void play(struct player *player) {
    static float out[FRAMES][2];
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!player->ended && !player->wrong) {
        next.tv_nsec += 1000000000L * FRAMES / RATE;
        if (next.tv_nsec >= 1000000000L) next.tv_sec++, next.tv_nsec -= 1000000000L;
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL)) continue;
        callback(player, out);
        player->loudness += fabs(out[0][0]);
    }
}

int main(int count, char **words) {
    double seconds = count > 1 ? atof(words[1]) : 5;
    const char *name = count > 2 ? words[2] : "/audio/out";
    uint64_t blocks = (uint64_t)(seconds * RATE / FRAMES) + 1;
    struct player player = {0};
    /* Room for AHEAD messages: as late as the sound is then. */
    player.channel = ch_channel_create(name, AHEAD * (sizeof(struct block) + 16), CH_WIRED, 0600);
    if (!player.channel) return fail("creating the channel");
    if (mlockall(MCL_CURRENT)) perror("audio: memory of this program may be paged out");
    pid_t child = fork();
    if (child < 0) return perror("audio: fork"), 1;
    if (child == 0) _exit(make_sound(name, blocks));
    play(&player);
    int status;
    if (waitpid(child, &status, 0) != child || status)
        return fprintf(stderr, "audio: the sender failed\n"), 1;
    if (ch_channel_close(player.channel) || ch_remove(name)) return fail("removing the channel");
    printf("%llu of %llu blocks played, %llu times there was none in time\n",
           (unsigned long long)player.next, (unsigned long long)blocks,
           (unsigned long long)player.late);
    return player.wrong || player.next != blocks;
}

/* Channels in C, with a real host. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[256];

static void messages(ch_channel *one, ch_channel *other) {
    ch_message message = CH_MESSAGE_INIT;
    CHECK(ch_channel_most_bytes(one) == 4080);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 0);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 10) == 0);
    CHECK(ch_channel_send(one, 7, "hello", 5, 0) == 1);
    CHECK(ch_channel_send(one, 8, NULL, 0, -1) == 1);
    CHECK(ch_channel_receive(other, &message, buffer, 4, 0) == -1 && errno == EINVAL && message.length == 5);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 1);
    CHECK(message.kind == 7 && message.length == 5 && message.landing == 0 && !memcmp(buffer, "hello", 5));
    CHECK(ch_channel_receive(other, &message, NULL, 0, -1) == 1 && message.kind == 8 && message.length == 0);
    static char large[4080];
    CHECK(ch_channel_send(one, 1, large, sizeof large, 0) == 1);
    CHECK(ch_channel_send(one, 1, "x", 1, 0) == 0 && ch_channel_send(one, 1, "x", 1, 10) == 0);
    CHECK(ch_channel_send(one, 1, large, 4081, 0) == -1 && errno == EINVAL && strstr(ch_last_error(), "4080"));
    CHECK(ch_channel_receive(other, &message, large, sizeof large, 0) == 1 && message.length == sizeof large);
    pid_t child = fork();
    if (child == 0) _exit(ch_channel_send(one, 9, "child", 5, -1) != 1);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 10000) == 1 && message.kind == 9);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void objects(ch_channel *one, ch_channel *other) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 8192;
    ch_message message = CH_MESSAGE_INIT;
    ch_object *mine = ch_create_nameless(&options);
    CHECK(mine);
    char *memory = ch_map(NULL, 8192, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, mine, 0);
    CHECK(memory && strcpy(memory + 4096, "given"));
    CHECK(ch_channel_send_object(one, 4, "for you", 7, mine, CH_READ | CH_WRITE, 0) == 1);
    CHECK(ch_channel_send_by_reference(one, 5, NULL, 0, mine, 4096, 5, -1) == 1);
    strcpy(memory + 4096, "later");
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 1 && message.kind == 4 && message.object);
    char *same = ch_map(NULL, 8192, CH_PROT_READ, CH_SHARED, message.object, 0);
    CHECK(same && !strcmp(same + 4096, "later") && ch_unmap(same, 8192) == 0 && ch_close(message.object) == 0);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 1 && message.kind == 5 && message.object);
    char *copy = ch_map(NULL, 5, CH_PROT_READ, CH_SHARED, message.object, 0);
    CHECK(copy && !memcmp(copy, "given", 5));
    CHECK(ch_channel_send_object(one, 1, NULL, 0, message.object, CH_READ | CH_WRITE, 0) == -1 && errno == EACCES);
    CHECK(ch_unmap(copy, 5) == 0 && ch_close(message.object) == 0);
    /* A program that was built before messages had objects. */
    CHECK(ch_channel_send_object(one, 6, NULL, 0, mine, CH_READ, 0) == 1);
    memset(&message, 0xff, sizeof message);
    message.struct_bytes = offsetof(ch_message, object);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 1 && message.kind == 6);
    CHECK(message.object == (ch_object *)UINTPTR_MAX);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, 0) == 0);
    CHECK(ch_channel_send_object(one, 1, NULL, 0, NULL, CH_READ, 0) == -1 && errno == EINVAL);
    CHECK(ch_channel_send_object(one, 1, NULL, 0, mine, 77, 0) == -1 && errno == EINVAL);
    CHECK(ch_channel_send_by_reference(one, 1, NULL, 0, mine, 8192, 1, 0) == -1 && errno == EINVAL);
    CHECK(ch_unmap(memory, 8192) == 0 && ch_close(mine) == 0);
}

static void bad_input(ch_channel *one) {
    ch_message message = CH_MESSAGE_INIT;
    CHECK(!ch_channel_create("/c/x", 4096, CH_SHARED_TABLES, 0600) && errno == EINVAL);
    CHECK(!ch_channel_create("/c/x", 4096, 17, 0600) && errno == EINVAL);
    CHECK(!ch_channel_open(NULL) && errno == EINVAL && !ch_channel_open("/nothing") && errno == ENOENT);
    CHECK(ch_channel_send(NULL, 1, "", 0, 0) == -1 && errno == EINVAL);
    CHECK(ch_channel_send(one, 1, NULL, 1, 0) == -1 && errno == EINVAL);
    CHECK(ch_channel_receive(one, NULL, buffer, 1, 0) == -1 && ch_channel_receive(one, &message, NULL, 1, 0) == -1);
    message.struct_bytes = 8;
    CHECK(ch_channel_receive(one, &message, buffer, 1, 0) == -1 && errno == EINVAL);
    CHECK(ch_channel_close(NULL) == -1 && ch_channel_most_bytes(NULL) == 0);
    CHECK(ch_channel_withdraw(one, 5) == -1 && errno == ENODEV && ch_channel_withdraw(one, 0) == 0);
}

static void regions(ch_channel *one, ch_channel *other) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 65536;
    options.translation = CH_WIRED;
    ch_object *object = ch_create("/c/input", &options);
    CHECK(object);
    char *memory = ch_map(NULL, 65536, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, object, 0);
    CHECK(memory);
    uint64_t landing = 0;
    ch_message message = CH_MESSAGE_INIT;
    CHECK(ch_channel_send_region(one, 3, NULL, 0, "region", 6, 10) == 0);
    CHECK(ch_channel_post(other, object, 100, 1000, &landing) == 0 && landing != 0);
    CHECK(ch_channel_send_region(one, 3, "about", 5, "region", 6, -1) == 1);
    CHECK(ch_channel_receive(other, &message, buffer, sizeof buffer, -1) == 1);
    CHECK(message.kind == 3 && message.landing == landing && message.landed_bytes == 6 && message.length == 5);
    CHECK(!memcmp(memory + 100, "region", 6) && memory[106] == 0);
    CHECK(ch_channel_post(other, object, 65000, 1000, &landing) == -1 && errno == EINVAL);
    CHECK(ch_channel_post(other, object, 0, 1000, NULL) == -1 && ch_channel_post(other, NULL, 0, 1, &landing) == -1);
    CHECK(ch_unmap(memory, 65536) == 0 && ch_close(object) == 0 && ch_remove("/c/input") == 0);
}

static void reads(const char *path) {
    ch_options options = CH_OPTIONS_INIT;
    options.size_bytes = 65536;
    ch_object *object = ch_create("/c/plain", &options);
    CHECK(object);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    uint64_t bytes = 0, direct = 1;
    CHECK(ch_read_into(file, 0, object, 4096, 8192, &bytes, &direct) == 0 && bytes == 8192 && direct <= 8192);
    CHECK(ch_read(object, buffer, 1, 4096) == 0 && buffer[0] == '.');
    CHECK(ch_read_into(file, 1, object, 1, 10, &bytes, NULL) == 0 && bytes == 10);
    CHECK(ch_read_into(file, 0, object, 0, 65537, &bytes, NULL) == -1 && errno == EINVAL);
    CHECK(ch_read_into(-1, 0, object, 0, 1, &bytes, NULL) == -1 && ch_read_into(file, 0, object, 0, 1, NULL, NULL) == -1);
    CHECK(close(file) == 0 && ch_close(object) == 0 && ch_remove("/c/plain") == 0);
}

int main(int count, char **words) {
    CHECK(count == 2);
    ch_channel *one = ch_channel_create("/c/channel", 1, CH_PAGED, 0600);
    CHECK(one);
    ch_channel *other = ch_channel_open("/c/channel");
    CHECK(other);
    messages(one, other);
    bad_input(one);
    objects(one, other);
    regions(one, other);
    reads(words[1]);
    CHECK(ch_channel_close(one) == 0 && ch_channel_close(other) == 0 && ch_remove("/c/channel") == 0);
    return puts("ok") < 0;
}

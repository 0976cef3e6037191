/* A function in a child process. */
#pragma once

#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

/* What the child ends with, as the function says; -1: it was killed. */
static int in_child(int (*run)(void)) {
    pid_t child = fork();
    int status;
    if (child == 0) _exit(run());
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What these programs do when something is not as it should be. */
#pragma once

#include <commonhold.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, ch_last_error());       \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

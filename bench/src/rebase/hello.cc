#include <cstdio>

int main() {
    std::printf("one header, as most programs have it\n");
    return 0;
}

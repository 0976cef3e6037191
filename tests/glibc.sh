#!/bin/sh
# Runs within a release of Debian: programs of it with and without copies of their libraries. `./run test-glibc` starts it.
set -eu
cd /tmp
ldd --version | head -n 1
clang=$(readlink -f "$(command -v clang)")
commonhold rebase set "$clang" git ls perl gcc

check() {
    echo "== $*"
    commonhold rebase check -- "$@"
}
check "$clang" -O2 -c hello.cc -o hello.o
check git --version
check ls -d /
check perl -e 'print 1'
check gcc --version

#!/bin/sh
# Two programs in two languages fill one memory object together, an index of all texts of this machine, while one of
# them and the host are killed. `./run demo` builds everything and calls this.
set -eu

demo=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(dirname "$demo")
built=${COMMONHOLD_BUILT:-$root/target/release}
work=$root/target/demo
commonhold=$built/commonhold
python=$root/.venv/bin/python
name=/demo/index

say() { printf '\n%s\n' "$*"; }

# A host of the demo's own: it touches no other.
export COMMONHOLD_HOST="$work/host"
export PYTHONDONTWRITEBYTECODE=1
stop_host() { [ ! -S "$COMMONHOLD_HOST/host.sock" ] || "$commonhold" host stop --force >/dev/null 2>&1 || :; }
clean_up() {
    stop_host
    rm -rf "$work"
}
at_end() {
    if [ "$?" -ne 0 ] && [ -e "$COMMONHOLD_HOST/log" ]; then
        echo "demo: failed; the end of the host's log:" >&2
        tail -n 20 "$COMMONHOLD_HOST/log" >&2
    fi
    clean_up
}
trap at_end EXIT
trap 'exit 130' INT TERM

clean_up
mkdir -p "$work"
library=$built/libcommonhold.so
[ -e "$library" ] || { echo "demo: $library is missing: run ./run build" >&2; exit 1; }
cc -std=c11 -O2 -Wall -Wextra -I "$root/include" -o "$work/index" "$demo/index.c" "$library" -Wl,-rpath,"$built"
cc -std=c11 -O2 -Wall -Wextra -I "$root/include" -o "$work/letters" "$demo/letters.c" "$library" -Wl,-rpath,"$built"

say "1. A host starts: the daemon that serves memory objects, with a keeper that restarts it if it dies."
"$commonhold" host start --state "$COMMONHOLD_HOST"

say "2. An object is made: a named run of bytes that any program may map. Its pages are a file's, and sync is atomic."
"$python" "$demo/prepare.py" "$name" "$work/index.bin"
"$commonhold" ls -l /demo

say "3. A C and a Python program, which know only that name, fill it together; each syncs every 64 texts.
   The C program is killed with -9 and started again; then the host is killed."
"$python" "$demo/direct.py" "$name" "$work/index.bin" "$work/index" "$commonhold"

say "4. A third program reads the index, and makes another one without Commonhold to compare."
"$python" "$demo/judge.py" "$name" "$work/index.bin"

say "5. Three hosts form a cluster, and a program on each counts letters into one strict object: a page has one writer or
   many readers, on whatever host. One host is killed with everything on it; the others do its work again."
"$python" "$demo/cluster.py" "$work" "$work/letters" "$commonhold"

say "Nothing was lost. See README.md for ten lines of your own."

#!/bin/sh
# PostgreSQL's own regression suite on a server of Debian's, run by `commonhold run --share-page-tables`, and on the same server
# without us: both have to give the same results. Whatever it needs is fetched with apt, and built, below target/postgres.
#
#   tests/postgres.sh PROGRAM      PROGRAM: commonhold, with its libraries beside it
set -eu
program=$(realpath "$1")
bin=/usr/lib/postgresql/15/bin
place=$(realpath -m "${CARGO_TARGET_DIR:-target}/postgres")
user=nobody
pages=600

fail() { echo "postgres: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "huge pages and a server that is not root's need root"
[ -x $bin/postgres ] || fail "PostgreSQL 15 is not installed: apt-get install postgresql-15"
as_user() { setpriv --reuid $user --regid nogroup --clear-groups "$@"; }

# The newest source of that major version that can be had: that of the server, or one a little older.
fetch() {
    mkdir -p "$place/parts" "$place/lists/partial" "$place/source"
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >"$place/parts/source.sources"
    apt="-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=$place/parts -o Dir::State::Lists=$place/lists"
    # shellcheck disable=SC2086 # words
    apt-get $apt update -qq
    # shellcheck disable=SC2086 # words
    versions=$(apt-cache $apt madison postgresql-15 | awk '/Sources/ { print $3 }' | sort -rV)
    for version in $versions; do
        # shellcheck disable=SC2086 # words
        if (cd "$place/source" && apt-get $apt source -qq --download-only "postgresql-15=$version"); then
            mkdir -p "$place/tree"
            tar -xf "$place/source"/postgresql-15_*.orig.tar.bz2 -C "$place/tree" --strip-components=1
            return
        fi
    done
    fail "the source of PostgreSQL 15 cannot be had"
}

build() {
    cd "$place/tree"
    ./configure --quiet --without-readline --without-zlib --without-icu --prefix="$place/nowhere" >"$place/configure.log" 2>&1 ||
        fail "see $place/configure.log"
    make -s -j2 -C src/test/regress >"$place/build.log" 2>&1 || fail "see $place/build.log"
    cd - >/dev/null
}

# suite NAME WORDS...: a server, started by those words, and the suite on it.
suite() {
    name=$1
    shift
    work=$place/$name
    rm -rf "$work"
    mkdir -p "$work/results"
    cp -r "$place/tree/src/test/regress" "$work/"
    chown -R $user:nogroup "$work"
    chmod 755 "$place" "$work"
    # The server makes its table spaces there.
    as_user $bin/initdb -D "$work/data" -A trust -U $user --no-sync --locale=C --encoding=UTF8 >/dev/null
    (cd "$work" && as_user "$@" $bin/postgres -D "$work/data" -k "$work" -p 5499 -c listen_addresses= -c shared_buffers=256MB \
        -c huge_pages=off -c fsync=off -c max_prepared_transactions=2 >"$work/server.log" 2>&1 </dev/null) &
    server=$!
    until $bin/pg_isready -q -h "$work" -p 5499; do
        kill -0 $server 2>/dev/null || fail "the server does not start: see $work/server.log"
        sleep 0.1
    done
    leader=$(head -n 1 "$work/data/postmaster.pid")
    if grep -q '/memfd:commonhold-' "/proc/$leader/maps"; then echo shared; else echo plain; fi >"$work/buffers"
    (cd "$work/regress" && as_user ./pg_regress --inputdir="$work/regress" --outputdir="$work/regress" --bindir=$bin --dlpath="$work/regress" --host="$work" --port=5499 --user=$user \
        --max-concurrent-tests=20 --schedule=./parallel_schedule) >"$work/said" 2>&1 || true
    kill -INT "$leader"
    wait $server || true
    tail -n 3 "$work/said"
    sed -n -E 's/^(test|    ) ([a-z0-9_.]+) +\.\.\. (ok|FAILED|failed).*/\2 \3/p' "$work/said" | sort >"$work/results/list"
    [ "$(wc -l <"$work/results/list")" -gt 150 ] || fail "the suite did not run: see $work/said"
}

[ -d "$place/tree" ] || fetch
[ -x "$place/tree/src/test/regress/pg_regress" ] || build
before=$(cat /proc/sys/vm/nr_hugepages)
state=$place/state
end() {
    echo "$before" >/proc/sys/vm/nr_hugepages
    "$program" --host "$state" host stop --force >/dev/null 2>&1 || true
}
trap end EXIT
echo $((before + pages)) >/proc/sys/vm/nr_hugepages
"$program" host start --quiet --state "$state"
suite plain env
COMMONHOLD_HOST=$state
export COMMONHOLD_HOST
suite shared "$program" run --share-page-tables --
[ "$(cat "$place/plain/buffers" "$place/shared/buffers" | tr '\n' ' ')" = "plain shared " ] || fail "the buffers are not where they belong"
diff "$place/plain/results/list" "$place/shared/results/list" || fail "the results differ: see $place/shared/regress/regression.diffs"
echo "postgres: $(grep -c ' ok$' "$place/shared/results/list") tests passed both ways, $(grep -c -i failed "$place/shared/results/list" || true) failed both ways"

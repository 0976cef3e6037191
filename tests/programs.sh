#!/bin/sh
# Real programs at real work, with copies of their libraries and without: what they say must be the same. PostgreSQL as a
# server with clients, numpy's own tests, a program of Qt that makes a picture. `./run test-programs` starts it, as root.
set -eu
place=$(mktemp -d)
chmod 755 "$place"
trap 'rm -rf "$place"' EXIT
store=$place/store
postgres=/usr/lib/postgresql/15/bin

set_programs() {
    commonhold rebase set --store "$store" "$@" >/dev/null
}

# Runs a function without copies and with, and compares what it says.
both() {
    "$1" "$place/stock" >"$place/stock.said" 2>&1 || { cat "$place/stock.said"; exit 1; }
    (
        eval "$(commonhold rebase env --store "$store")"
        "$1" "$place/rebased"
    ) >"$place/rebased.said" 2>&1 || { cat "$place/rebased.said"; exit 1; }
    diff "$place/stock.said" "$place/rebased.said" || { echo "$1: not the same"; exit 1; }
    echo "$1: the same, $(wc -l <"$place/stock.said") lines"
}

server() {
    # shellcheck disable=SC2016 # what is between the quotes is for the inner shell
    setpriv --reuid postgres --regid postgres --clear-groups sh -eu -c '
        export LC_ALL=C
        "$1"/initdb -D "$0" -A trust --no-sync >/dev/null
        "$1"/pg_ctl -D "$0" -o "-c listen_addresses= -k $0 -c fsync=off" -w -l "$0/log" start >/dev/null
        trap "\"$1\"/pg_ctl -D \"$0\" -m immediate stop >/dev/null" EXIT
        case ${LD_AUDIT:+set} in
            set) grep -q /copies/ "/proc/$(head -n 1 "$0/postmaster.pid")/maps" || { echo "the server has no copies"; exit 1; } ;;
        esac
        "$1"/pgbench -h "$0" -i -q -s 1 postgres 2>/dev/null
        "$1"/pgbench -h "$0" -n -t 200 -c 4 postgres 2>/dev/null | grep -E "actually processed|failed"
        "$1"/psql -h "$0" -At postgres -c "
            create table t as select i, md5(i::text) m, i * 1.5 f from generate_series(1, 20000) i;
            create index on t(m);
            select count(*), sum(f), min(m), max(m) from t;
            select to_tsvector(\$\$english\$\$, \$\$The quick brown foxes jumped\$\$), \$\$abc\$\$ ~ \$\$b+\$\$;
            select proname, prosrc from pg_proc order by oid;"
        "$1"/psql -h "$0" -A postgres -c "\\d pg_class"' "$1" "$postgres"
}

numpy() {
    tests=$(dirname "$(/usr/bin/python3 -c 'import numpy; print(numpy.__file__)')")
    cd "$place"
    # How long it took is not the same.
    /usr/bin/python3 -m pytest -q -p no:cacheprovider "$tests/linalg/tests" "$tests/fft/tests" |
        sed 's/ in [0-9.]*s.*//'
}

picture() {
    export QT_QPA_PLATFORM=offscreen XDG_RUNTIME_DIR="$place"
    echo '<h1>A page</h1><script>document.body.append(6 * 7)</script>' >"$place/page.html"
    wkhtmltoimage --quiet --format png "$place/page.html" - | sha256sum
}

if [ -x $postgres/postgres ]; then
    set_programs $postgres/postgres $postgres/initdb $postgres/pg_ctl $postgres/pgbench $postgres/psql
    for side in stock rebased; do install -d -o postgres "$place/$side"; done
    both server
else
    echo "server: left out, postgresql-15 is not installed"
fi
if /usr/bin/python3 -c 'import numpy, pytest, hypothesis' 2>/dev/null; then
    set_programs /usr/bin/python3
    both numpy
else
    echo "numpy: left out, python3-numpy, python3-pytest or python3-hypothesis is not installed"
fi
if command -v wkhtmltoimage >/dev/null; then
    set_programs "$(command -v wkhtmltoimage)"
    both picture
else
    echo "picture: left out, wkhtmltopdf is not installed"
fi

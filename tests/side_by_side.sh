#!/bin/sh
# Runs programs of tests, two at a time: many have one test, which waits. Each line of the standard input is
# DIRECTORY|PROGRAM; the words are given to each. What a program says is shown when it has ended.
set -eu

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
words=$*
export said words
# shellcheck disable=SC2016 # the inner shell's
xargs -d "\n" -n 1 -P 2 sh -c '
    directory=${1%%|*} program=${1#*|} name=${1##*/} code=0 begun=$(date +%s)
    # shellcheck disable=SC2086 # words
    (cd "$directory" && CARGO_MANIFEST_DIR=$directory "$program" --quiet $words) >"$said/$name" 2>&1 </dev/null || code=$?
    took_s=$(($(date +%s) - begun))
    exec 9>"$said/.shown"
    flock 9
    printf "\n%s, %s: %s s\n" "${directory##*/}" "${name%-*}" "$took_s"
    cat "$said/$name"
    [ "$code" -eq 0 ] || printf "error: %s of %s ended with %s\n" "${name%-*}" "$directory" "$code"
    exit "$code"
' sh

#!/bin/sh
# What is in the Debian packages of a directory: `files` lists it, of man pages and documents the directories. Programs are
# without what debuggers read, which is in packages of its own; the library has the functions of crates/client/tests/abi.txt;
# lintian has nothing to say.
#
# structure.sh PACKAGES
set -eu
packages=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT

fail() { echo "structure.sh: $*" >&2; exit 1; }

for package in "$packages"/*.deb; do
    name=$(dpkg-deb --field "$package" Package)
    dpkg-deb -x "$package" "$unpacked/$name"
    (cd "$unpacked/$name" && find . ! -type d -printf "$name %P\n")
done | sed -E -e 's#(/man1|/docs)/.*#\1#' -e 's#/[^/]*-linux-gnu/#/TRIPLET/#' -e 's#build-id/.*#build-id#' \
    -e 's#[0-9]+\.[0-9]+\.[0-9]+(\+[0-9])?#VERSION#' | LC_ALL=C sort -u >"$unpacked/files"
diff "$here/files" "$unpacked/files" || fail "packages have other files than tests/packages/files says"

cd "$unpacked"
for file in commonhold/usr/bin/commonhold commonhold/usr/lib/commonhold/*.so libcommonhold0/usr/lib/*/*.so.*.*.*; do
    ! readelf -SW "$file" | grep -E '\.(debug_info|symtab)' || fail "$file is not stripped"
    id=$(readelf -n "$file" | sed -n 's/.*Build ID: //p')
    name=${id#??}
    ls ./*-dbgsym/usr/lib/debug/.build-id/"${id%"$name"}/$name.debug" >/dev/null || fail "$file has no debug file"
done
readelf --dyn-syms -W libcommonhold0/usr/lib/*/*.so.*.*.* | awk '$7 != "UND" && $8 ~ /@@/ { print $8 }' |
    grep -v '^COMMONHOLD' | LC_ALL=C sort >exported
grep '@@' "$here/../../crates/client/tests/abi.txt" | LC_ALL=C sort | diff - exported || fail "the library has other functions"
cd - >/dev/null
lintian --allow-root --fail-on error,warning "$packages"/*.deb || fail "lintian has errors or warnings"
echo "packages: as they should be"

#!/bin/sh
# Debian packages in roots of Debian's releases: installed, used, upgraded and purged (inside.sh). Prints
# `install.deb_failures N`: steps that failed, and files that stayed. Needs root, and some 500 MiB for each release.
#
# roots.sh PACKAGES NEWER PLACE [SUITE...]
#   PACKAGES, NEWER  directories of packaging/deb.sh, the second with a higher version
#   PLACE            where roots are kept for the next time
set -eu
packages=$1 newer=$2 place=$3
shift 3
[ "$#" -gt 0 ] || set -- bookworm trixie
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
mkdir -p "$place"
place=$(CDPATH='' cd -- "$place" && pwd)
failures=0

make_root() {
    [ ! -e "$place/$1/made" ] || return 0
    rm -rf "${place:?}/$1"
    programs=gcc,libc6-dev,pkgconf,cmake,make,systemd,fuse3,dkms
    # Debian 12's own kernel is too old for the module: there it is not built.
    [ "$1" = bookworm ] || programs=$programs,linux-headers-amd64
    debootstrap --variant=minbase --include="$programs" "$1" "$place/$1" "$mirror" \
        >"$place/$1.log" 2>&1 || { tail -n 5 "$place/$1.log" >&2; return 1; }
    touch "$place/$1/made"
}

# What is done in it is not done to the root that is kept.
try_in() {
    changed=$place/$1.changed
    rm -rf "$changed"
    mkdir -p "$changed/upper" "$changed/work" "$changed/root"
    # shellcheck disable=SC2016 # words of the other shell
    unshare --mount --pid --fork sh -euc '
        root=$2/root
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/run"
        mount -t tmpfs tmpfs "$root/tmp"
        mkdir "$root/tmp/packages" "$root/tmp/newer" "$root/tmp/tests"
        cp "$3"/*.deb "$root/tmp/packages/"
        cp "$4"/*.deb "$root/tmp/newer/"
        cp "$5"/* "$root/tmp/tests/"
        exec chroot "$root" /bin/sh /tmp/tests/inside.sh
    ' sh "$place/$1" "$changed" "$packages" "$newer" "$here" || return 1
    rm -rf "$changed"
}

for suite; do
    echo "== $suite"
    make_root "$suite"
    said=$place/$suite.said
    try_in "$suite" >"$said" 2>&1 || echo "FAILED the test itself ended early" >>"$said"
    sed 's/^/   /' "$said"
    failures=$((failures + $(grep -c '^FAILED' "$said" || :)))
done
echo "install.deb_failures $failures"
[ "$failures" -eq 0 ]

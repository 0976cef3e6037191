#!/bin/sh
# Makes the image of packaging/kubernetes and packaging/helm: Debian's smallest root, and the package commonhold above it. Needs
# root for debootstrap, and no daemon.
#
# oci.sh PACKAGE VERSION INTO PLACE
#   PACKAGE  the .deb
#   INTO     the tar that is made
#   PLACE    where Debian's root is kept for the next time
set -eu
package=$1 version=$2 into=$3 place=$4
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
if [ ! -e "$place/made" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    debootstrap --variant=minbase bookworm "$place/root" "$mirror" >"$place/log" 2>&1 || { tail -n 5 "$place/log" >&2; exit 1; }
    rm -rf "$place"/root/var/cache/apt/* "$place"/root/var/lib/apt/lists/* "$place"/root/var/log/* "$place"/root/usr/share/man/* \
        "$place"/root/usr/share/locale/* "$place"/root/dev/*
    touch "$place/made"
fi
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
chmod 755 "$files"
dpkg-deb -x "$package" "$files"
# Of the package what a container runs. Everything in it is what dpkg would put there; dpkg itself knows nothing of it.
rm -r "$files/usr/share/man" "$files/usr/share/doc/commonhold/docs" "$files/usr/lib/systemd" "$files/usr/lib/udev"
seconds=$(git -C "$here" log -1 --format=%ct 2>/dev/null || stat -c %Y "$here/../CHANGELOG.md")
python3 "$here/oci.py" "$version" "$seconds" "$into" "$place/root" "$files"

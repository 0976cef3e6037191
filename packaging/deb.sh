#!/bin/sh
# Makes Debian packages, and a tar for other systems, of what packaging/programs.sh made.
#
# deb.sh FROM VERSION INTO [COMPRESSION]
#   FROM         has programs/ and debug/
#   VERSION      of the packages: 0.1.0, or 0.1.0+1 to try an upgrade
#   INTO         a directory, made anew
#   COMPRESSION  xz; gzip is quicker
set -eu
from=$(CDPATH='' cd -- "$1" && pwd) version=$2 into=$3 compression=${4:-xz}
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
debian=$root/packaging/debian
rm -rf "$into"
mkdir -p "$into/work/debian"
into=$(CDPATH='' cd -- "$into" && pwd)
work=$into/work
umask 022

triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
# Files have the date of the last commit, so that the same sources make the same packages.
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || stat -c %Y "$root/CHANGELOG.md")
export SOURCE_DATE_EPOCH

# move PACKAGE PATH...: out of what install.sh put into one tree.
move() {
    package=$1
    shift
    for path; do
        mkdir -p "$work/$package/$(dirname "$path")"
        mv "$work/all/$path" "$work/$package/$path"
    done
}

divide() {
    "$root/packaging/install.sh" --from "$from/programs" --prefix /usr --libdir "/usr/lib/$triplet" --destdir "$work/all"
    cd "$work/all"
    rm -r usr/share/commonhold usr/share/doc/commonhold/LICENSE-*
    mkdir usr/share/zsh/vendor-completions
    mv usr/share/zsh/site-functions/_commonhold usr/share/zsh/vendor-completions/
    rmdir usr/share/zsh/site-functions
    gzip -9n usr/share/man/man1/*
    # shellcheck disable=SC2046 # words
    move libcommonhold0 $(echo "usr/lib/$triplet"/libcommonhold.so.*)
    move libcommonhold-dev usr/include "usr/lib/$triplet"
    cd "$work"
    mv all commonhold
}

put_module() {
    place=$work/commonhold-segshm-dkms/usr/src/commonhold-segshm-$version
    mkdir -p "$place/uapi"
    cp "$root"/kernel/segshm/*.[ch] "$root/kernel/segshm/Kbuild" "$root/kernel/segshm/Makefile" "$place/"
    cp "$root"/kernel/segshm/uapi/*.h "$place/uapi/"
    sed "s/@VERSION@/$version/g" "$debian/dkms.conf" >"$place/dkms.conf"
}

put_debug_files() {
    while read -r file debug; do
        case $file in libcommonhold.so.*) package=libcommonhold0-dbgsym ;; *) package=commonhold-dbgsym ;; esac
        install -D -m 644 "$from/debug/$debug" "$work/$package/usr/lib/debug/.build-id/$debug"
    done <"$from/debug/names"
}

# Which versions of functions programs need, and so of the package.
put_symbols() {
    soname=libcommonhold.so.${version%%.*}
    mkdir -p "$work/libcommonhold0/DEBIAN"
    awk -v soname="$soname" '
        BEGIN { print soname, "libcommonhold0 #MINVER#" }
        / \{$/ { node = $1; sub(/.*_/, "", $1); since = $1 ".0"; printf " %s@%s %s\n", node, node, since }
        /^ +ch_.*;$/ { sub(/;/, "", $1); printf " %s@%s %s\n", $1, node, since }
    ' "$root/include/commonhold.map" >"$work/symbols"
    dpkg-gensymbols -c4 -plibcommonhold0 -P"$work/libcommonhold0" -v"$version" -I"$work/symbols" \
        -e"$(echo "$work/libcommonhold0/usr/lib/$triplet/$soname".*.*)" -O"$work/libcommonhold0/DEBIAN/symbols" ||
        { echo "deb.sh: the library has not the symbols of include/commonhold.map" >&2; exit 1; }
    echo "activate-noawait ldconfig" >"$work/libcommonhold0/DEBIAN/triggers"
    echo "libcommonhold ${version%%.*} libcommonhold0 (>= 0.1)" >"$work/libcommonhold0/DEBIAN/shlibs"
}

# What every package has: copyright, changes, what it depends on, what is done before and after.
finish() {
    package=$1 tree=$work/$1
    documents=$tree/usr/share/doc/$package
    mkdir -p "$tree/DEBIAN" "${documents%/*}"
    case $package in
        *-dbgsym) ln -s "${package%-dbgsym}" "$documents" ;;
        *)
            install -D -m 644 "$debian/copyright" "$documents/copyright"
            gzip -9nc "$work/debian/changelog" >"$documents/changelog.gz"
            ;;
    esac
    if [ -e "$debian/$package.lintian-overrides" ]; then
        install -D -m 644 "$debian/$package.lintian-overrides" "$tree/usr/share/lintian/overrides/$package"
    fi
    for script in postinst prerm postrm; do
        [ -e "$debian/$package.$script" ] || continue
        sed "s/@VERSION@/$version/g" "$debian/$package.$script" >"$tree/DEBIAN/$script"
        chmod 755 "$tree/DEBIAN/$script"
    done
    (cd "$tree" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k2) >"$tree/DEBIAN/md5sums"
    cd "$work"
    : >debian/substvars
    set --
    case $package in
        commonhold | libcommonhold0)
            programs=$(find "$tree" -name '*.so*' -type f -o -name commonhold -type f -perm /100)
            # shellcheck disable=SC2086 # words
            dpkg-shlibdeps -Tdebian/substvars $programs
            ;;
        *-dbgsym) set -- -DAuto-Built-Package=debug-symbols ;;
    esac
    dpkg-gencontrol -p"$package" -P"$tree" -Tdebian/substvars -fdebian/files "$@"
    dpkg-deb --root-owner-group "-Z$compression" --build "$tree" "$into" >/dev/null
}

make_tar() {
    name=commonhold-$version-$(uname -m)-linux
    mkdir "$work/$name"
    cp -a "$from/programs" "$root/include" "$root/docs" "$root/README.md" "$root/CHANGELOG.md" "$root"/LICENSE-* \
        "$work/$name/"
    rm -r "$work/$name/docs/results"
    mkdir "$work/$name/packaging"
    cp -a "$root/packaging/install.sh" "$root/packaging/files" "$root/packaging/user" "$root"/packaging/*.service \
        "$work/$name/packaging/"
    ln -s packaging/install.sh "$work/$name/install.sh"
    set -- --owner=0 --group=0 --numeric-owner --sort=name --mtime="@$SOURCE_DATE_EPOCH" -C "$work"
    case $compression in xz) set -- -cJf "$into/$name.tar.xz" "$@" ;; *) set -- -czf "$into/$name.tar.gz" "$@" ;; esac
    tar "$@" "$name"
}

cp "$debian/control" "$work/debian/control"
sed -e "s/@VERSION@/$version/" -e "s/@DATE@/$(date -Ru -d "@$SOURCE_DATE_EPOCH")/" "$debian/changelog.in" \
    >"$work/debian/changelog"
divide
put_module
put_debug_files
put_symbols
for package in commonhold libcommonhold0 libcommonhold-dev commonhold-segshm-dkms commonhold-dbgsym libcommonhold0-dbgsym; do
    finish "$package"
done
make_tar
rm -r "$work"

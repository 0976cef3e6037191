#!/bin/sh
# Puts Commonhold where programs, libraries and headers belong (docs/INSTALL.md). `./run install` calls it, and who has unpacked
# the tar does.
#
# install.sh [--prefix DIR] [--destdir DIR] [--libdir DIR]
# install.sh --remove [--prefix DIR] [--destdir DIR]
#   --prefix DIR    below which it goes: /usr/local
#   --libdir DIR    where libraries go: PREFIX/lib
#   --destdir DIR   put before all of these, for who makes a package
#   --from DIR      where the programs are (packaging/programs.sh)
#   --remove        takes away what was put there, and no more
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# In the tar there is a link to this file above its own directory.
[ -d "$root/include" ] || root=${root%/*}
prefix=/usr/local destdir='' libdir='' from=$root/programs remove=no

fail() { echo "install.sh: $*" >&2; exit 1; }

while [ "$#" -gt 0 ]; do
    case $1 in
        --remove) remove=yes ;;
        --prefix | --destdir | --libdir | --from)
            [ "$#" -ge 2 ] || fail "$1 takes a directory"
            case $2 in /*) ;; *) fail "$1 takes a directory from the root on, not $2" ;; esac
            # shellcheck disable=SC2034 # one of four
            eval "${1#--}=\$2"
            shift
            ;;
        *) fail "unknown: $1 (see the head of $0)" ;;
    esac
    shift
done
libdir=${libdir:-$prefix/lib}
list=$prefix/share/commonhold/installed

# What was listed last goes first; directories only if nothing is left in them.
remove() {
    [ -e "$destdir$list" ] || fail "nothing was installed there: $destdir$list is missing"
    [ -O "$destdir$list" ] || fail "$destdir$list belongs to another user, who could have it name any file: remove it as that user"
    tac "$destdir$list" | while IFS= read -r path; do
        case $path in
            */) rmdir "$destdir$path" 2>/dev/null || : ;;
            *) rm -f "$destdir$path" ;;
        esac
    done
}

# Directories that are not there yet are listed, too.
make_directory() {
    [ ! -d "$destdir$1" ] || return 0
    make_directory "${1%/*}"
    mkdir "$destdir$1"
    echo "$1/" >>"$listed"
}

# put MODE FILE PATH
put() {
    make_directory "${3%/*}"
    install -m "$1" "$2" "$destdir$3"
    echo "$3" >>"$listed"
}

# The same, with directories and version filled in.
fill() {
    sed -e "s#@PREFIX@#$prefix#g" -e "s#@LIBDIR@#$libdir#g" -e "s#@VERSION@#$version#g" \
        -e "s#/usr/local/bin/commonhold#$prefix/bin/commonhold#g" "$1" >"$filled"
    put 644 "$filled" "$2"
}

link() {
    ln -sfn "$1" "$destdir$2"
    echo "$2" >>"$listed"
}

put_programs() {
    put 755 "$from/commonhold" "$prefix/bin/commonhold"
    # Where `commonhold run` looks for them.
    for library in preload sysv; do
        put 644 "$from/libcommonhold_$library.so" "$prefix/lib/commonhold/libcommonhold_$library.so"
    done
    for page in "$from"/man/*.1; do
        put 644 "$page" "$prefix/share/man/man1/${page##*/}"
    done
    put 644 "$from/completions/bash" "$prefix/share/bash-completion/completions/commonhold"
    put 644 "$from/completions/zsh" "$prefix/share/zsh/site-functions/_commonhold"
    put 644 "$from/completions/fish" "$prefix/share/fish/vendor_completions.d/commonhold.fish"
}

put_libraries() {
    name=libcommonhold.so
    put 644 "$from/$name.$version" "$libdir/$name.$version"
    link "$name.$version" "$libdir/$name.${version%%.*}"
    link "$name.${version%%.*}" "$libdir/$name"
    put 644 "$from/libcommonhold.a" "$libdir/libcommonhold.a"
    for header in "$root"/include/*.h; do
        put 644 "$header" "$prefix/include/${header##*/}"
    done
    fill "$root/packaging/files/commonhold.pc" "$libdir/pkgconfig/commonhold.pc"
    fill "$root/packaging/files/commonhold-config.cmake" "$libdir/cmake/commonhold/commonhold-config.cmake"
    fill "$root/packaging/files/commonhold-config-version.cmake" \
        "$libdir/cmake/commonhold/commonhold-config-version.cmake"
}

put_system() {
    for unit in commonhold commonhold-rebase-renew; do
        fill "$root/packaging/$unit.service" "$prefix/lib/systemd/system/$unit.service"
    done
    fill "$root/packaging/user/commonhold.service" "$prefix/lib/systemd/user/commonhold.service"
    put 644 "$root/packaging/files/60-commonhold.rules" "$prefix/lib/udev/rules.d/60-commonhold.rules"
    put 644 "$root/packaging/files/sysctl.conf" "$prefix/share/doc/commonhold/examples/sysctl.conf"
    for page in README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT; do
        put 644 "$root/$page" "$prefix/share/doc/commonhold/$page"
    done
    for page in "$root"/docs/*.md; do
        put 644 "$page" "$prefix/share/doc/commonhold/docs/${page##*/}"
    done
}

if [ "$remove" = yes ]; then
    remove
    exit
fi
[ -x "$from/commonhold" ] || fail "there are no programs in $from"
version=$(sed -n 's/^#define CH_VERSION "\(.*\)"$/\1/p' "$root/include/commonhold.h")
umask 022
filled=$(mktemp) listed=$(mktemp)
trap 'rm -f "$filled" "$listed"' EXIT
[ -z "$destdir" ] || mkdir -p "$destdir"
# Of an installation before: what it had and this one has not is taken away with the rest.
[ ! -e "$destdir$list" ] || cp "$destdir$list" "$listed"
put_programs
put_libraries
put_system
make_directory "${list%/*}"
echo "$list" >>"$listed"
awk '!known[$0]++' "$listed" >"$filled"
install -m 644 "$filled" "$destdir$list"
if [ -z "$destdir" ] && [ "$(id -u)" -eq 0 ] && command -v ldconfig >/dev/null; then
    ldconfig
fi

#!/bin/sh
# Tests the module segshm within QEMU, with a kernel of Debian that is fetched and not installed. `./run test-kernel` starts
# it.
#
# run.sh SUITE PLACE LIMIT [NAME...]
#   SUITE   whose kernel it is: bookworm-backports, or sid, for which a root of that suite is made to build in; or debug:
#           the sources of bookworm-backports, built here with all that watches memory and locks (debug.config)
#   PLACE   a directory for what is fetched and made, kept for the next time
#   LIMIT   how many seconds QEMU may run
#   NAME    only tests whose names contain one of these
#
# Exit status: 0 all passed, 1 something failed, 77 the kernel cannot be had here.
set -eu
suite=$1 place=$2 limit=$3
shift 3
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
module=$here/../../kernel/segshm
mirror=${MIRROR:-http://deb.debian.org/debian}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$place"
place=$(CDPATH='' cd -- "$place" && pwd)

absent() { echo "skipped $suite $*"; exit 77; }

# --- the kernel, and what modules for it are built with ---------------------------------------------------------

# apt with lists of its own: the machine's are not touched.
apt() {
    verb=$1
    shift
    "$verb" -qq -o Dir::Etc::SourceList="$place/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$place/apt" \
        -o Dir::State::status="$place/apt/status" -o Dir::Cache="$place/apt" -o APT::Sandbox::User= \
        -o APT::Architecture=amd64 "$@"
}

# The package that one of the names without a version stands for.
package_behind() { apt apt-cache depends "$1" | sed -n "s/^ *Depends: \\($2[0-9].*-amd64\\)\$/\\1/p"; }

fetch_lists() {
    mkdir -p "$place/apt/lists/partial" "$place/apt/archives/partial" "$place/kernel"
    : >"$place/apt/status"
    echo "deb [signed-by=$keys] $mirror $1 main" >"$place/sources.list"
    apt apt-get update
}

fetch_kernel() {
    fetch_lists "$suite" || return 1
    image=$(package_behind linux-image-amd64 linux-image-)
    [ -n "$image" ] || return 1
    version=${image#linux-image-}
    # Linux 7.2 comes in several packages.
    set -- "$image"
    for package in "linux-binary-$version" "linux-modules-$version"; do
        ! apt apt-cache show "$package" >"$place/shown" 2>&1 || set -- "$@" "$package"
    done
    (cd "$place" && apt apt-get download "$@") || return 1
    # tar complains of names that are not there. What is missing is seen.
    for package in "$place"/linux-*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -C "$place/kernel" -x --wildcards '*/vmlinuz-*' '*/vmlinuz' \
            '*/kernel/drivers/block/brd.ko*' 2>"$place/tar.log" || :
        rm "$package"
    done
    find "$place/kernel" -name 'brd.ko*' -exec cp {} "$place/" \;
    [ ! -e "$place/brd.ko.xz" ] || xz -df "$place/brd.ko.xz" || return 1
    find "$place/kernel" -name 'vmlinuz*' -type f -exec cp {} "$place/vmlinuz" \;
    [ -s "$place/vmlinuz" ] && [ -s "$place/brd.ko" ] || return 1
    echo "$version" >"$place/version"
}

# Headers are unpacked, not installed: they find each other by a path in one file.
fetch_headers() {
    version=$(cat "$place/version")
    common=linux-headers-${version%-amd64}-common
    kbuild=linux-kbuild-${version%-amd64}
    (cd "$place" && apt apt-get download "linux-headers-$version" "$common" "$kbuild") || return 1
    for package in "$place"/linux-*.deb; do
        dpkg-deb -x "$package" "$place/kernel" || return 1
        rm "$package"
    done
    sed -i "s#/usr/src/#$place/kernel/usr/src/#" "$place/kernel/usr/src/linux-headers-$version/Makefile"
}

# Kernels of sid are built with compilers that this machine has not.
make_root() {
    version=$(cat "$place/version")
    [ ! -e "$place/root/made-with-$version" ] || return 0
    [ "$(id -u)" -eq 0 ] || absent "a root of sid is made with debootstrap, which needs root"
    command -v debootstrap >/dev/null || absent "debootstrap is not installed"
    rm -rf "$place/root"
    debootstrap --variant=minbase --include="gcc,make,libc6-dev,linux-headers-$version" "$suite" "$place/root" \
        "$mirror" >"$place/debootstrap.log" 2>&1 || return 1
    touch "$place/root/made-with-$version"
}

fetch_source() {
    fetch_lists bookworm-backports || return 1
    source=$(apt apt-cache depends linux-source | sed -n 's/^ *Depends: \(linux-source-[0-9.]*\)$/\1/p')
    (cd "$place" && apt apt-get download "$source") || return 1
    dpkg-deb -x "$place/$source"_*.deb "$place/kernel" || return 1
    mkdir -p "$place/unpacked"
    tar -C "$place/unpacked" --strip-components=1 -xf "$place/kernel/usr/src/$source.tar.xz" || return 1
    rm -r "$place/kernel/usr" "$place/$source"_*.deb
    mv "$place/unpacked" "$place/source"
}

# The smallest kernel with what debug.config adds: half an hour on two processors. What was stopped goes on where it was.
build_kernel() {
    for tool in bc bison flex; do
        command -v "$tool" >/dev/null || absent "$tool is not installed, which a kernel is built with"
    done
    [ -e "$place/source/Makefile" ] || fetch_source || return 1
    make -s -C "$place/source" tinyconfig || return 1
    cat "$here/debug.config" >>"$place/source/.config"
    make -s -C "$place/source" olddefconfig || return 1
    make -s -C "$place/source" -j"$(nproc)" bzImage modules >"$place/build.log" 2>&1 || return 1
    cp "$place/source/arch/x86/boot/bzImage" "$place/vmlinuz" || return 1
    cp "$place/source/drivers/block/brd.ko" "$place/" || return 1
    make -s -C "$place/source" kernelrelease >"$place/version"
}

fetch() {
    [ ! -e "$place/fetched" ] || return 0
    case $suite in
        debug) build_kernel || return 1 ;;
        sid) fetch_kernel && make_root || return 1 ;;
        *) fetch_kernel && fetch_headers || return 1 ;;
    esac
    touch "$place/fetched"
}

# --- building -----------------------------------------------------------------------------------------------------

# The module is built in a copy, so that the sources stay as they are. What describes its types needs pahole, and nobody
# here reads it.
build_module() {
    built=$place/module
    [ "$suite" != sid ] || built=$place/root/tmp/segshm
    rm -rf "$built"
    mkdir -p "$built"
    cp -r "$module/." "$built/"
    headers=/usr/src/linux-headers-$(cat "$place/version")
    set -- W=1 KCFLAGS=-Werror CONFIG_DEBUG_INFO_BTF_MODULES= modules
    case $suite in
        debug) make -s -C "$place/source" M="$built" "$@" || return 1 ;;
        sid)
            # objtool reads its limits there.
            mountpoint -q "$place/root/proc" || mount -t proc proc "$place/root/proc"
            made=yes
            chroot "$place/root" make -s -C "$headers" M=/tmp/segshm "$@" || made=no
            umount "$place/root/proc"
            [ "$made" = yes ] || return 1
            ;;
        *) make -s -C "$place/kernel$headers" M="$built" "$@" || return 1 ;;
    esac
    cp "$built/segshm.ko" "$place/segshm.ko"
}

build_tests() {
    set -- -O2 -D_GNU_SOURCE -Wall -Wextra -Werror -static -pthread -I"$module/uapi"
    sources=$(find "$here" -name '*.c' ! -name hold.c)
    # shellcheck disable=SC2086 # words
    cc "$@" -o "$place/tests" $sources
    cc "$@" -o "$place/hold" "$here/hold.c"
}

# What both engines promise, tried with this one: a program that needs no library.
build_conformance() {
    command -v cargo >/dev/null || { echo "skipped conformance cargo is not installed"; return 0; }
    target=x86_64-unknown-linux-gnu
    (cd "$here/../.." && RUSTFLAGS="-C target-feature=+crt-static" cargo test --quiet --locked -p commonhold-tables \
        --test conformance --no-run --target "$target" --target-dir "$place/cargo" --message-format json) \
        >"$place/cargo.json" || return 1
    program=$(sed -n 's/.*"executable":"\([^"]*conformance[^"]*\)".*/\1/p' "$place/cargo.json" | tail -n 1)
    cp "$program" "$place/conformance"
}

# Objects of a host in its segments, tried by the tests of the whole system, with the programs and libraries that they need.
build_system() {
    command -v cargo >/dev/null || { echo "skipped system cargo is not installed"; return 0; }
    (cd "$here/../.." && cargo build --quiet --locked --workspace --lib --bins --features commonhold-tests/etcd &&
        cargo test --quiet --locked -p commonhold-tests --features etcd --test page_tables_4k --no-run \
            --message-format json) >"$place/cargo.json" || return 1
    program=$(sed -n 's/.*"executable":"\([^"]*page_tables_4k[^"]*\)".*/\1/p' "$place/cargo.json" | tail -n 1)
    built=${program%/deps/*}
    rm -rf "$place/system"
    mkdir -p "$place/system/lib64" "$place/system/lib"
    strip -o "$place/system/page_tables_4k" "$program"
    for file in commonhold commonhold-tests-host commonhold-tests-worker libcommonhold_preload.so \
        libcommonhold_sysv.so; do
        strip -o "$place/system/$file" "$built/$file"
    done
    # shellcheck disable=SC2046 # words
    set -- $(ldd "$place/system/page_tables_4k" "$place/system/libcommonhold_sysv.so" "$place/system/commonhold" |
        sed -n 's#.*[ \t]\(/[^ ]*\) (0x.*#\1#p' | sort -u)
    for library; do
        case $library in
            /lib64/*) cp -L "$library" "$place/system/lib64/" ;;
            *) cp -L "$library" "$place/system/lib/" ;;
        esac
    done
}

make_initramfs() {
    root=$place/initramfs
    rm -rf "$root"
    mkdir -p "$root/bin" "$root/tests"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$here/init" "$root/init"
    chmod 755 "$root/init"
    cp "$place/segshm.ko" "$place/brd.ko" "$root/"
    cp "$place/tests" "$place/hold" "$root/tests/"
    if [ $# -eq 0 ]; then
        [ ! -e "$place/conformance" ] || cp "$place/conformance" "$root/tests/"
        if [ -e "$place/system" ]; then
            mv "$place/system/lib" "$place/system/lib64" "$root/"
            cp "$place/system/"* "$root/tests/"
        fi
    fi
    patience=1
    [ "$suite" != debug ] || patience=8
    echo "names='$*' patience=$patience" >"$root/arguments"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$place/initramfs.cpio"
    rm -rf "$root"
}

# --- within QEMU --------------------------------------------------------------------------------------------------

# Two nodes of memory, so that pages could move. Memory is not cleared when it is allocated, so that what is not cleared by
# who should is seen.
boot() {
    : >"$place/said"
    timeout --kill-after=10 "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2,sockets=2 -m 3072 -no-reboot \
        -nodefaults -display none -nic none -kernel "$place/vmlinuz" -initrd "$place/initramfs.cpio" \
        -object memory-backend-ram,id=m0,size=1536M -object memory-backend-ram,id=m1,size=1536M \
        -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1 \
        -append "console=ttyS0 loglevel=6 panic=-1 oops=panic init_on_alloc=0 watchdog_thresh=60 \
rcupdate.rcu_cpu_stall_timeout=120" \
        -serial file:"$place/console" -serial file:"$place/said" &
    qemu=$!
    trap 'kill $qemu 2>/dev/null || :' EXIT
    trap 'exit 130' INT TERM HUP
    tail -n +1 -f --pid=$qemu "$place/said" &
    code=0
    wait $qemu || code=$?
    # What was said has been shown; how the machine ended is in $code.
    wait $! || true
    trap - EXIT
}

# What a kernel says that is not well.
complaints="BUG|WARNING:|Oops|Bad page|[Bb]ad rss-counter|non-zero pgtables|soft lockup|hard LOCKUP|blocked for more than"
complaints="$complaints|general protection|rcu: INFO|refcount_t|possible .* dependency|KASAN|Kernel panic"

judge() {
    passed=yes
    if grep -aE "$complaints" "$place/console"; then
        echo "FAILED kernel it complained: see $place/console"
        passed=no
    fi
    case $(tr -d '\r' <"$place/said" | tail -n 1) in
        "status: 0") ;;
        status:*) passed=no ;;
        *)
            [ "$code" -ne 124 ] || echo "it took longer than $limit s"
            echo "FAILED kernel it ended early (QEMU: $code); its last messages:"
            tail -n 20 "$place/console"
            passed=no
            ;;
    esac
    [ "$passed" = yes ]
}

[ "$(uname -m)" = x86_64 ] || absent "this machine is no x86-64: its programs do not run there"
for tool in qemu-system-x86_64 busybox cpio cc make apt-get dpkg-deb xz; do
    command -v "$tool" >/dev/null || absent "$tool is not installed"
done
ldd "$(command -v busybox)" >/dev/null 2>&1 && absent "busybox is not a static program: apt install busybox-static"
fetch || absent "its kernel could not be fetched"
build_module || { echo "FAILED build the module does not build"; exit 1; }
build_tests
# With names, of the module's own tests, nothing else is run.
if [ $# -eq 0 ]; then
    build_conformance || { echo "FAILED build the conformance tests do not build"; exit 1; }
    build_system || { echo "FAILED build the tests of the whole system do not build"; exit 1; }
fi
make_initramfs "$@"
echo "Linux $(cat "$place/version")"
boot
judge

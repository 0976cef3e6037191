#!/bin/sh
# Boots a kernel of Debian with QEMU, without any right to the processor's virtual machines, and runs within.sh there. This
# machine's files are seen there and cannot be changed; beside them there is a file system with fs-verity, and SELinux is
# the kernel's security module. `./run test-linux` starts it.
#
# start.sh SUITE PLACE LIMIT TEST...
#   SUITE   the release of Debian whose kernel it is
#   PLACE   a directory for what is fetched and made, kept for the next time
#   LIMIT   how many seconds it may take, once it was begun
#   TEST    what within.sh is given: programs by their whole paths, which stay where they are
#
# Exit status: 0 all passed, 1 something failed, 77 the kernel cannot be had here.
set -eu
suite=$1 place=$2 limit=$3
shift 3
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
mirror=${MIRROR:-http://deb.debian.org/debian}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$place"

absent() { echo "$*" >&2; exit 77; }

# apt with lists of its own: the machine's are not touched, and any release will do.
apt() {
    verb=$1
    shift
    "$verb" -qq -o Dir::Etc::SourceList="$place/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$place/apt" \
        -o Dir::Cache="$place/apt" -o APT::Sandbox::User= -o APT::Architecture=amd64 "$@"
}

# Unpacks the kernel and those of its modules that are wanted before there are files, and nothing is installed.
fetch_kernel() {
    mkdir -p "$place/apt/lists/partial" "$place/apt/archives/partial"
    : >"$place/apt/status"
    echo "deb [signed-by=$keys] $mirror $suite main" >"$place/sources.list"
    apt apt-get update || return 1
    package=$(apt apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\).*/\1/p')
    [ -n "$package" ] || return 1
    (cd "$place" && apt apt-get download "$package") || return 1
    for part in boot fs/9p fs/netfs fs/fscache fs/ext4 fs/jbd2 fs/mbcache net/9p drivers/virtio drivers/block lib crypto arch/x86/crypto; do
        case $part in
            boot) echo './boot/vmlinuz-*'; echo './boot/config-*' ;;
            # Some are directories, some files; from bookworm on /lib is a link, and packages name either.
            *) echo "*lib/modules/*/kernel/$part/*"; echo "*lib/modules/*/kernel/$part.ko*" ;;
        esac
    done >"$place/parts"
    # tar complains of names that are not there. What is missing is seen.
    dpkg-deb --fsys-tarfile "$place/$package"_*.deb | tar -C "$place" -x --wildcards -T "$place/parts" 2>"$place/tar.log"
    rm "$place/$package"_*.deb
    if [ -d "$place/usr/lib" ]; then mv "$place/usr/lib" "$place/lib"; fi
    find "$place/lib" -name '*.ko.xz' -exec xz -d {} + || return 1
    find "$place/lib" -name '9pnet_virtio.ko' | grep -q . || return 1
    touch "$place/fetched"
}

make_initramfs() {
    root=$place/initramfs
    rm -rf "$root"
    mkdir -p "$root/bin"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$here/init" "$root/init"
    chmod 755 "$root/init"
    cp -r "$place/lib" "$root/lib"
    busybox depmod -b "$root" "$version"
    { echo "script='$here/within.sh'"; echo "tests='$*'"; } >"$root/arguments"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$place/initramfs.cpio"
    rm -rf "$root"
}

[ "$(uname -m)" = x86_64 ] || absent "this machine is no x86-64: its programs do not run there"
for tool in qemu-system-x86_64 busybox mkfs.ext4 apt-get dpkg-deb xz; do
    command -v "$tool" >/dev/null || absent "$tool is not installed"
done
# It is all that there is before modules are loaded.
ldd "$(command -v busybox)" >/dev/null 2>&1 && absent "busybox is not a static program: apt install busybox-static"
if [ ! -e "$place/fetched" ]; then
    find "$place" -mindepth 1 -delete
    fetch_kernel || absent "the kernel of $suite could not be fetched"
fi
kernel=$(echo "$place"/boot/vmlinuz-*)
version=${kernel##*/vmlinuz-}
for option in CONFIG_FS_VERITY=y CONFIG_SECURITY_SELINUX=y CONFIG_NET_9P_VIRTIO=m; do
    grep -qx "$option" "$place/boot/config-$version" || absent "Linux $version was built without ${option%=*}"
done
make_initramfs "$@"
rm -f "$place/disk"
truncate -s 2G "$place/disk"
mkfs.ext4 -q -b 4096 -O verity "$place/disk"

echo "Linux $version of $suite"
said=$place/said
: >"$said"
timeout --kill-after=10 "$limit" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 -no-reboot -nodefaults \
    -display none -kernel "$kernel" -initrd "$place/initramfs.cpio" \
    -append "console=ttyS0 quiet panic=-1 security=selinux" \
    -serial file:"$place/console" -serial file:"$said" \
    -drive file="$place/disk",format=raw,if=virtio,cache=unsafe \
    -virtfs local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap &
qemu=$!
trap 'kill $qemu 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM HUP
tail -f --pid=$qemu "$said" &
code=0
wait $qemu || code=$?
wait $! || true
case $(tr -d '\r' <"$said" | tail -n 1) in
    "status: 0") exit 0 ;;
    status:*) ;;
    *)
        [ "$code" -ne 124 ] || echo "it took longer than $limit s"
        echo "it ended early (QEMU: $code); the kernel's last messages:"
        tail -n 20 "$place/console"
        ;;
esac
exit 1

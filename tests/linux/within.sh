#!/bin/sh
# Within QEMU, started by init, as root on a machine whose files cannot be changed but below /mnt, where there is fs-verity:
# what can only be tried on such a kernel. A line for each: PASS or FAIL, and of a failure what it said.
#
# within.sh COMMONHOLD IMAGES IMAGES_VERITY REBASE
#   the program, and the tests of the crates: images' own, images' tests/verity.rs, rebase's tests/programs
commonhold=$1 images=$2 images_verity=$3 rebase=$4
export TMPDIR=/mnt/tmp PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8
mkdir -m 1777 /mnt/tmp
mkdir -p /mnt/lib
cd /mnt/tmp || exit 1
failed=0

# check NAME COMMAND...
check() {
    name=$1
    shift
    begun=$(cut -d. -f1 /proc/uptime)
    if "$@" >/mnt/said 2>&1; then
        echo "PASS $name ($(($(cut -d. -f1 /proc/uptime) - begun)) s)"
    else
        echo "FAIL $name (status $?)"
        tail -n 40 /mnt/said
        failed=$((failed + 1))
    fi
}

# Tests of a program of them, none of which may leave anything out.
all_of() {
    count=$1
    shift
    "$@" --nocapture --test-threads=2 >/mnt/tmp/tests 2>&1 || { cat /mnt/tmp/tests; return 1; }
    cat /mnt/tmp/tests
    grep -q " $count passed; 0 failed" /mnt/tmp/tests || { echo "not $count tests"; return 1; }
    ! grep -E 'skipped: |left out' /mnt/tmp/tests
}

# Without any right of root's, in directories of its own.
as_user() { setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/mnt/user TMPDIR=/mnt/user "$@"; }

as_user_images() {
    all_of 1 as_user MOUNT=/mnt/user "$images_verity" --ignored publishes_on_what_is_mounted
}

as_user_rebase() { all_of 1 as_user "$rebase" sealed::where; }

# The machine's own store, where it is for everybody, with a library that has a copy of 2 MiB and more.
a_machines_store() {
    mount --bind /mnt/lib /var/lib
    "$commonhold" rebase set /usr/bin/openssl /usr/bin/perl || return 1
    "$commonhold" rebase check -- /usr/bin/openssl version || return 1
    "$commonhold" rebase check -- /usr/bin/perl -e 'print 6 * 7' || return 1
    "$commonhold" rebase verify || return 1
    copies=$(find /var/lib/commonhold/rebase/copies -type f ! -name .sum)
    [ -n "$copies" ] || return 1
    for copy in $copies; do
        case $(lsattr "$copy") in
            *V*' '*) ;;
            *) echo "$copy is not sealed"; return 1 ;;
        esac
    done
}

doctor_says_it() {
    "$commonhold" doctor || [ $? -eq 1 ]
    "$commonhold" doctor | grep -q 'copies are sealed by fs-verity'
}

# A byte on the disk is another: the kernel gives out none of that page.
damage_on_the_disk() {
    copy=$(find /var/lib/commonhold/rebase/copies -name 'libcrypto.so*')
    sync
    block=$(debugfs -R "bmap /lib/${copy#/var/lib/} 100" /dev/vda 2>/dev/null)
    [ "$block" -gt 0 ] || return 1
    printf changed | dd of=/dev/vda bs=1 seek=$((block * 4096 + 100)) conv=notrunc,fsync || return 1
    echo 3 >/proc/sys/vm/drop_caches
    if cat "$copy" >/dev/null; then echo "it was given out"; return 1; fi
    if "$commonhold" rebase verify >/mnt/tmp/verify 2>&1; then cat /mnt/tmp/verify; echo "it was not found"; return 1; fi
    cat /mnt/tmp/verify
    grep -q "libcrypto.so.* is not what was written" /mnt/tmp/verify || return 1
    "$commonhold" rebase update || return 1
    echo 3 >/proc/sys/vm/drop_caches
    "$commonhold" rebase verify && "$commonhold" rebase check -- /usr/bin/openssl version
}

# From Linux 6.7 on a host serves objects; before, it says what is missing and changes nothing.
a_host() {
    export COMMONHOLD_HOST=/mnt/host
    if printf '6.7\n%s\n' "$(uname -r)" | sort -CV; then
        "$commonhold" doctor || return 1
        "$commonhold" host start --state /mnt/host || return 1
        head -c 3000000 /dev/urandom >/mnt/tmp/bytes
        "$commonhold" create /kept --file /mnt/tmp/kept --create-file --size 3000000 --sync atomic &&
            "$commonhold" cp /mnt/tmp/bytes :/kept && "$commonhold" host restart &&
            "$commonhold" cat /kept | cmp - /mnt/tmp/bytes && cmp /mnt/tmp/kept /mnt/tmp/bytes
        kept=$?
        "$commonhold" host stop --force && return $kept
    else
        if "$commonhold" host start --state /mnt/host >/mnt/tmp/host 2>&1; then
            "$commonhold" host stop --force
            echo "it started"
            return 1
        fi
        cat /mnt/tmp/host
        [ "$(wc -l </mnt/tmp/host)" -eq 1 ] && grep -q 'Linux 6.7' /mnt/tmp/host
    fi
}

echo "$(uname -r), $(cat /sys/kernel/security/lsm)"
mkdir -m 755 /mnt/user
chown 1000:1000 /mnt/user
check "SELinux is the kernel's security module" grep selinux /sys/kernel/security/lsm
check "images: a file is sealed" all_of 2 "$images" verity::
check "images: published, included, damaged on the disk, removed" all_of 1 "$images_verity"
check "images: the same for a user" as_user_images
check "rebase: copies are sealed, and all have their labels" all_of 3 "$rebase" sealed::
check "rebase: the same for a user" as_user_rebase
check "rebase: stores" all_of 5 "$rebase" stores::
check "rebase: the machine's own store" a_machines_store
check "doctor says that copies are sealed" doctor_says_it
check "rebase: a copy that is damaged on the disk" damage_on_the_disk
check "a host, or why there is none" a_host
# Nothing comes after it: a policy stays.
if command -v secilc >/dev/null; then
    check "rebase: a policy that is enforced" sh -x "${0%/*}/policy.sh" "$commonhold"
else
    echo "skipped: rebase under a policy that is enforced (apt install secilc)"
fi
[ "$failed" -eq 0 ]

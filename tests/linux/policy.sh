#!/bin/sh
# Within QEMU, as the last of within.sh: a policy is loaded and enforced by which app_t may execute files of system
# libraries, and none that is labelled as what lies in /var/lib. Programs there have copies all the same, because copies and
# the audit library bear the labels of what they stand for.
#
# policy.sh COMMONHOLD
set -eu
commonhold=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
place=/mnt/policy
mkdir "$place"
cd "$place"
secilc -M false -c 33 -o policy -f contexts "$here/policy.cil"
echo 'int call(void) { return 1; }' >one.c
cat >program.c <<'END'
#include <stdio.h>
#include <string.h>
int call(void);
int main(void) {
    char line[4096]; int copies = 0; FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) copies += strstr(line, "/copies/") && strstr(line, "r-xp");
    printf("%d copies %d\n", copies, call());
    return 0;
}
END
cc -shared -fPIC -Wl,-soname,libone.so -o libone.so one.c
cc -o program program.c -L. -lone "-Wl,-rpath,$place"

mount -t selinuxfs selinuxfs /sys/fs/selinux
dd if=policy of=/sys/fs/selinux/load bs=1M 2>/dev/null
mkdir store
chcon -R u:object_r:var_lib_t store
chcon u:object_r:lib_t libone.so
chcon u:object_r:bin_t program
echo 1 >/sys/fs/selinux/enforce

# Runs a program in the domain app_t, in which the shell is already; or given the domain at its start, as services are.
# shellcheck disable=SC2016 # it is the other shell's
confined() { sh -c 'printf u:r:app_t >/proc/self/attr/current; exec "$@"' sh "$@"; }
# shellcheck disable=SC2016
confined_at_start() { sh -c 'printf u:r:app_t >/proc/self/attr/exec; exec "$@"' sh "$@"; }
# Compares what a program says with what it is to say.
says() {
    wanted=$1
    shift
    said=$("$@") || { echo "it ended with status $?"; dmesg | grep avc | tail -n 5; exit 1; }
    [ "$said" = "$wanted" ] || { echo "$* says: $said, and should: $wanted"; dmesg | grep avc | tail -n 5; exit 1; }
}

"$commonhold" rebase set --store "$place/store" "$place/program"
find store -type f -exec ls -Z {} +
says u:object_r:lib_t stat -c %C store/copies/*/libone.so
says u:object_r:var_lib_t stat -c %C store/programs/*
says '0 copies 1' confined ./program
(
    eval "$("$commonhold" rebase env --store "$place/store")"
    says '2 copies 1' ./program
    says '2 copies 1' confined ./program
    # The kernel says to the loader that it be careful, which then ignores LD_AUDIT.
    says '0 copies 1' confined_at_start ./program
)
# All labels are made anew by somebody who knows no store.
chcon -R u:object_r:var_lib_t store
(
    eval "$("$commonhold" rebase env --store "$place/store")"
    says '0 copies 1' confined ./program 2>complaint
    grep -q 'cannot be loaded as audit interface' complaint
)
"$commonhold" rebase update --store "$place/store"
(
    eval "$("$commonhold" rebase env --store "$place/store")"
    says '2 copies 1' confined ./program
)

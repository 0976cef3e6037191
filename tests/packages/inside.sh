#!/bin/sh
# What roots.sh does within a root: install, use, upgrade, purge. Each step that fails, and each file that stays, is a line
# that begins with FAILED.
set -u
export LC_ALL=C DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
state=/var/lib/commonhold
cd /tmp || exit

# step NAME COMMAND...
step() {
    name=$1
    shift
    if "$@" >said 2>&1; then
        echo "passed $name"
    else
        echo "FAILED $name"
        sed 's/^/    /' said
    fi
}

# Every file of the root, with what it is; of those in /etc also what is in them. Not what dpkg and its tools keep for
# themselves.
list() {
    find / -xdev \( -path /tmp -o -path /var/lib/dpkg -o -path /var/cache/ldconfig -o -path /var/log -o -path '/etc/*-' \
        -o -path '/usr/lib/modules/*/modules.*' \) -prune -o -printf '%p %M %u %g %l\n' | sort
    find /etc -type f ! -name '*-' -exec md5sum {} + | sort -k2
}

as_lab() { setpriv --reuid=lab --regid=lab --clear-groups env HOME=/home/lab "$@"; }

# --- steps ---

install_on_an_old_kernel() {
    # The same as uname says on one.
    setarch --uname-2.6 dpkg -i packages/commonhold_*.deb packages/libcommonhold*.deb packages/*dbgsym*.deb >out 2>&1 || { cat out; return 1; }
    grep 'need Linux 6.7' out && grep bookworm-backports out && [ ! -e "$state/host.sock" ]
}

verify_units() {
    for unit in /usr/lib/systemd/system/commonhold*.service; do
        systemd-analyze verify --man=no "$unit" 2>&1 | grep commonhold && return 1
    done
    ! systemd-analyze --user verify --man=no /usr/lib/systemd/user/commonhold.service 2>&1 | grep commonhold
}

compile() {
    chmod 755 tests && mkdir -p build && chown lab build
    # shellcheck disable=SC2046 # words
    as_lab cc -Wall -Werror tests/share.c $(pkg-config --cflags --libs commonhold) -o build/share &&
        as_lab cc tests/share.c -l:libcommonhold.a $(pkg-config --static --libs commonhold | sed 's/-lcommonhold//') \
            -o build/share-static &&
        as_lab cmake -S tests -B build/cmake && as_lab cmake --build build/cmake &&
        readelf -dW build/share | grep 'NEEDED.*libcommonhold.so.0' &&
        readelf -VW build/share | grep COMMONHOLD_0.1 &&
        ! readelf -dW build/share-static | grep 'NEEDED.*libcommonhold' &&
        ! readelf -dW build/cmake/share-static | grep 'NEEDED.*libcommonhold'
}

# begin PROGRAM: holds an object, until end.
begin() {
    rm -f line answer
    mkfifo line
    as_lab "$1" hold /lab/x <line >answer 2>&1 &
    holder=$!
    exec 3>line
    for _ in $(seq 100); do
        grep -q ready answer && return
        sleep 0.1
    done
    cat answer
    return 1
}

end() {
    as_lab "$1" touch /lab/x || return 1
    echo >&3
    exec 3>&-
    wait "$holder" || { cat answer; return 1; }
    grep ok answer
}

share() { begin "$1" && end "$2"; }

own_host() {
    share build/share build/cmake/share && share build/cmake/share-static build/share-static &&
        as_lab commonhold host status && as_lab commonhold host stop && rm -r /home/lab/.local
}

# ExecStart with the capabilities and the mask of the unit.
start_as_the_unit_does() {
    unit=/usr/lib/systemd/system/commonhold.service
    bounds=$(sed -n 's/^CapabilityBoundingSet=//p' $unit | sed 's/CAP_/+/g; s/ /,/g' | tr '[:upper:]' '[:lower:]')
    mkdir -m 711 "$state"
    # shellcheck disable=SC2046 # words
    (umask 077 && exec setpriv --no-new-privs --inh-caps=-all --bounding-set="-all,$bounds" \
        $(sed -n 's/^ExecStart=//p' $unit)) >watcher 2>&1 &
    for _ in $(seq 100); do
        commonhold --host "$state" host status >/dev/null 2>&1 && return
        sleep 0.1
    done
    cat watcher "$state/log"
    return 1
}

unmodified_programs() { as_lab commonhold run --system-v --posix -- ipcs -m; }

process_of_host() { commonhold --host "$state" host status --json | sed -n 's/.*"host_pid": *\([0-9]*\).*/\1/p'; }

upgrade_in_use() {
    begin build/share && before=$(process_of_host) &&
        dpkg -i newer/commonhold_*.deb newer/libcommonhold*.deb newer/*dbgsym*.deb &&
        [ "$(process_of_host)" != "$before" ] && [ "$(dpkg-query -Wf '${Version}' commonhold)" = 0.1.0+1 ] &&
        end build/cmake/share
}

# For a kernel that is new enough, if there are headers of one.
module() {
    dpkg -i packages/commonhold-segshm-dkms_*.deb || return 1
    for headers in /usr/src/linux-headers-*-amd64; do
        [ -e "$headers" ] || continue
        release=${headers#*headers-}
        dkms status -m commonhold-segshm -k "$release" | grep installed &&
            modinfo -k "$release" -F vermagic segshm | grep "^$release " || return 1
    done
    dpkg -i newer/commonhold-segshm-dkms_*.deb
}

# State goes, and says so; the files of objects stay.
purge() {
    head -c 8192 /dev/urandom >data
    commonhold --host "$state" create /lab/kept --size 8KiB --file /tmp/kept --create-file --sync atomic || return 1
    commonhold --host "$state" cp data :/lab/kept || return 1
    if ! dpkg -P commonhold-segshm-dkms commonhold-dbgsym libcommonhold0-dbgsym libcommonhold-dev libcommonhold0 commonhold \
        >out 2>&1; then
        cat out
        return 1
    fi
    grep "removed $state" out && cmp data kept &&
        ! find /proc -maxdepth 2 -name exe -printf '%l\n' 2>/dev/null | grep bin/commonhold
}

# But for the group, of which files of an administrator may be.
nothing_stays() {
    groupdel commonhold || return 1
    list >after
    diff before after
}

useradd --create-home lab
list >before
list >after
step "the list is the same twice" cmp before after
step "install on an old kernel: no host, and which kernel to take" install_on_an_old_kernel
step "units are accepted by systemd-analyze verify" verify_units
step "compile with pkg-config and CMake" compile
step "an ordinary user's own host: two processes share an object" own_host
step "the unit's command with the unit's capabilities" start_as_the_unit_does
step "two processes share an object of the system's host" share build/share build/cmake/share
step "a program that was not written for it" unmodified_programs
step "upgrade while an object is in use" upgrade_in_use
step "the kernel module, for headers of Debian's kernel" module
step "remove and purge" purge
step "nothing stays" nothing_stays

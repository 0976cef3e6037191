# shellcheck shell=sh disable=SC2154
# The wheel of the Python package, with the programs in it, and its source package: a part of `run`, with its words.

# What the programs in it find beside them.
in_wheel="commonhold libcommonhold_preload.so libcommonhold_sysv.so"
# The oldest C library that it runs with: that of Debian 12 is 2.36, of Ubuntu 22.04 2.35.
wheel_platform=manylinux_2_34

package_wheel() {
    need_c
    need_rust
    build_programs
    say "Building the wheel"
    made="$root/target/package" tools="$root/target/package-python"
    [ -x "$tools/bin/python" ] || python3 -m venv "$tools"
    "$tools/bin/python" -m pip install --quiet maturin auditwheel wheel
    rm -rf "$made"/commonhold-*.whl "$made"/commonhold-*.tar.gz "$made/wheel"
    mkdir -p "$made/wheel"
    (cd python && VIRTUAL_ENV="$tools" CARGO_TARGET_DIR="$root/target/python" "$tools/bin/maturin" build \
        --release --locked --quiet --compatibility "$wheel_platform" --out "$made/wheel" >/dev/null)
    "$tools/bin/wheel" unpack --dest "$made/wheel" "$made"/wheel/commonhold-*.whl >/dev/null
    for unpacked in "$made"/wheel/commonhold-*/; do
        scripts="$unpacked/$(basename "$unpacked").data/scripts"
        mkdir -p "$scripts"
        for file in $in_wheel; do
            strip --strip-all -o "$scripts/$file" "target/release/$file"
        done
        "$tools/bin/wheel" pack --dest-dir "$made" "$unpacked" >/dev/null
    done
    rm -rf "$made/wheel"
    (cd python && "$tools/bin/maturin" sdist --out "$made" >/dev/null)
    wheel=$(echo "$made"/commonhold-*-cp311-abi3-"$wheel_platform"_*.whl)
    [ -f "$wheel" ] || fail "no wheel was made for $wheel_platform"
    check_wheel "$wheel" "$tools"
    say "$wheel"
}

# That it says of itself what is so: the module in it by auditwheel, and the programs by what they want of the C library.
check_wheel() {
    "$2/bin/auditwheel" show "$1" | tr '\n' ' ' | grep -q "\"${wheel_platform}_" ||
        fail "$1 wants more than $wheel_platform has: $("$2/bin/auditwheel" show "$1")"
    for file in $in_wheel; do
        newest=$(objdump -T "target/release/$file" | grep -o 'GLIBC_2\.[0-9]*' | sort -V | tail -n 1)
        [ "${newest#GLIBC_2.}" -le "${wheel_platform##*_}" ] || fail "$file wants $newest, and $wheel_platform has less"
    done
}

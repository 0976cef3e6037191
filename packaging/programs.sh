#!/bin/sh
# What is installed of what cargo built: programs and libraries without what debuggers read, which goes into files of its own;
# the C library with its name and the versions of its functions; man pages and completions.
#
# programs.sh BUILT VERSION INTO
#   BUILT    a directory of cargo's, with libcommonhold.a
#   VERSION  as 0.1.0
#   INTO     a directory, made anew: programs/ and debug/
set -eu
built=$1 version=$2 into=$3
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
programs=$into/programs

rm -rf "$into"
mkdir -p "$programs/man" "$programs/completions" "$into/debug"
cp "$built/commonhold" "$built/libcommonhold_preload.so" "$built/libcommonhold_sysv.so" "$programs/"

# Rust's own shared libraries have a list of symbols without versions, and no other beside it. This one is made of the same
# objects as the static library.
"${CC:-cc}" -shared -o "$programs/libcommonhold.so.$version" -Wl,-soname,"libcommonhold.so.${version%%.*}" \
    -Wl,--version-script,"$here/../include/commonhold.map" -Wl,--build-id -Wl,--gc-sections \
    -Wl,-z,defs,-z,nodelete,-z,relro,-z,now \
    -Wl,--whole-archive "$built/libcommonhold.a" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
strip --strip-debug -o "$programs/libcommonhold.a" "$built/libcommonhold.a"

for file in commonhold "libcommonhold.so.$version" libcommonhold_preload.so libcommonhold_sysv.so; do
    id=$(readelf -n "$programs/$file" | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || { echo "programs.sh: $file has no build ID" >&2; exit 1; }
    name=${id#??}
    folder=$into/debug/${id%"$name"}
    mkdir -p "$folder"
    objcopy --only-keep-debug --compress-debug-sections=zlib "$programs/$file" "$folder/$name.debug"
    chmod 644 "$folder/$name.debug"
    # Debuggers find it by the build ID.
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$programs/$file"
    echo "$file ${id%"$name"}/$name.debug" >>"$into/debug/names"
done

"$programs/commonhold" man --dir "$programs/man"
for shell in bash zsh fish; do
    "$programs/commonhold" completions "$shell" >"$programs/completions/$shell"
done

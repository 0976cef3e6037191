#!/bin/sh
# A dictionary of the distribution, or another list of words (demo/dictionary.sh LIST), as an image, used by 8 processes at
# once (docs/IMAGES.md). Installs a list if there is none (needs root for that), and keeps the image in a folder that is
# removed at the end. DICTIONARY names the program, where it is built already.
set -eu
words=$(realpath -m "${1:-/usr/share/dict/words}")
cd "$(dirname "$0")/.."
if [ "$#" -eq 0 ] && [ ! -r "$words" ]; then
    apt-get install --yes --no-install-recommends wamerican
fi
program=${DICTIONARY:-${CARGO_TARGET_DIR:-target}/release/examples/dictionary}
[ -n "${DICTIONARY:-}" ] || cargo build --release --locked --quiet -p commonhold --example dictionary
COMMONHOLD_IMAGES=$(mktemp -d)
export COMMONHOLD_IMAGES
trap 'rm -rf "$COMMONHOLD_IMAGES"' EXIT
chmod 755 "$COMMONHOLD_IMAGES"
"$program" build "$words"
"$program" has hold common commonhold
"$program" show "$words"

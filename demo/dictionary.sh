#!/bin/sh
# A dictionary of the distribution as an image, used by 8 processes at once (docs/IMAGES.md). Installs a list of words if
# there is none (needs root for that), and keeps the image in a folder that is removed at the end.
set -eu
cd "$(dirname "$0")/.."
words=/usr/share/dict/words
if [ ! -r "$words" ]; then
    apt-get install --yes --no-install-recommends wamerican
fi
cargo build --release --locked --quiet -p commonhold --example dictionary
program=${CARGO_TARGET_DIR:-target}/release/examples/dictionary
COMMONHOLD_IMAGES=$(mktemp -d)
export COMMONHOLD_IMAGES
trap 'rm -rf "$COMMONHOLD_IMAGES"' EXIT
chmod 755 "$COMMONHOLD_IMAGES"
"$program" build "$words"
"$program" has hold common commonhold
"$program" show "$words"

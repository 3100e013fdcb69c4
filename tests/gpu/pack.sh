#!/usr/bin/env bash
# Builds what the GPU machine runs and puts it, stripped and under stable names, into target/gpu:
#
#   libforebay.so        the release library
#   libforebay_core.so   the extension of the Python package, which finds the library beside itself
#   adapters/            the adapter for PyTorch 2.11, which the package looks for beside the library too
#   replay-example       the replay example
#   unit                 the crate's own unit tests
#   <name>               each tests/<name>.rs
#
# Cargo's own names have a hash in them. Carry target/gpu with the sources; tests/gpu/run.sh does the rest.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=${FOREBAY_GPU_DIR:-target/gpu}
rm -rf "$out"
mkdir -p "$out"

cargo build --release --lib --example replay
strip -o "$out/libforebay.so" target/release/libforebay.so
cargo build --release -p forebay-python
strip --strip-unneeded -o "$out/libforebay_core.so" target/release/libforebay_core.so
make --no-print-directory adapters TORCH=2.11
cp -r target/adapters "$out/adapters"
strip -o "$out/replay-example" target/release/examples/replay

cargo test --no-run --lib --tests --message-format=json | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
        target = message["target"]
        print("unit" if "lib" in target["kind"] or "cdylib" in target["kind"] else target["name"], message["executable"])
' | while read -r name executable; do
  strip -o "$out/$name" "$executable"
done

du -sh "$out"
ls -l "$out"

#!/usr/bin/env bash
# Fuzzes what strangers send: job files and wire messages, each for SECONDS (default 120), with
# AddressSanitizer and UBSan. What it finds lies in build-fuzz/findings/; a case that was mended
# belongs into tests/fuzz/corpus/, where ctest replays it.
#   ops/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-120}

ops/setup.sh clang-14 libclang-rt-14-dev
cmake --preset fuzz >/dev/null
ninja -C build-fuzz job_file_fuzz wire_fuzz wire_seeds >&2
build-fuzz/bin/wire_seeds tests/fuzz/corpus/wire
mkdir -p build-fuzz/findings
for name in job_file wire; do
  grown=build-fuzz/corpus/$name
  mkdir -p "$grown"
  build-fuzz/bin/${name}_fuzz -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=8192 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="build-fuzz/findings/$name-" "$grown" "tests/fuzz/corpus/$name"
done

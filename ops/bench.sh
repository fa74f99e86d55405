#!/usr/bin/env bash
# Runs one bench: a table for people on stderr, one JSON object a line on stdout.
#   ops/bench.sh NAME [ARGS]     NAME: scheduler, store, kernels, engine
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -lt 1 ] || [ ! -f "tests/bench/$1_bench.cpp" ]; then
  echo "usage: ops/bench.sh NAME; benches:" >&2
  ls tests/bench | sed -n 's/_bench\.cpp$//p' | sed 's/^/  /' >&2
  exit 2
fi
name=$1
shift
ops/setup.sh
ops/build.sh "${name}_bench"
if [ "$name" = scheduler ]; then ops/build.sh spawn_bench nightshift-worker && build/bin/spawn_bench; fi
exec "build/bin/${name}_bench" "$@"

#!/usr/bin/env bash
# Configures and builds into build/ (only what changed). Arguments: targets; none: everything.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cmake --preset release >build.log 2>&1; then
  cat build.log >&2
  rm -f build.log
  exit 1
fi
rm -f build.log
ninja -C build "$@" >&2

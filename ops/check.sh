#!/usr/bin/env bash
# The check: installs what is missing, builds, runs every test, ends with ctest's summary.
set -euo pipefail
cd "$(dirname "$0")/.."

ops/setup.sh
ops/build.sh
# One test at a time: some measure, some kill processes, and two cores are few.
exec ctest --test-dir build --output-on-failure

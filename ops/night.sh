#!/usr/bin/env bash
# One night, end to end: installs what is missing, builds, and optimises the sample model. The last
# line printed is the path of report.json. State is kept in .nightshift: a second run reuses what did
# not change.
set -euo pipefail
cd "$(dirname "$0")/.."

ops/setup.sh
ops/build.sh nightshift nightshift-worker nightshift-stage
export NIGHTSHIFT_HOME="${NIGHTSHIFT_HOME:-$PWD/.nightshift}"
exec build/bin/nightshift run jobs/k3-nano.yaml "$@"

#!/usr/bin/env bash
# Installs what the build needs, from Debian 12's own packages, and nothing that is there already.
# Run as root, or with everything installed beforehand.
#   ops/setup.sh [PACKAGE...]    these, too
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config
  libzmq3-dev cppzmq-dev       # messages between coordinator, workers and the command line
  libboost-dev                 # Asio: the coordinator's loop
  libyaml-cpp-dev              # job files
  libsqlite3-dev               # the store
  libfmt-dev                   # text
  nlohmann-json3-dev           # JSON and MessagePack
  libcli11-dev                 # the command line
  libpcre2-dev libutf8proc-dev # tokenizer patterns and normal forms
  libxxhash-dev                # content hashes
  doctest-dev                  # tests
  "$@"
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "setup: missing packages: ${missing[*]}" >&2
  echo "setup: run as root, or: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

#!/bin/bash
# A shelf in a pool set over both NVDIMMs, FS-DAX and DevDAX: writers killed within the guest, then
# the guest killed in the middle of a commit; the next boot finds one step, and replicas that
# `pmempool check` has nothing to say of.
# usage: pool_test.sh BUILD_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
pool=$1/tests/guest/guest_pool
if ! command -v pmempool >/dev/null; then
  echo "SKIPPED guest: pmempool not found (Debian: apt-get install pmdk-tools)"
  exit 77
fi
images=$(mktemp -d "${TMPDIR:-/tmp}/tensorshelf-images.XXXXXX") || exit 1
trap 'rm -rf "$images"' EXIT

boot() {  # wanted status, then arguments for run.sh
  wanted=$1
  shift
  "$here/run.sh" --keep-images "$images" --add pmempool "$@"
  status=$?
  if [ $status -eq 77 ]; then exit 77; fi
  if [ $status -ne "$wanted" ]; then
    echo "FAILED: status $status, not $wanted, from run.sh $*"
    exit 1
  fi
}
boot 0 -- "$pool" kill 15
boot 137 --kill-on WRITTEN -- "$pool" write
boot 0 -- "$pool" check
echo "PASSED: a pool set over both NVDIMMs kept its steps across kills"

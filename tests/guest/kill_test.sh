#!/bin/bash
# What one boot made durable is there in the next one, after QEMU was killed in the middle of writes:
# the images, namespaces and file system survive. And run.sh reports each end for what it is: a
# failed program, a panic, a guest that takes too long, a kernel that does not come up.
# usage: kill_test.sh BUILD_DIR
set -u
here=$(cd "$(dirname "$0")" && pwd)
probe=$1/tests/guest/guest_probe
images=$(mktemp -d "${TMPDIR:-/tmp}/tensorshelf-images.XXXXXX") || exit 1
trap 'rm -rf "$images"' EXIT
seed=$RANDOM
echo "seed $seed"

boot() {  # wanted status, then arguments for run.sh
  wanted=$1
  shift
  "$here/run.sh" --keep-images "$images" "$@"
  status=$?
  if [ $status -eq 77 ]; then exit 77; fi
  if [ $status -ne "$wanted" ]; then
    echo "FAILED: status $status, not $wanted, from run.sh $*"
    exit 1
  fi
}
boot 137 --kill-on WRITTEN -- "$probe" write $seed
boot 0 -- "$probe" check $seed
boot 1 -- "$probe" check $((seed + 1))  # the check can fail
boot 125 -- sh -c 'echo c >/proc/sysrq-trigger'
boot 124 --limit 1 -- true
boot 125 --boot 1 -- true  # a kernel that never comes up, three times
echo "PASSED: three media kept their bytes across a killed guest"

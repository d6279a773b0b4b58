#!/bin/busybox sh
# /init of the test guest. Owns: the way from a bare kernel to three media, and the run of what
# run.sh left in /guest/commands. Assumes: the initramfs that run.sh packs.
#
# Two serial ports: the kernel talks on ttyS0 (the console, shown only when the guest fails), the
# programs on ttyS1, which is the host's stdout. The last line there is "GUEST EXIT <status>"; when
# it is missing, the host takes the run for failed.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/tmp

/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt/dax /bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777 shm /dev/shm
stty -F /dev/ttyS1 raw -echo  # no CR before LF
exec </dev/null >/dev/ttyS1 2>&1
echo "GUEST INIT"

fail() {
  echo "GUEST FAILED: $*"
  dmesg | tail -n 20 >/dev/console
  poweroff -f
  sleep 60
}

# Devices are probed asynchronously, after insmod has returned.
wait_for() {
  tries=0
  until [ -e "$1" ] || [ -e "${2-$1}" ]; do
    tries=$((tries + 1))
    [ $tries -le 200 ] || fail "$* did not appear"
    sleep 0.05
  done
}

# One field of the enabled namespaces in that mode: "pmem0", "dax1.0", ...
field_of() { ndctl list --namespaces --mode="$1" | sed -n "s/.*\"$2\":\"\([^\"]*\)\".*/\1/p"; }

# Which DIMM is region 0 differs from boot to boot, so a namespace is found by its mode, and is made
# only where the DIMMs hold none of it yet.
find_or_make() {  # mode, field that names its device, then options for ndctl
  mode=$1 field=$2
  shift 2
  device=$(field_of "$mode" "$field")
  [ -z "$device" ] || return 0
  namespace=$(field_of raw dev | sort | head -n 1)
  [ -n "$namespace" ] || fail "no raw namespace left for $mode: $(ndctl list --namespaces --idle)"
  ndctl create-namespace --force --reconfig="$namespace" --mode="$mode" --map=mem "$@" \
    >/tmp/ndctl.log 2>&1 || fail "ndctl create-namespace $mode: $(cat /tmp/ndctl.log)"
  device=$(field_of "$mode" "$field")
  [ -n "$device" ] || fail "$mode namespace without a device: $(ndctl list --namespaces --idle)"
}

while read -r module; do
  insmod "/guest/modules/$module" || fail "insmod $module"
done </guest/modules/order
# What a namespace is shows only once its driver has taken it; before, a kept one looks raw.
wait_for /dev/pmem0 /dev/dax0.0
wait_for /dev/pmem1 /dev/dax1.0


find_or_make fsdax blockdev
fsdax=/dev/$device
find_or_make devdax chardev --align=2M
devdax=/dev/$device
block=/dev/nvme0n1
for device in $fsdax $devdax $block; do wait_for "$device"; done

# A device that holds a file system is never formatted again: its loss would be a finding.
file_system=$(cat /guest/file_system)
if dd if="$fsdax" bs=4096 count=1 2>/dev/null | tr -d '\0' | grep -q .; then
  origin=kept
else
  origin=new
  case $file_system in
    ext4) mkfs.ext4 -q -b 4096 "$fsdax" ;;
    xfs) mkfs.xfs -q -m reflink=0 "$fsdax" ;;  # reflink and DAX exclude each other
  esac >/tmp/mkfs.log 2>&1 || fail "mkfs.$file_system: $(cat /tmp/mkfs.log)"
fi
# The kernel refuses this mount where DAX is not to be had; it never falls back to the page cache.
mount -t "$file_system" -o dax "$fsdax" /mnt/dax || fail "mount -o dax $fsdax ($file_system)"

echo "GUEST kernel $(uname -r), FS-DAX $fsdax ($origin $file_system," \
  "$(grep -o 'dax=[a-z]*' /proc/mounts) on /mnt/dax), DevDAX $devdax," \
  "NVMe $block ($(cat /sys/block/nvme0n1/queue/write_cache) cache)"

export TENSORSHELF_TEST_FSDAX=/mnt/dax TENSORSHELF_TEST_DEVDAX=$devdax
export TENSORSHELF_TEST_BLOCK=$block TENSORSHELF_TEST_DIR=/tmp
cd /tmp || fail "no /tmp"

status=0
guest_run() {
  echo "GUEST RUN $*"
  "$@"
  code=$?
  [ $code -eq 0 ] || echo "GUEST STATUS $code of $1"
  [ $status -ne 0 ] || status=$code
}
. /guest/commands

# The file system stays busy for a moment after a process that used io_uring has gone.
cd /
tries=0
until umount /mnt/dax 2>/dev/null; do
  tries=$((tries + 1))
  [ $tries -le 100 ] || fail "umount /mnt/dax"
  sleep 0.05
done
sync
echo "GUEST EXIT $status"
poweroff -f
sleep 60

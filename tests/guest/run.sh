#!/bin/bash
# Boots one QEMU guest with real FS-DAX, DevDAX and an NVMe drive, and runs programs in it. Needs no
# root, no network and no KVM.
#
#   run.sh [options] PROGRAM...       each program without arguments; the first failure is returned
#   run.sh [options] -- CMD [ARG...]  one command; CMD is a host program or one of busybox
#
#   --build-dir DIR    where a PROGRAM named without a slash is looked for: DIR/tests, DIR/tests/guest
#   --fs ext4|xfs      the file system on the FS-DAX device (ext4)
#   --limit SECONDS    QEMU is killed after that (240)
#   --boot SECONDS     a kernel that has not come to its init by then is killed and booted again (60)
#   --keep-images DIR  the drives live in DIR and are used again by the next run with the same DIR;
#                      without it they are temporary
#   --add PROGRAM      another program of the host that is to be there, found by its name
#   --kill-on TEXT     QEMU is killed (SIGKILL) at the first line of output that holds TEXT
#                      ("GUEST RUN", with the program's arguments, is such a line too)
#
# Exit status: that of the programs (their 77 comes back as 1); 77 skipped, with the reason in one
# line; 124 time limit; 125 the guest failed (panic, no medium, three boots in vain), with its
# console's last lines; 137 killed by --kill-on; 2 usage.
#
# What is emulated. All of it is TCG, QEMU's software CPU (`-cpu max`: clwb, AVX2, no AVX-512), so
# times mean nothing. Two NVDIMMs of 384 MiB with labels, on an ADR platform
# (nvdimm-persistence=mem-ctrl: flushes are needed): one holds a file system mounted with -o dax,
# where MAP_SYNC is real, the other is a character device /dev/daxN.0 with 2 MiB alignment. One NVMe
# drive of 512 MiB with 512-byte sectors and a volatile write cache. The programs find them in
#   TENSORSHELF_TEST_FSDAX   directory on the DAX mount
#   TENSORSHELF_TEST_DEVDAX  /dev/daxN.0
#   TENSORSHELF_TEST_BLOCK   /dev/nvme0n1
#   TENSORSHELF_TEST_DIR     directory on a tmpfs of the guest
# and run as root, with the host's shared libraries, in an initramfs that holds nothing else.
#
# What killing QEMU shows, and what not. The guest stops between two instructions, so this is a real
# crash of kernel, file system and drivers: labels, namespaces, journal and file sizes come back as
# they were, and a half-written slot stays half written. But nothing that was stored is lost: the
# emulated CPU has no cache that could drop lines, and what the NVMe drive took is in the host's page
# cache. A missing flush, fence or fdatasync is therefore invisible here; the explorer in
# crashtest/, which drops and tears what was not made durable, finds those of the store, and
# tests/test_pmem_persist.cpp, which follows each instruction, those of the mapped medium.
set -u -o pipefail
shopt -s extglob
here=$(cd "$(dirname "$0")" && pwd)
PATH=$PATH:/usr/sbin:/sbin

build_dir='' file_system=ext4 limit=240 boot=60 images='' kill_on='' added='' mode=programs
usage() {
  echo "usage: run.sh [--build-dir DIR] [--fs ext4|xfs] [--limit SECONDS] [--boot SECONDS]" \
    "[--keep-images DIR] [--add PROGRAM] [--kill-on TEXT] PROGRAM... | -- CMD [ARG...]${1:+ ($1)}" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --) mode=command; shift; break ;;
    --build-dir | --fs | --limit | --boot | --keep-images | --add | --kill-on)
      [ $# -ge 2 ] || usage "$1 needs a value"
      case $1 in
        --build-dir) build_dir=$2 ;;
        --fs) file_system=$2 ;;
        --limit) limit=$2 ;;
        --boot) boot=$2 ;;
        --keep-images) images=$2 ;;
        --add) added=$2 ;;
        --kill-on) kill_on=$2 ;;
      esac
      shift 2 ;;
    -*) usage "unknown option $1" ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || usage "no program"
case $file_system in ext4 | xfs) ;; *) usage "--fs $file_system" ;; esac
case $limit in '' | 0* | *[!0-9]*) usage "--limit $limit" ;; esac
case $boot in '' | 0* | *[!0-9]*) usage "--boot $boot" ;; esac

# ---- What is needed, by name -------------------------------------------------------------------

missing='' packages=''
need() {  # command, Debian package
  command -v "$1" >/dev/null && return
  missing="$missing${missing:+, }$1"
  packages="$packages $2"
}
if [ "$(uname -m)" != x86_64 ]; then
  echo "SKIPPED guest: the host is $(uname -m), the guest runs x86-64 programs"
  exit 77
fi
need qemu-system-x86_64 qemu-system-x86
need busybox busybox-static
need ndctl ndctl
need modprobe kmod
need cpio cpio
case $file_system in
  ext4) need mkfs.ext4 e2fsprogs ;;
  xfs) need mkfs.xfs xfsprogs ;;
esac

# Modules in the order of their dependencies; those that are built in need no file. The empty
# configuration undoes ndctl's own, which hides libnvdimm from --show-depends.
module_files() {  # kernel release
  for module in nfit nd_pmem dax_pmem device_dax nvme "$file_system" crc32c; do
    modprobe -C /dev/null -S "$1" --show-depends "$module" || return 1
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++'
}
release='' modules=''
for image in $(printf '%s\n' /boot/vmlinuz-* | sort -rV); do
  [ -r "$image" ] && [ -d "/lib/modules/${image#/boot/vmlinuz-}" ] || continue
  command -v modprobe >/dev/null || continue
  modules=$(module_files "${image#/boot/vmlinuz-}" 2>/dev/null) || continue
  release=${image#/boot/vmlinuz-}
  break
done
if [ -z "$release" ]; then
  missing="$missing${missing:+, }a readable kernel with NVDIMM modules in /boot"
  packages="$packages linux-image-cloud-amd64"
fi
if [ -n "$missing" ]; then
  echo "SKIPPED guest: $missing not found (Debian: apt-get install$packages)"
  exit 77
fi

# ---- The initramfs -----------------------------------------------------------------------------

work=$(mktemp -d "${TMPDIR:-/tmp}/tensorshelf-guest.XXXXXX") || exit 125
qemu_pid=''
# Kills and reaps in one command, for else bash reports the killed job with all its arguments.
kill_qemu() { { kill -KILL "$qemu_pid" && wait "$qemu_pid"; } 2>/dev/null; }
cleanup() {
  [ -z "$qemu_pid" ] || kill_qemu
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
die() {
  echo "guest: $*" >&2
  exit 125
}

root=$work/root
mkdir -p "$root/guest/modules" "$root/guest/programs" "$root/bin" "$root/sbin"

copy_libraries() {  # of one program, each to the path where the loader will look for it
  # A static program makes ldd fail, and needs nothing.
  ldd "$1" 2>/dev/null >"$work/ldd" || return 0
  ! grep 'not found' "$work/ldd" || die "$1 lacks a shared library"
  grep -o '/[^ ]*' "$work/ldd" | while read -r library; do
    [ -e "$root$library" ] || install -D -m 755 "$library" "$root$library" || exit 1
  done || die "cannot copy the shared libraries of $1"
}
add_program() {  # host path, directory in the guest
  install -m 755 "$1" "$root$2/$(basename "$1")" || die "cannot read $1"
  copy_libraries "$1"
}
quoted() { printf "'%s' " "${1//\'/\'\\\'\'}"; }

add_program "$(command -v busybox)" /bin
add_program "$(command -v ndctl)" /sbin
add_program "$(command -v "mkfs.$file_system")" /sbin
if [ -n "$added" ]; then add_program "$(command -v "$added")" /bin; fi
install -m 755 "$here/init.sh" "$root/init"
echo "$file_system" >"$root/guest/file_system"

for module in $modules; do
  name=$(basename "$module" | sed 's/\.ko.*/.ko/')
  case $module in
    *.xz) xz -dc "$module" ;;
    *.zst) zstd -dcq "$module" ;;
    *.gz) gzip -dc "$module" ;;
    *) cat "$module" ;;
  esac >"$root/guest/modules/$name" || die "cannot unpack $module"
  echo "$name"
done >"$root/guest/modules/order"

find_program() {  # prints the host path of a PROGRAM
  for candidate in "$1" "$build_dir/tests/$1" "$build_dir/tests/guest/$1"; do
    if [ -f "$candidate" ] && [ -x "$candidate" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}
if [ $mode = programs ]; then
  for program; do
    path=$(find_program "$program") || die "no program $program (looked in '$build_dir/tests' too)"
    add_program "$path" /guest/programs
    echo "guest_run $(quoted "/guest/programs/$(basename "$path")")"
  done >"$root/guest/commands" || exit 125
else
  command=$1
  shift
  if path=$(find_program "$command"); then
    add_program "$path" /guest/programs
    command=/guest/programs/$(basename "$path")
  fi
  {
    printf 'guest_run '
    for word in "$command" "$@"; do quoted "$word"; done
    echo
  } >"$root/guest/commands"
fi

# Not compressed: unpacking in the emulated CPU would take longer than reading it.
(cd "$root" && find . | cpio --quiet -o -H newc --owner=0:0) >"$work/initramfs" ||
  die "cannot pack the initramfs"

# ---- The machine -------------------------------------------------------------------------------

images=${images:-$work/images}
mkdir -p "$images" || exit 125
image() { [ -e "$images/$1" ] || truncate -s "$2" "$images/$1" || die "no room for $images/$1"; }
image nvdimm0.img 386M  # 384 MiB, a multiple of 16 MiB as regions must be, and 2 MiB of labels
image nvdimm1.img 386M
image nvme.img 512M

start_qemu() {
  rm -f "$work/output" && mkfifo "$work/output" || die "no FIFO"
  qemu-system-x86_64 \
    -accel tcg,thread=multi -cpu max -smp 2 -m 1G,slots=4,maxmem=4G \
    -machine pc,nvdimm=on,nvdimm-persistence=mem-ctrl \
    -object "memory-backend-file,id=mem0,share=on,mem-path=$images/nvdimm0.img,size=386M,align=2M" \
    -device nvdimm,id=nvdimm0,memdev=mem0,label-size=2M \
    -object "memory-backend-file,id=mem1,share=on,mem-path=$images/nvdimm1.img,size=386M,align=2M" \
    -device nvdimm,id=nvdimm1,memdev=mem1,label-size=2M \
    -drive "file=$images/nvme.img,if=none,format=raw,id=drive0" \
    -device nvme,serial=tensorshelf,drive=drive0,logical_block_size=512 \
    -kernel "/boot/vmlinuz-$release" -initrd "$work/initramfs" \
    -append "console=ttyS0 loglevel=5 panic=-1" -no-reboot \
    -nodefaults -display none -monitor none \
    -serial "file:$work/console" -serial stdio </dev/null >"$work/output" 2>"$work/qemu.err" &
  qemu_pid=$!
  exec 3<"$work/output"
}

# Lines pass as they come. The last status line counts, wherever it stands in its line: a program's
# output may end without a newline. $killed says why QEMU was killed, if it was: boot, late, text.
follow() {
  status='' killed=''
  local start=$SECONDS booted='' left ended line
  while true; do
    left=$((start + limit - SECONDS))
    if [ $left -le 0 ]; then killed=late; break; fi
    if [ -z "$booted" ]; then
      if [ $((start + boot - SECONDS)) -le 0 ]; then killed=boot; break; fi
      if [ $((start + boot - SECONDS)) -lt $left ]; then left=$((start + boot - SECONDS)); fi
    fi
    IFS= read -r -t $left -u 3 line
    ended=$?
    line=${line//$'\e['*([0-9;])m/}  # the programs see a terminal, and may colour
    case $line in "GUEST INIT"*) booted=yes; continue ;; esac
    if [ $ended -eq 0 ] || [ -n "$line" ]; then printf '%s\n' "$line"; fi
    case $line in *"GUEST EXIT "*) status=${line##*GUEST EXIT } ;; esac
    if [ -n "$kill_on" ] && [ "${line#*"$kill_on"}" != "$line" ]; then killed=text; break; fi
    if [ $ended -eq 1 ]; then break; fi  # QEMU closed its output; more than 128: time is up
  done
  if [ -n "$killed" ]; then
    kill_qemu
  else
    wait "$qemu_pid"
    qemu_status=$?
  fi
  qemu_pid=''
}

console_tail() {
  echo "guest: $*; last lines of its console:"
  tail -n 40 "$work/console" 2>/dev/null | tr -d '\r'
  cat "$work/qemu.err"
} >&2

# Under TCG a kernel may stand still on its way up (seen once, on a busy host,
# while it looked for PCI). Nothing under test has run by then, and no drive was touched.
for attempt in 1 2 3; do
  start_qemu
  follow
  if [ "$killed" != boot ]; then break; fi
  console_tail "no init within $boot s (boot $attempt of 3)"
done

case $killed in
  boot)
    exit 125 ;;
  text)
    echo "guest: killed at '$kill_on'" >&2
    exit 137 ;;
  late)
    console_tail "killed after the limit of $limit s"
    exit 124 ;;
esac
case $status in
  77) exit 1 ;;
  '' | *[!0-9]*)
    console_tail "ended without an exit status (QEMU: $qemu_status)"
    exit 125 ;;
  *) exit "$status" ;;
esac

#!/bin/sh
# Shows that two commands are all it takes: makes a minimal Debian 12 with nothing but git and
# python3, clones this repository into it and runs `./run demo` and `./run test` there.
#
#     sudo tests/chroot/bare_debian.sh [--keep] [--into DIRECTORY] [COMMAND...]
#
# COMMAND replaces the two (each one word to `sh -c`; `./run setup` is a short one). --into keeps the
# system in DIRECTORY and takes up one that is there. Where packages come from is taken over from
# this machine: apt's sources and settings, pip's settings, and the local folders that pip's settings
# name, mounted read-only. Needs root, debootstrap and 6 GB; commits only are cloned.
set -eu
# What is mounted is seen by this process and its children alone: it goes with them, however they end.
# In a mount that outlives them `rm -r` would remove this machine's own device nodes.
if [ -z "${BARE_DEBIAN_APART:-}" ] && [ "$(id -u)" = 0 ]; then
  BARE_DEBIAN_APART=yes exec unshare --mount --propagation private sh "$0" "$@"
fi
repository=$(cd "$(dirname "$0")/../.." && pwd)
keep=no
root=
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=yes ;;
    --into)
      root=$2
      keep=yes
      shift
      ;;
    -*) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
    *) break ;;
  esac
  shift
done
[ $# -gt 0 ] || set -- './run demo' './run test'

fail() {
  printf 'bare_debian: %s\n' "$*" >&2
  exit 1
}
[ "$(id -u)" = 0 ] || fail "needs root: a chroot and mounts"
command -v debootstrap >/dev/null || fail "debootstrap is missing. Debian: apt-get install debootstrap"
[ -n "$root" ] || root=$(mktemp -d "${TMPDIR:-/var/tmp}/bare-debian.XXXXXX")
mkdir -p "$root"
root=$(cd "$root" && pwd)

leave() {  # deepest mounts first; never removes a tree with something still mounted in it
  awk -v root="$root/" 'index($2, root) == 1 { print $2 }' /proc/mounts | sort -r |
    while read -r mounted; do umount "$mounted" || umount -l "$mounted"; done
  if [ "$keep" = no ] && ! grep -qF " $root/" /proc/mounts; then
    rm -rf --one-file-system "$root"
  else
    printf 'bare_debian: kept in %s\n' "$root"
  fi
}
trap leave EXIT
trap 'exit 130' INT TERM

if [ ! -e "$root/.bootstrapped" ]; then
  # The archive this machine itself uses, security updates aside.
  mirror=$(apt-get indextargets --format '$(SITE)' 'Identifier: Packages' |
    sort -u | grep -v security | head -n 1)
  [ -n "$mirror" ] || fail "apt has no sources here to take the archive from"
  debootstrap --variant=minbase --include=git,python3,ca-certificates bookworm "$root" "$mirror"
  touch "$root/.bootstrapped"
fi

# Where packages come from: apt's and pip's settings, certificates, names of hosts.
rm -rf "$root/etc/apt/sources.list" "$root/etc/apt/sources.list.d"
cp -rL /etc/apt/. "$root/etc/apt/"
for file in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
  [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
done
settings=$root/etc/pip.conf
python3 -m pip config list 2>/dev/null | sed -n "s/^global\.\([a-z-]*\)='\(.*\)'\$/\1 = \2/p" |
  sed 's/\\n/ /g' >"$settings.new" || true
{ echo '[global]' && cat "$settings.new"; } >"$settings" && rm "$settings.new"

mounted() { grep -qF " $root$1 " /proc/mounts; }
bind() {
  mkdir -p "$root$1"
  mounted "$1" || mount --rbind --make-rslave "$1" "$root$1"
}
mkdir -p "$root/proc" && { mounted /proc || mount -t proc proc "$root/proc"; }
bind /dev
bind /sys
mounted /dev/shm || mount -t tmpfs tmpfs "$root/dev/shm"

# Local files and folders that pip's settings name: of an index, the folder above it, where its files
# lie.
python3 -m pip config list 2>/dev/null | grep -oE "(file://)?/[^ '\\]+" | sed 's,^file://,,' |
  sort -u | while read -r folder; do
  [ ! -f "$folder" ] || install -D -m 644 "$folder" "$root$folder"
  [ -d "$folder" ] || continue
  [ "$(basename "$folder")" != simple ] || folder=$(dirname "$folder")
  bind "$folder"
  mount -o remount,bind,ro "$root$folder"
done

rm -rf "$root/srv/tensorshelf"
git clone -q "file://$repository" "$root/srv/tensorshelf"

inside() {  # a clean environment, with what apt and pip need to reach their sources
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 CI=true \
    $(env | grep -E '^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|SSL_CERT_FILE|PIP_[A-Z_]*)=[^ ]*$') \
    chroot "$root" sh -c "cd /srv/tensorshelf && $1"
}
for command in "$@"; do
  printf '\nbare_debian: %s\n' "$command"
  begin=$(date +%s)
  inside "$command" </dev/null || fail "'$command' failed"
  printf 'bare_debian: %s passed in %s s\n' "$command" "$(($(date +%s) - begin))"
done

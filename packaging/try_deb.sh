#!/bin/sh
# Installs, runs, upgrades and removes a package in a clean root of this machine's Debian (root, mmdebstrap):
#     packaging/try_deb.sh PACKAGE
set -eu
package=$1
root=$(mktemp -d)
trap 'umount "$root/proc" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
sources=$(ls /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1)
mmdebstrap --variant=essential --include=passwd --quiet "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" "$sources"
cp "$package" "$root/entresol.deb"
inside() { chroot "$root" "$@"; }

inside dpkg -i /entresol.deb
mount -t proc proc "$root/proc"
inside entresol --version
inside getent passwd entresol
inside test -e /usr/share/man/man1/entresol-mount.1.gz -a -e /usr/share/bash-completion/completions/entresol
inside test -e /usr/lib/systemd/system/entresol@.service
# It works there: a simulation, and a cache that is formatted, checked and drained.
inside entresol -q simulate generate:zipf:n=20k:pages=2000:seed=1 --policy arc,lru --size 10%
inside sh -c 'cd /tmp && truncate -s 16M below && entresol -q format --cache cache --backing below --size 4MiB'
inside sh -c 'cd /tmp && entresol check --cache cache --backing below && entresol drain --cache cache --backing below'
inside sh -c 'mkdir /tmp/files && echo bytes >/tmp/files/one && entresol -q format --cache /tmp/over --backing /tmp/files --size 4MiB'
inside entresol check --cache /tmp/over --backing /tmp/files
inside dpkg -i /entresol.deb
inside dpkg -r entresol
if inside test -e /usr/bin/entresol; then
    echo "the program is still there" >&2
    exit 1
fi
echo "installed, run, upgraded and removed"

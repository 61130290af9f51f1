#!/bin/sh
# Makes a package for Debian and its kin of a program that was linked statically:
#     packaging/deb.sh PROGRAM DIRECTORY
# The package's name is printed. A trial on this machine alone may say LINKED=any, and give another VERSION.
set -eu
program=$1 directory=$2
here=$(cd "$(dirname "$0")/.." && pwd)
if [ "${LINKED:-static}" = static ] && file -L "$program" | grep -q "dynamically linked"; then
    echo "$program: is not linked statically: the package names no libraries" >&2
    exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
"$here/packaging/install.sh" "$program" "$root" /usr
gzip -9n "$root"/usr/share/man/man1/*.1
doc=$root/usr/share/doc/entresol
install -d "$root/usr/lib/sysusers.d" "$root/DEBIAN"
install -m 644 "$here/packaging/sysusers.conf" "$root/usr/lib/sysusers.d/entresol.conf"
# Pages lie as in the repository, so that their links hold; those of results are the ones that other pages name.
cd "$here"
named=$(grep --exclude=PLAN.md -oh 'lab/results/[a-z0-9/-]*\.md' docs/*.md | sort -u)
for page in README.md docs/*.md docs/*.svg contrib/grafana/entresol.json contrib/prometheus/alerts.yml $named; do
    test "$page" = docs/PLAN.md || install -D -m 644 "$page" "$doc/$page"
done
cd - >/dev/null
gzip -9nc "$here/CHANGELOG.md" >"$doc/changelog.gz"
cat "$here/LICENSE-MIT" "$here/LICENSE-APACHE" >"$doc/copyright"
version=${VERSION:-$("$program" --version | sed -n 's/^entresol \([0-9][0-9.]*\).*/\1/p')}
architecture=$(dpkg --print-architecture)
cat >"$root/DEBIAN/control" <<CONTROL
Package: entresol
Version: $version
Architecture: $architecture
Maintainer: the Entresol developers <maintainers@entresol.invalid>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: systemd | systemd-standalone-sysusers | passwd
Recommends: fuse3
Section: database
Priority: optional
Description: crash-safe cache on a fast device under an unmodified database
 Entresol chooses, sizes and runs a hierarchy of DRAM, NVM, SSD and disk. It
 mounts a directory, or serves a file or block device over NBD, through a cache
 on a fast device. It simulates the policies of such caches on a trace, and
 recommends sizes for a budget.
CONTROL
install -m 755 "$here/packaging/postinst" "$here/packaging/prerm" "$here/packaging/postrm" "$root/DEBIAN/"
package=$directory/entresol_${version}_$architecture.deb
mkdir -p "$directory"
dpkg-deb --build --root-owner-group "$root" "$package" >/dev/null
echo "$package"

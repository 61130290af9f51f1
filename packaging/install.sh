#!/bin/sh
# Puts the program, its manual pages, completions for three shells and the units under DESTDIR, for a PREFIX:
#     packaging/install.sh PROGRAM DESTDIR PREFIX
# The program must run here: it writes its own manual pages and completions.
set -eu
program=$1 root=$2 prefix=$3
here=$(cd "$(dirname "$0")/.." && pwd)
share=$root$prefix/share
# Units of a distribution's packages lie beside the program, those of the machine's owner in /etc.
case $prefix in /usr) units=$root/usr/lib/systemd/system ;; *) units=$root/etc/systemd/system ;; esac

install -D -m 755 "$program" "$root$prefix/bin/entresol"
program=$root$prefix/bin/entresol
install -d "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
    "$share/fish/vendor_completions.d" "$units"
"$program" man "$share/man/man1"
"$program" completions bash >"$share/bash-completion/completions/entresol"
"$program" completions zsh >"$share/zsh/site-functions/_entresol"
"$program" completions fish >"$share/fish/vendor_completions.d/entresol.fish"
for unit in "$here"/contrib/systemd/*.service; do
    sed "s|/usr/bin/entresol|$prefix/bin/entresol|" "$unit" >"$units/${unit##*/}"
    chmod 644 "$units/${unit##*/}"
done

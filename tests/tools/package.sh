#!/bin/bash
# A Debian package in a bare root of this Debian: it installs, the tools plan and run, manual pages lie there,
# and nothing is left when it goes.   package.sh PACKAGE.deb [ROOT]
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
package=$(realpath "$1")
root=${2:-$(mktemp -d)}
[ $# -gt 1 ] || trap 'rm -rf "$root"' EXIT
make_root "$root" "$(this_suite)" "$(this_mirror)"
cp "$package" "$root/tmp/dtplan.deb"

install_inside "$root" /tmp/dtplan.deb
inside "$root" 'cd /tmp && dtplan plan gpt2_small --machine h100_64 --mesh x:8 -o gpt2.plan.json'
inside "$root" 'cd /tmp && dtplan plan mlp_digits --machine cpu_2 --mesh x:2 -o mlp.plan.json &&
        dtrun verify mlp_digits --plan mlp.plan.json --comm sim && test -s /usr/share/man/man1/dtplan-plan.1'
inside "$root" 'DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq dtplan >/dev/null && ! ls -d /usr/share/dtp /usr/lib/*/dtp 2>/dev/null'
echo "installed, planned, ran and removed in a bare $(this_suite): $(basename "$package"), $(stat -c %s "$package") bytes"

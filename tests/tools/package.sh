#!/bin/bash
# A Debian package in a bare root of this Debian: it installs, the tools plan and run, manual pages lie there,
# and nothing is left when it goes.   package.sh PACKAGE.deb [ROOT]
set -euo pipefail
package=$(realpath "$1")
root=${2:-$(mktemp -d)}
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' | awk -v s="$suite" '$2 == s {print $1; exit}')
[ $# -gt 1 ] || trap 'rm -rf "$root"' EXIT
[ -x "$root/bin/sh" ] || debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || { tail -20 "$root.log"; exit 1; }
rm -f "$root.log"
cp "$package" "$root/tmp/dtplan.deb"
# In a mount namespace of its own with /proc, which ends with the command.
inside() { LC_ALL=C unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" bash -euo pipefail -c "$1"; }

inside 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /tmp/dtplan.deb >/dev/null'
inside 'cd /tmp && dtplan plan gpt2_small --machine h100_64 --mesh x:8 -o gpt2.plan.json'
inside 'cd /tmp && dtplan plan mlp_digits --machine cpu_2 --mesh x:2 -o mlp.plan.json &&
        dtrun verify mlp_digits --plan mlp.plan.json --comm sim && test -s /usr/share/man/man1/dtplan-plan.1'
inside 'DEBIAN_FRONTEND=noninteractive apt-get purge -y -qq dtplan >/dev/null && ! ls -d /usr/share/dtp /usr/lib/*/dtp 2>/dev/null'
echo "installed, planned, ran and removed in a bare $suite: $(basename "$package"), $(stat -c %s "$package") bytes"

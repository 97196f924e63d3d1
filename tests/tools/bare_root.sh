# A root that has nothing but the base system of a release, made by debootstrap; to be sourced, as root.
#   make_root ROOT SUITE MIRROR [OPTION OF DEBOOTSTRAP]...    leaves a root as it is that lies there already
#   install_inside ROOT PACKAGE...
#   inside ROOT COMMAND            in a mount namespace of its own with /proc, /sys and what /dev needs, which ends with the command

make_root() {
    [ ! -x "$1/bin/sh" ] || return 0
    mkdir -p "$1" && chmod 755 "$1" # users other than root get in: mktemp made it for one alone
    debootstrap --variant=minbase "${@:4}" "$2" "$1" "$3" >"$1.log" 2>&1 || { tail -20 "$1.log"; return 1; }
    rm -f "$1.log"
    echo "127.0.0.1 localhost $(hostname)" >"$1/etc/hosts" # installers and containers write it
}

# The release and the mirror of this machine.
this_suite() { (. /etc/os-release && echo "$VERSION_CODENAME"); }
this_mirror() { apt-get indextargets --format '$(SITE) $(CODENAME)' | awk -v s="$(this_suite)" '$2 == s {print $1; exit}'; }

inside() {
    LC_ALL=C unshare --mount --pid --fork --mount-proc="$1/proc" bash -c '
        mkdir -p "$0/dev/shm" && mount --rbind /sys "$0/sys" && mount -t tmpfs none "$0/dev/shm"
        mkdir -p "$0/dev/pts" && mount -t devpts -o ptmxmode=666 none "$0/dev/pts" && ln -sf pts/ptmx "$0/dev/ptmx"
        for folder in ${MOUNTED:-}; do mkdir -p "$0$folder" && mount --bind "$folder" "$0$folder" || exit 1; done
        exec chroot "$0" bash -euo pipefail -c "$1"' "$1" "$2"
}

install_inside() {
    inside "$1" "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${*:2} >/dev/null"
}

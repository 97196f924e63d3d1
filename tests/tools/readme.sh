#!/bin/bash
# Every command block of README.md, in order, in a fresh clone of HEAD in a bare root of this Debian. Each has to exit with 0, and
# `git status` has to be empty afterwards. ```bash blocks need PyTorch: they run last, with the packages of TORCH_PYTHON, whose
# version is the root's. `./dev check` is left out without --check: it takes more than 20 minutes of two cores.
# Usage, as root: readme.sh [--check] TORCH_PYTHON [ROOT]
set -euo pipefail
. "$(dirname "$0")/bare_root.sh"
check=
[ "$1" != --check ] || { check=1; shift; }
torch=$("$1" -c 'import os, torch; print(os.path.dirname(torch.__path__[0]))')
version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
root=${2:-$(mktemp -d)}
[ $# -gt 1 ] || trap 'rm -rf "$root"' EXIT
make_root "$root" "$(this_suite)" "$(this_mirror)"
rm -rf "$root/root/dtplan"
git clone --quiet --no-hardlinks . "$root/root/dtplan"

# blocks LANGUAGE FOLDER: the blocks of a language, a file each; and the model that README.md shows, which readers save.
blocks() {
    awk -v language="$1" -v folder="$2" '
        /^```/ && file != "" {close(file); file = ""; next}
        $0 == "```" language {file = sprintf("%s/%02d", folder, ++n); next}
        file != "" {print >file}' README.md
}
work=$(mktemp -d -p "$root/tmp")
mkdir "$work/sh" "$work/bash" "$work/json"
for language in sh bash json; do blocks $language "$work/$language"; done
[ -n "$check" ] || sed -i '/^\.\/dev check/d' "$work"/sh/*
mkdir "$root/root/dtplan/out" 2>/dev/null || true
cp "$work/json/01" "$root/root/dtplan/out/tiny.json"

count=0
run_blocks() {
    local block began
    for block in "$work/$1"/*; do
        count=$((count + 1)) began=$SECONDS
        printf '\n== block %d, %s\n' "$count" "$(head -1 "$block")"
        inside "$root" "cd /root/dtplan && bash -e '${block#"$root"}' </dev/null" ||
            { echo "README.md: block $count: exit code $?: $(cat "$block")"; exit 1; }
        echo "== $((SECONDS - began)) s"
    done
}
run_blocks sh

install_inside "$root" python3
inside "$root" "python3 -c 'import sys; sys.exit(0 if \"%d.%d\" % sys.version_info[:2] == \"$version\" else \"PyTorch is for Python $version\")'"
echo "$torch" >"$root/usr/local/lib/python$version/dist-packages/torch.pth"
printf '#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n' >"$root/usr/local/bin/torchrun"
chmod +x "$root/usr/local/bin/torchrun"
MOUNTED=$torch run_blocks bash

left=$(git -C "$root/root/dtplan" status --short)
[ -z "$left" ] || { printf 'README.md: the clone is not clean afterwards:\n%s\n' "$left"; exit 1; }
echo "$count blocks of README.md ran in a bare $(this_suite), and the clone is clean"

#!/usr/bin/env bash
# What each_file.py remembers, in a small folder of its own: a changed header makes the files that include it be looked at
# again, a finding is not remembered, and another folder with the same files profits.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/common.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export XDG_CACHE_HOME=$folder/cache DTP_LINT=all
mkdir -p "$folder/one/core" "$folder/one/include"
cd "$folder/one" || exit 1
echo '#include "core/b.h"' >core/a.h
echo 'int b;' >core/b.h
echo '#include "a.h"' >core/a.c
echo 'int c;' >core/c.c
touch -d '1 hour ago' core/*

# The lint notes what it looks at and prints the lines with "wrong".
lint() { bash -c 'echo "$1" >>looked; grep -n wrong "$1"; true' lint "$@"; }
export -f lint
# run EXPECTED STATUS WHEN: the files that are looked at, in order, and the exit status.
run() {
    rm -f looked
    printf 'core/a.c\ncore/c.c\n' | python3 "$here/each_file.py" ${options:-} bash -c 'lint "$@"' lint >output
    local status=$? looked
    looked=$(sort looked 2>/dev/null | tr '\n' ' ')
    [ "$status" -eq "$2" ] || bad "$3: exit status $status instead of $2: $(cat output)"
    [ "$looked" = "$1" ] || bad "$3: looked at '$looked' instead of '$1'"
}
# write TEXT FILE: as if long ago, since what is written while the lint runs is not remembered.
write() { echo "$1" >"$2" && touch -d '1 hour ago' "$2"; }

run "core/a.c core/c.c " 0 "the first time"
run "" 0 "the second time"
write 'int d;' core/b.h
run "core/a.c " 0 "after a header of a header changed"
write 'int wrong;' core/c.c
run "core/c.c " 1 "with a finding"
grep -qx '1:int wrong;' output || bad "the finding is not printed: $(cat output)"
run "core/c.c " 1 "with a finding, again"
write 'int c;' core/c.c
run "" 0 "with the content of before"
options="--version 2" run "core/a.c core/c.c " 0 "of another version"
write 'x: y' config
options="--with config" run "core/a.c core/c.c " 0 "with a file of options"
write 'x: z' config
options="--with config" run "core/a.c core/c.c " 0 "with other options"
echo '[{"directory": "'"$PWD"'", "file": "core/a.c", "command": "cc -I'"$PWD"'/include core/a.c"}]' >commands
options="--commands commands" run "core/a.c core/c.c " 0 "with compile commands"
options="--commands commands" run "" 0 "with compile commands, again"
cp -r ../one ../two
cd ../two || exit 1
sed -i 's|/one|/two|g' commands
options="--commands commands" run "" 0 "in another folder"
touch core/b.h
echo 'int e;' >core/b.h
touch -d '1 hour' core/b.h
run "core/a.c " 0 "written while the lint runs"
run "core/a.c " 0 "written while the lint runs, again"

# Of a change, those that it reaches.
git init -q . && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m 0
git add core && git -c user.name=x -c user.email=x@x commit -q -m 1
git -c user.name=x -c user.email=x@x commit -q --allow-empty -m 2
export DTP_LINT=changed XDG_CACHE_HOME=$folder/empty
run "" 0 "without a change"
write 'int f;' core/b.h
run "core/a.c " 0 "of a change of a header"
finish

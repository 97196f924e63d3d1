#!/usr/bin/env bash
# Installs into an empty folder and looks at what is there: headers, what the libraries export, what each binary links; then builds
# the examples and a program that plans, runs and computes against it, through the CMake package and through pkg-config.
# Usage: install.sh BIN_DIR
set -eu
build=$(dirname "$(realpath "$1")")
root=$PWD
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
prefix=$here/prefix
fail() { echo "$*"; exit 1; }

cmake --install "$build" --prefix "$prefix" >"$here/install.log"
for tool in dtplan dtrun; do "$prefix/bin/$tool" --version >/dev/null; done
for command in $(sed -nE 's/^COMMAND\([A-Z_]+, ([a-z]+), [a-z_]+, "([a-z-]+)".*/\1-\2/p' "$root/tools/options.def"); do
    grep -q '^.SH OPTIONS' "$prefix/share/man/man1/$command.1" || fail "no manual page $command"
done
grep -q 'complete .* dtrun' "$prefix/share/bash-completion/completions/dtrun" || fail "no completion of dtrun"
diff <(cd "$root/include" && git ls-files --cached --others --exclude-standard 'dtp/*.h' | sort) \
    <(cd "$prefix/include" && find . -type f | sed 's|^\./||' | sort) || fail "the installed headers are not those of include/dtp"

(cd "$root/interop/python" && ls -- *.py dtplan/*.py dtplan/py.typed) | while read -r file; do
    cmp "$root/interop/python/$file" "$prefix/share/dtp/$file"
done
PYTHONPATH=$prefix/share/dtp PYTHONDONTWRITEBYTECODE=1 python3 -c 'import dtplan; print(repr(dtplan.plan("mlp_digits", machine="cpu_2", mesh={"x": 2})))'

# What a library exports, a public header declares.
libdir=$(dirname "$(find "$prefix" -name 'libdtp.so')")
grep -ohE '\bdtp_[a-z0-9_]+\(' "$prefix"/include/dtp/*.h | tr -d '(' | sort -u >"$here/declared"
for library in dtp dtp_planner; do
    nm -D --defined-only "$libdir/lib$library.so" | awk '{print $3}' | sort >"$here/exported"
    [ -s "$here/exported" ] || fail "lib$library exports nothing"
    foreign=$(comm -23 "$here/exported" "$here/declared")
    [ -z "$foreign" ] || fail "lib$library exports what no public header declares: $(echo "$foreign" | head -5 | tr '\n' ' ')"
    cat "$here/exported" >>"$here/all"
done
# ... by one library only, and what is declared is exported but for what is inline or a type of a function.
[ -z "$(sort "$here/all" | uniq -d)" ] || fail "both libraries export $(sort "$here/all" | uniq -d | head -3 | tr '\n' ' ')"
cat "$prefix"/include/dtp/*.h | tr '\n' ' ' | grep -oE 'static inline [^(]*\bdtp_[a-z0-9_]+\(' | grep -oE 'dtp_[a-z0-9_]+\($' | tr -d '(' |
    sort -u >"$here/inline"
missing=$(comm -23 "$here/declared" <(sort -u "$here/all" "$here/inline"))
[ -z "$missing" ] || fail "declared in a public header, exported by no library: $(echo "$missing" | tr '\n' ' ')"

# GLPK is linked by the planner and by dtplan, and by nothing else (docs/decisions/0032-licence.md).
needs_glpk() { readelf -d "$1" | grep -q 'NEEDED.*glpk'; }
for file in "$prefix/bin/dtplan" "$libdir/libdtp_planner.so"; do needs_glpk "$file" || fail "$file does not link GLPK"; done
for file in "$prefix/bin/dtplan" "$libdir/libdtp_planner.so"; do
    ! readelf -d "$file" | grep -qE 'NEEDED.*(libcu|nccl)' || fail "$file links CUDA"
done
for file in "$prefix/bin/dtrun" "$libdir/libdtp.so"; do
    ! needs_glpk "$file" || fail "$file links GLPK"
    ! ldd "$file" | grep -q glpk || fail "$file loads GLPK"
done

# Through the CMake package: the examples, and a program over the planner, too.
cmake -S "$root/examples" -B "$here/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_FLAGS="${DTP_TEST_CFLAGS:-}" >"$here/configure.log"
cmake --build "$here/cmake" >"$here/build.log" || { cat "$here/build.log"; exit 1; }
"$here/cmake/example_tensor_parallel_mlp"
mkdir "$here/plans"
cat >"$here/plans/CMakeLists.txt" <<TXT
cmake_minimum_required(VERSION 3.25)
project(plans LANGUAGES C)
find_package(dtp REQUIRED)
add_executable(program $root/tests/tools/install_program.c)
target_link_libraries(program PRIVATE dtp::planner)
TXT
cmake -S "$here/plans" -B "$here/plans/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_FLAGS="${DTP_TEST_CFLAGS:-}" >"$here/configure.log"
cmake --build "$here/plans/build" >"$here/build.log" || { cat "$here/build.log"; exit 1; }
arguments=(models/mlp_digits.json models/machines/cpu_2.json "$here/plan.json" w1)
"$here/plans/build/program" "${arguments[@]}"
"$prefix/bin/dtrun" run models/mlp_digits.json --plan "$here/plan.json" --comm sim --quiet >/dev/null

# Through pkg-config, the program as C++.
PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
compile() { # PACKAGE COMPILER AND SOURCE
    local package=$1
    shift
    # shellcheck disable=SC2046
    "$@" -Wall -Wextra -Werror ${DTP_TEST_CFLAGS:-} -o "$here/program" $(pkg-config --cflags --libs "$package") \
        -Wl,-rpath,"$libdir"
}
for source in "$root"/examples/*.c; do compile dtp cc -std=c17 "$source"; done
"$here/program" >/dev/null
compile dtp-planner g++ -std=c++17 -x c++ "$root/tests/tools/install_program.c" -x none
"$here/program" "${arguments[@]}" >/dev/null
echo "$(ls "$root"/examples/*.c | wc -l) examples and a program over the planner built against the installed library"

#!/usr/bin/env bash
# Installs into a temporary folder, builds the examples against the installed library once through
# its CMake package and once through pkg-config, and runs one. Usage: install.sh BIN_DIR
set -eu
build=$(dirname "$(realpath "$1")")
root=$PWD
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT

cmake --install "$build" --prefix "$here/prefix" >"$here/install.log"
for tool in dtplan dtrun; do "$here/prefix/bin/$tool" --version >/dev/null; done

# The installed headers need nothing else, and compile together in any order.
for order in sort 'sort -r'; do
    (cd "$here/prefix/include/dtp" && find . -name '*.h' | $order | sed 's|^\./\(.*\)|#include "\1"|') |
        cc -std=c17 -D_POSIX_C_SOURCE=200809L -I"$here/prefix/include" -I"$here/prefix/include/dtp" \
            -fsyntax-only -Wall -Wextra -x c -
done
# The library exports names of the project, and no others.
library=$(find "$here/prefix" -name 'libdtp.so' | head -1)
foreign=$(nm -D --defined-only "$library" | awk '$3 !~ /^dtp_/ {print $3}')
[ -z "$foreign" ] || { echo "libdtp exports names without the prefix: $(echo "$foreign" | head -5 | tr '\n' ' ')"; exit 1; }

cmake -S "$root/examples" -B "$here/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$here/prefix" \
    -DCMAKE_C_FLAGS="${DTP_TEST_CFLAGS:-}" >"$here/configure.log"
cmake --build "$here/cmake" >"$here/build.log" || { cat "$here/build.log"; exit 1; }
"$here/cmake/example_tensor_parallel_mlp"

PKG_CONFIG_PATH=$(dirname "$(find "$here/prefix" -name dtp.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir dtp)
for source in "$root"/examples/*.c; do
    # shellcheck disable=SC2046
    cc -std=c17 -Wall -Wextra -Werror ${DTP_TEST_CFLAGS:-} -o "$here/program" "$source" \
        $(pkg-config --cflags --libs dtp) -lm -Wl,-rpath,"$libdir"
done
"$here/program" >/dev/null
echo "$(ls "$root"/examples/*.c | wc -l) examples built against the installed library"

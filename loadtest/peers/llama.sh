#!/usr/bin/env bash
# Builds llama.cpp's library, which the benchmarks call through ctypes, from the source archive of llama-cpp-python, and
# the few lines of C between the two. Once: 4 to 12 minutes on two cores, at nice 19. Needs cmake and a C++ compiler.
# Prints the folder that it fills: $LOGITD_PEERS, or logitd-peers in the user's cache.
set -euo pipefail

VERSION=0.3.36
SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
CACHE=${LOGITD_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/logitd-peers}
PYTHON=${PYTHON:-python3}
HERE=$(dirname "$(realpath "$0")")
LLAMA=$CACHE/llama-$VERSION

build() {
  work=$(mktemp -d "$CACHE/llama-build.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "llama-cpp-python==$VERSION --hash=sha256:$SHA256" > "$work/requirements.txt"
  "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --dest "$work" --requirement "$work/requirements.txt"
  tar xzf "$work/llama_cpp_python-$VERSION.tar.gz" -C "$work"
  source=$work/llama_cpp_python-$VERSION/vendor/llama.cpp

  # The CPU build for this very machine (GGML_NATIVE): a peer at its best. Nothing but the library is built.
  nice -n 19 cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DCMAKE_INSTALL_RPATH='$ORIGIN'
  nice -n 19 cmake --build "$work/build" --target llama --parallel "${JOBS:-2}"

  mkdir -p "$work/done/include"
  cp -a "$work"/build/bin/*.so* "$work/done/"
  cp "$source"/include/llama.h "$source"/ggml/include/*.h "$work/done/include/"
  mv "$work/done" "$LLAMA"
}

mkdir -p "$CACHE"
exec 9> "$CACHE/llama.lock"
flock 9  # a second call waits for the first
[[ -e $LLAMA/libllama.so ]] || build >&2
${CC:-cc} -O3 -march=native -shared -fPIC -I "$LLAMA/include" "$HERE/llama_row.c" -o "$LLAMA/librow.so" \
  -L "$LLAMA" -lllama -Wl,-rpath,'$ORIGIN' >&2
echo "$LLAMA"

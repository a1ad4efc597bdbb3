#!/usr/bin/env bash
# Build the kernels with AddressSanitizer and UndefinedBehaviorSanitizer and fuzz them: sanitize.sh [ROUNDS] [SEED]
set -euo pipefail
cd "$(dirname "$0")"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
flags=(-std=c++17 -O1 -g -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wno-psabi
       -Wno-maybe-uninitialized -Wno-uninitialized -fsanitize=address,undefined -fno-sanitize-recover=all)
isas=(portable)
[[ $(uname -m) == x86_64 ]] && isas+=(avx2 avx512)
for isa in "${isas[@]}"; do
    case $isa in
        avx2) extra=(-mavx2 -mfma -mf16c) ;;
        avx512) extra=(-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c) ;;
        *) extra=() ;;
    esac
    "${CXX:-c++}" "${flags[@]}" ${extra[@]+"${extra[@]}"} -DLOGITD_ISA="$isa" -c kernel.cpp -o "$build/$isa.o"
    "${CXX:-c++}" "${flags[@]}" ${extra[@]+"${extra[@]}"} -DLOGITD_ISA="$isa" -c attention.cpp -o "$build/attention_$isa.o"
done
for fuzz in fuzz fuzz_attention fuzz_heads; do
    "${CXX:-c++}" "${flags[@]}" "$fuzz.cpp" pool.cpp "$build"/*.o -pthread -o "$build/$fuzz"
done
"$build/fuzz" "${1:-3000}" "${2:-1}"
"$build/fuzz_attention" "$((${1:-3000} / 10))" "${2:-1}"
"$build/fuzz_heads" "$((${1:-3000} * 10))" "${2:-1}"

#!/usr/bin/env bash
# Build, test and measure this project on a machine that has a GPU but no network.
#
#   scripts/check_device.sh pack FOLDER            here: pack everything to carry over, in files of at most 48 MiB
#   scripts/check_device.sh run FOLDER WORK OUT    there: build, test, measure; results appear in OUT as they come
#
# `pack` needs pip, and the llama.cpp archive and SmolLM2 in the cache (`make test` puts them there). Carry all of
# FOLDER; nothing else is needed, since it contains the checkout. Libraries that were already built for that machine can be
# included: LIBRARIES=via_sd_local scripts/check_device.sh pack FOLDER packs via_sd_local/{lib,_vendor}.
#
# `run` gives every part its own time limit, so a slow part loses only its own results. It reads these variables (with
# their defaults): BACKEND=cuda (or cpu), ARCH=90-real, FLASH=OFF (fused attention kernels, slow to compile), JOBS and
# THREADS=all cores, SHAPE="--embed 4096 --ffn 14336 --kv-heads 8 --copies 14" (about 8 billion parameters),
# QUANTS="Q4_0 F16", PROMPTS=6, TOKENS=64, SIZES=1-16,24,32,48,64, DEADLINE=570 (seconds in total; parts that would
# start later are skipped), and LIMIT=1 (a factor for the parts' time limits).

set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-python3}

die() { echo "error: $*" >&2; exit 1; }

#
# pack
#

pack() {
    local folder=$1 stage source cache archive model name fetch
    mkdir -p "$folder" && folder=$(cd "$folder" && pwd)
    stage=$(mktemp -d) && trap "rm -rf '$stage'" EXIT
    cache=$(cd "$here/patches" && "$python" -B -c "import llama_cpp; print(llama_cpp.cache_folder())") || exit 1
    archive=$(ls "$cache"/sources/llama_cpp_python-*.tar.gz 2>/dev/null) || die "no llama.cpp archive in $cache/sources"
    model=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
    [ -f "$model" ] || die "$model is missing; `via-sd-local models pull smollm2-135m` downloads it"

    # this checkout, and the patched llama.cpp without the backends that are not built
    source=$stage/checkout/build/device/source
    mkdir -p "$source"
    (cd "$here" && tar cf - --exclude=via_sd_local/lib --exclude=via_sd_local/_vendor --exclude=__pycache__ \
        CMakeLists.txt pyproject.toml README.md LICENSE NOTICE.md bench models native patches scripts tests \
        via_sd_local) |
        tar xf - -C "$stage/checkout" || die "the checkout cannot be packed"
    "$python" "$here/patches/llama_cpp.py" prepare "$source" || exit 1
    for name in vulkan sycl opencl hexagon metal et webgpu openvino cann virtgpu zdnn zendnn musa; do
        rm -rf "$source/llama.cpp/ggml/src/ggml-$name"
    done
    # for llama.cpp's own example
    tar xzf "$archive" -C "$source" --strip-components=2 --wildcards \
        '*/vendor/llama.cpp/common/*' '*/vendor/llama.cpp/examples/speculative-simple/*' || die "$archive is incomplete"
    rm -f "$folder"/{source.tar.xz,libraries.tar.xz,wheels.tar,SHA256SUMS} "$folder"/model.part*
    tar cJf "$folder/source.tar.xz" -C "$stage" checkout || exit 1
    if [ -n "${LIBRARIES:-}" ]; then
        tar cJf "$folder/libraries.tar.xz" -C "$LIBRARIES" lib _vendor || exit 1
    fi

    # Python packages that may be missing there, except numpy; compiled ones for each version of Python
    mkdir "$stage/wheels"
    fetch=("$python" -m pip download --quiet --no-deps --only-binary=:all: --dest "$stage/wheels")
    "${fetch[@]}" gguf diskcache platformdirs jinja2 typing-extensions tqdm rich markdown-it-py mdurl psutil pytest pluggy iniconfig packaging pygments ||
        die "pip cannot fetch the Python packages"
    for name in 3.10 3.11 3.12 3.13; do
        "${fetch[@]}" --python-version "$name" pyyaml markupsafe || die "pip cannot fetch packages for Python $name"
    done
    (cd "$stage/wheels" && tar cf "$folder/wheels.tar" -- *.whl) || exit 1
    split -b 48m -d "$model" "$folder/model.part" || exit 1
    (cd "$folder" && sha256sum -- *.tar.xz wheels.tar model.part* >SHA256SUMS && ls -l)
}

#
# run
#

part() { # part NAME SECONDS COMMAND…: output goes to OUT/NAME.log, the result to OUT/summary.txt
    local name=$1 limit=$2 began=$SECONDS status
    shift 2
    limit=$((limit * ${LIMIT:-1}))
    if [ $((DEADLINE - SECONDS)) -lt 5 ]; then
        say "$name: skipped, $SECONDS s are over"
        return 1
    fi
    [ "$limit" -le $((DEADLINE - SECONDS)) ] || limit=$((DEADLINE - SECONDS))
    timeout --kill-after=5 "$limit" bash -c '"$@"' bash "$@" >"$OUT/$name.log" 2>&1
    status=$?
    case $status in
        0) say "$name: done in $((SECONDS - began)) s" ;;
        124 | 137) say "$name: STOPPED at its limit of $limit s" ;;
        *) say "$name: FAILED ($status) after $((SECONDS - began)) s: $(tail -n 1 "$OUT/$name.log" | cut -c 1-200)" ;;
    esac
    return "$status"
}

say() { echo "$*" | tee -a "$OUT/summary.txt"; }

build() {
    local options=(-DCMAKE_BUILD_TYPE=Release -DVIA_SD_INSTALL_IN_SOURCE=ON)
    if [ "$BACKEND" = cuda ]; then
        options+=(-DGGML_CUDA=ON "-DCMAKE_CUDA_ARCHITECTURES=$ARCH" "-DGGML_CUDA_FA=$FLASH" -DGGML_CUDA_NCCL=OFF
            -DGGML_CUDA_NO_VMM=ON) # no VMM: linking then does not need the driver's library
        if [ -n "$CUBLAS" ]; then
            options+=("-DCUDA_cublas_LIBRARY=$CUBLAS" "-DCMAKE_CUDA_FLAGS=-I$(dirname "$CUBLAS")/../include")
        fi
    fi
    # shellcheck disable=SC2086
    cmake -S "$WORK/checkout" -B "$WORK/checkout/build/device" "${options[@]}" ${CMAKE_ARGS:-} &&
        cmake --build "$WORK/checkout/build/device" --target via_sd_libraries --parallel "$JOBS" &&
        cmake --install "$WORK/checkout/build/device" --component via_sd_local --prefix "$WORK/prefix"
}

example() {
    cmake -S "$WORK/checkout/bench/speculative" -B "$WORK/example" \
        "-DLLAMA_CPP=$WORK/checkout/build/device/source/llama.cpp" \
        "-DLIBRARIES=$WORK/checkout/via_sd_local/lib" &&
        cmake --build "$WORK/example" --target llama-speculative-simple --parallel "$JOBS"
}

cublas() { # print the cuBLAS of the wheel nvidia-cublas of the same major version, for a toolkit without it
    ! ls "$CUDA_HOME"/include/cublas_v2.h "$CUDA_HOME"/targets/*/include/cublas_v2.h >/dev/null 2>&1 || return 0
    "$python" - "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9]*\).*/\1/p')" <<'PYTHON'
import glob, os, sys
name = os.path.join("nvidia", "*", "lib", f"libcublas.so.{sys.argv[1] or '*'}")
found = [path for folder in sys.path for path in glob.glob(os.path.join(folder, name))]
print(found[0] if found else "")
PYTHON
}

packages() { # unpack the missing packages; wheels are zip archives, so pip is not needed
    "$python" - "$WORK/wheels" "$WORK/site" <<'PYTHON'
import importlib.util, pathlib, sys, zipfile
names = {"pyyaml": "yaml", "typing_extensions": "typing_extensions", "typing-extensions": "typing_extensions"}
for wheel in sorted(pathlib.Path(sys.argv[1]).glob("*.whl")):
    name, tag = wheel.name.split("-")[0].lower(), wheel.name.split("-")[2]
    ours = tag.startswith("py") or tag == f"cp{sys.version_info.major}{sys.version_info.minor}"
    if importlib.util.find_spec(names.get(name, name)) is None and ours:
        zipfile.ZipFile(wheel).extractall(sys.argv[2])
        print("unpacked:", wheel.name)
import numpy; print("numpy", numpy.__version__)
PYTHON
}

memory() { # log every second: time, MiB used on the GPU, MiB of main memory available
    local gpu
    while sleep 1; do
        gpu=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1)
        echo "$(date +%s) ${gpu:-0} $(awk '/MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)"
    done >"$OUT/memory.txt"
}

run() {
    local folder=$1
    WORK=$2 OUT=$3
    DEADLINE=${DEADLINE:-570}
    BACKEND=${BACKEND:-cuda} ARCH=${ARCH:-90-real} FLASH=${FLASH:-OFF}
    JOBS=${JOBS:-$(nproc)} THREADS=${THREADS:-$(nproc)} PROMPTS=${PROMPTS:-6} TOKENS=${TOKENS:-64}
    SIZES=${SIZES:-1-16,24,32,48,64} QUANTS=${QUANTS:-Q4_0 F16}
    SHAPE=${SHAPE:---embed 4096 --ffn 14336 --kv-heads 8 --copies 14}
    mkdir -p "$WORK/home/models" "$WORK/wheels" "$WORK/site" "$OUT" || exit 1
    WORK=$(cd "$WORK" && pwd) OUT=$(cd "$OUT" && pwd) folder=$(cd "$folder" && pwd)
    CUBLAS=
    if [ "$BACKEND" = cuda ]; then
        export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
        export PATH=$PATH:$CUDA_HOME/bin
        CUBLAS=$(cublas)
        export LD_LIBRARY_PATH=$CUDA_HOME/lib64${CUBLAS:+:$(dirname "$CUBLAS")}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
    export CUBLAS WORK OUT BACKEND ARCH FLASH JOBS THREADS PROMPTS TOKENS SIZES python # parts are processes
    say "$(date -u +%FT%TZ) $(uname -m), $(nproc) cores, $BACKEND"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | tee -a "$OUT/summary.txt"
    (cd "$folder" && sha256sum --quiet --check SHA256SUMS) || die "$folder is incomplete; copy it again"

    tar xJf "$folder/source.tar.xz" -C "$WORK" || die "the source cannot be unpacked"
    tar xf "$folder/wheels.tar" -C "$WORK/wheels"
    cat "$folder"/model.part* >"$WORK/home/models/SmolLM2-135M-Instruct.Q4_1.gguf"
    export VIA_SD_HOME=$WORK/home PYTHONPATH=$WORK/site:$WORK/checkout PYTHONUNBUFFERED=1
    cd "$WORK/checkout" || exit 1
    part packages 30 packages
    if [ -f "$folder/libraries.tar.xz" ]; then
        tar xJf "$folder/libraries.tar.xz" -C via_sd_local && say "libraries: taken from the packed folder"
    else
        part build 280 build || die "the libraries could not be built; see $OUT/build.log"
    fi
    part doctor 20 "$python" -m via_sd_local.cli doctor
    memory &
    local watching=$!
    trap "kill $watching 2>/dev/null" EXIT
    part example-build 150 example &
    local compiling=$!

    part tests 60 "$python" -m pytest -q -p no:cacheprovider -W default tests/native/test_layer_skip.py \
        tests/native/test_kv_cache.py tests/native/test_placement.py \
        -k "not (real and gemma)" --deselect \
        "tests/native/test_layer_skip.py::test_an_empty_mask_equals_a_library_whose_mask_was_never_set[gemma]"
    part overhead 60 "$python" bench/overhead.py --rounds 3
    local quant verifier draft mask
    for quant in $QUANTS; do
        # shellcheck disable=SC2086
        part "testbed-$quant" 100 "$python" -m via_sd_local.cli testbed build $SHAPE --quant "$quant" --quiet --json
        read -r verifier draft mask < <("$python" -c "
import json
try:
    made = json.loads(open('$OUT/testbed-$quant.log').read().strip().splitlines()[-1])
    print(made['verifier'], made['draft'], made['mask'])
except (OSError, ValueError, IndexError):
    pass")
        [ -n "${verifier:-}" ] || { say "$quant: no testbed, so nothing is measured"; continue; }
        part "staircase-$quant" 60 "$python" bench/staircase.py --verifier "$verifier" --mask "$mask" \
            --sizes "$SIZES" --repeat 3 --threads "$THREADS"
        part "modes-$quant" 120 "$python" bench/modes.py --verifier "$verifier" --draft "$draft" --mask "$mask" \
            --fidelity --prompts "$PROMPTS" --tokens "$TOKENS" --threads "$THREADS" \
            --configs plain sd sd:3 sd:7 sd:15 exact tiered@0.01 tiered@0.05 tiered@0.12
        wait "$compiling"
        if [ -x "$WORK/example/example/llama-speculative-simple" ]; then # it loads the models anew for every answer
            part "speculative-$quant" 120 "$python" bench/llama_speculative.py --verifier "$verifier" --draft "$draft" \
                --program "$WORK/example/example/llama-speculative-simple" --threads "$THREADS" \
                --lengths 3 7 15 --prompts 3 --tokens "$TOKENS"
        fi
    done
    kill "$watching" 2>/dev/null
    say "memory: at most $(awk '$2 > m { m = $2 } END { print m + 0 }' "$OUT/memory.txt") MiB on the GPU, at least" \
        "$(awk 'NR == 1 || $3 < m { m = $3 } END { print m + 0 }' "$OUT/memory.txt") MiB of main memory free"
    say "$(date -u +%FT%TZ) all parts finished after $SECONDS s"
}

export -f build example packages
case "${1:-}" in
    pack) [ $# -eq 2 ] || die "pack takes one folder"; pack "$2" ;;
    run) [ $# -eq 4 ] || die "run takes the packed folder, one to work in, and one for results"; run "$2" "$3" "$4" ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

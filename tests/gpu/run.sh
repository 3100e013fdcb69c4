#!/usr/bin/env bash
# Everything that needs a GPU, given what tests/gpu/pack.sh built:
#
#   tests/gpu/run.sh                  every step
#   tests/gpu/run.sh part1            one of the parts that fit ten minutes each (part1 to part11)
#   tests/gpu/run.sh stress peers     single steps; `tests/gpu/run.sh list` names them
#
# Needs nvcc, a C compiler and a Python with PyTorch, CuPy, Numba, cuda.core and NumPy. Each step's output goes to the screen and, where
# OUT is set, to $OUT/gpu.log; the figures as JSON lines to $OUT/figures.jsonl. Ends with `N passed, N failed, N skipped`.
#
# The *_suite steps run tests of the frameworks themselves; what their wheels lack is looked for in $FOREBAY_UPSTREAM (.upstream): torch/ with
# test_cuda.py and test_cuda_trace.py of PyTorch's source, site/ with expecttest, cupy/tests of CuPy's source. Without it they are
# skipped. Numba's tests are in its wheel, and import filecheck.
set -uo pipefail
cd "$(dirname "$0")/../.."

BIN=${FOREBAY_GPU_DIR:-target/gpu}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
LOG=${OUT:-$WORK}/gpu.log
FIGURES=${OUT:-$WORK}/figures.jsonl
PY=examples/python-ctypes
STRESS_SECONDS=${STRESS_SECONDS:-180}
# Each fits ten minutes.
PARTS=(
  "conformance abi captures c_examples cpp exit_fork cupy_arrays torch_and_cupy torch_graph exceptions train_text train_graph"
  "replay memcheck sabotage stress"
  "resources python pinned_devices interchange resource_costs cuda_core plugins"
  "torch"
  "torch_compile"
  "frameworks columns"
  "workloads_training"
  "workloads_rest"
  "torch_suite cupy_suite"
  "numba_suite"
  "peers"
)
UPSTREAM=${FOREBAY_UPSTREAM:-.upstream}

export FOREBAY_DRIVER=cuda FOREBAY_TEST_DRIVER=cuda
export FOREBAY_LIBRARY="$PWD/$BIN/libforebay.so" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

passed=0
failed=()
skipped=()

# run NAME SECONDS COMMAND...: one check, with its time and its verdict. 77, "skipped", is a failure here.
run() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  printf '\n== %s\n' "$name" | tee -a "$LOG"
  timeout --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$LOG"
  code=${PIPESTATUS[0]}
  if [ "$code" = 0 ]; then
    passed=$((passed + 1))
    echo "PASS $name ($((SECONDS - start)) s)" | tee -a "$LOG"
  else
    failed+=("$name")
    [ "$code" = 124 ] && code="time limit of $limit s"
    echo "FAIL $name ($((SECONDS - start)) s, exit $code)" | tee -a "$LOG"
  fi
}

# carried FOLDER NAME SECONDS COMMAND...: as run, and skipped where FOLDER is not there.
carried() {
  if [ -d "$1" ]; then
    run "${@:2}"
  else
    skipped+=("$2: there is no $1")
    printf '\n== %s\nSKIP %s: there is no %s; FOREBAY_UPSTREAM names its parent folder\n' "$2" "$2" "$1" | tee -a "$LOG"
  fi
}

# two_gpus NAME SECONDS COMMAND...: as run, and skipped on a machine with fewer.
two_gpus() {
  if [ "$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)" -ge 2 ]; then
    run "$@"
  else
    skipped+=("$1: two GPUs are needed")
    printf '\n== %s\nSKIP %s: two GPUs are needed\n' "$1" "$1" | tee -a "$LOG"
  fi
}

# figures NAME SECONDS COMMAND...: as run, but JSON lines go to the file of figures and not to the screen.
figures() {
  run "$1" "$2" bash -o pipefail -c '"$@" | tee >(grep --line-buffered "^{" >>"$FIGURES") | grep --line-buffered -v "^{"' figures "${@:3}"
}
export FIGURES

c_program() { # SOURCE: builds it into $WORK
  "${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -Iinclude "$1" -o "$WORK/$(basename "$1" .c)" \
    -L"$BIN" -lforebay -pthread -Wl,-rpath,"$PWD/$BIN"
}

nvcc_program() { # SOURCE OPTIONS...: builds it into $WORK, with the CCCL that nvcc knows unless the options name another
  local name
  name=$(basename "$1")
  nvcc -O2 -Iinclude "${@:2}" "$1" -o "$WORK/${name%.*}" -L"$BIN" -lforebay -Xlinker -rpath -Xlinker "$PWD/$BIN"
}
cuda_program() { nvcc_program "$1" -std=c++17 -arch=native; } # SOURCE
cpp_program() { nvcc_program "$@" -Xcompiler -pthread; }      # SOURCE OPTIONS...

# ---- the steps: each is a name for the command line and one or more checks -----------------------------------------

step_conformance() { run "driver conformance on CUDA" 120 "$BIN/driver_conformance"; }

step_abi() { run "C ABI tests on CUDA" 200 "$BIN/abi" --test-threads=1; }

step_captures() {
  cuda_program tests/gpu/captures.cu
  run "captures that nobody announced" 60 "$WORK/captures"
}

step_c_examples() {
  local source
  for source in examples/c/*.c; do
    c_program "$source"
    run "$source" 60 "$WORK/$(basename "$source" .c)"
  done
}

step_cpp() {
  local rmm logger
  cpp_program tests/cpp/memory_resource.cc -std=c++17
  run "forebay.hpp" 60 "$WORK/memory_resource"
  if ! rmm=$(python3 -c 'import librmm, os; print(os.path.dirname(librmm.__file__))' 2>/dev/null); then
    skipped+=("tests/gpu/rmm_resource.cc: there is no librmm")
    return
  fi
  logger=$(dirname "$rmm")/rapids_logger
  cpp_program tests/gpu/rmm_resource.cc -std=c++20 -I"$rmm/include/rapids" -I"$rmm/include" -I"$logger/include" -L"$rmm/lib64" -lrmm \
    -L"$logger/lib64" -lrapids_logger -Xlinker -rpath -Xlinker "$rmm/lib64" -Xlinker -rpath -Xlinker "$logger/lib64"
  figures "tests/gpu/rmm_resource.cc" 60 "$WORK/rmm_resource"
}

step_exit_fork() {
  local how
  c_program tests/c/exit_fork.c
  for how in fork exit late; do run "exit_fork $how" 60 "$WORK/exit_fork" "$how"; done
}

step_cupy_arrays() { run "$PY/cupy_arrays.py" 90 python3 "$PY/cupy_arrays.py"; }
step_torch_and_cupy() { run "$PY/torch_and_cupy.py" 90 python3 "$PY/torch_and_cupy.py"; }
step_torch_graph() { run "$PY/torch_graph.py" 120 python3 "$PY/torch_graph.py"; }
step_exceptions() { run "$PY/exceptions.py" 180 python3 "$PY/exceptions.py"; }

train() {
  figures "$PY/torch_train.py --model $1" 280 python3 "$PY/torch_train.py" --model "$1" --size full --check --json
}
step_train_text() { train text; }
step_train_graph() { train graph; }

step_replay() { run "replay on CUDA" 60 "$BIN/replay-example" examples/replay/small.csv.gz; }

step_memcheck() {
  local source
  # Under the sanitizer not every variable reaches a child, of which one test is about.
  run "memcheck: C ABI tests" 300 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
    "$BIN/abi" --test-threads=1 --skip without_a_gpu --skip without_a_driver --skip a_variable_that_means_nothing
  for source in examples/c/*.c; do
    c_program "$source"
    # An example that asks for too much on purpose is no error.
    run "memcheck: $source" 120 compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
      "$WORK/$(basename "$source" .c)" 4 500
  done
}

stress_program() { [ -x "$WORK/stress" ] || cuda_program tests/gpu/stress.cu; }
step_stress() {
  stress_program
  run "stress, $STRESS_SECONDS s" $((STRESS_SECONDS + 60)) "$WORK/stress" "$STRESS_SECONDS"
}
step_sabotage() {
  stress_program
  run "stress notices a broken rule" 60 "$WORK/stress" 10 8 2 --sabotage
}

step_frameworks() { figures "benches/frameworks/latency.py" 420 python3 benches/frameworks/latency.py --json --rounds 2; }
workloads() { run "benches/frameworks/workloads.py: $1" 580 python3 benches/frameworks/workloads.py --all --workload "$1"; }
step_workloads_training() { workloads text,graph,image; }
step_workloads_rest() { workloads serve,moe; }

step_resources() { run "resources, buffers and IPC through the C ABI" 300 "$BIN/resources" --test-threads=1; }

step_python() {
  local name
  run "tests of the Python package" 300 env PYTHONPATH="$PWD/python" \
    python3 -X faulthandler -W error::RuntimeWarning -m unittest discover -s tests/python -t tests/python
  for name in buffers share grow; do
    run "examples/python/$name.py" 90 env PYTHONPATH="$PWD/python" python3 "examples/python/$name.py"
  done
}
step_torch() { run "tests/gpu/torch/all.py" 580 python3 tests/gpu/torch/all.py --without compile; }
step_torch_compile() { run "tests/gpu/torch/compile.py" 580 python3 tests/gpu/torch/all.py compile; }
step_columns() { run "tests/gpu/torch/columns.py" 240 python3 tests/gpu/torch/columns.py; }
step_plugins() {
  figures "tests/gpu/plugins/all.py" 520 env PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}" python3 tests/gpu/plugins/all.py
}
step_pinned_devices() { two_gpus "tests/gpu/pinned_devices.py" 180 python3 -X faulthandler tests/gpu/pinned_devices.py; }
step_interchange() { run "tests/gpu/interchange.py" 180 python3 -X faulthandler tests/gpu/interchange.py; }

step_resource_costs() {
  cuda_program benches/gpu/resources.cu
  figures "benches/gpu/resources" 120 "$WORK/resources" --json
}
step_peers() { run "benches/peers/run.py" 580 python3 benches/peers/run.py; }
step_cuda_core() { figures "benches/gpu/cuda_core.py" 200 python3 benches/gpu/cuda_core.py --json; }

step_torch_suite() {
  carried "$UPSTREAM/torch" "tests/gpu/torch/suite.py" 400 python3 tests/gpu/torch/suite.py "$UPSTREAM"
}
step_cupy_suite() {
  carried "$UPSTREAM/cupy" "tests/gpu/plugins/cupy_suite.py" 390 python3 tests/gpu/plugins/cupy_suite.py "$UPSTREAM"
}
step_numba_suite() {
  run "tests/gpu/plugins/numba_suite.py" 580 env PYTHONPATH="$PWD/python${PYTHONPATH:+:$PYTHONPATH}" python3 tests/gpu/plugins/numba_suite.py
}

# ---- which of them --------------------------------------------------------------------------------------------------

steps=()
for word in "${@:-all}"; do
  case $word in
    all) read -ra more <<<"${PARTS[*]}"; steps+=("${more[@]}") ;;
    part[1-9] | part1[0-9])
      number=${word#part}
      [ "$number" -le ${#PARTS[@]} ] || { echo "no $word; there are part1 to part${#PARTS[@]}" >&2; exit 2; }
      read -ra more <<<"${PARTS[number - 1]}"; steps+=("${more[@]}") ;;
    list) for number in "${!PARTS[@]}"; do echo "part$((number + 1)): ${PARTS[number]}"; done; exit 0 ;;
    *) declare -F "step_$word" >/dev/null || { echo "no step $word; try: $0 list" >&2; exit 2; }
       steps+=("$word") ;;
  esac
done

[ -e "$BIN/libforebay.so" ] || { echo "no $BIN/libforebay.so: run tests/gpu/pack.sh and carry $BIN" >&2; exit 2; }
ln -sf libforebay.so "$BIN/libforebay.so.0.1" # the SONAME: what a linked program looks for
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$LOG"
for step in "${steps[@]}"; do "step_$step"; done

echo
[ ${#failed[@]} = 0 ] || printf 'failed: %s\n' "${failed[@]}" | tee -a "$LOG"
[ ${#skipped[@]} = 0 ] || printf 'skipped: %s\n' "${skipped[@]}" | tee -a "$LOG"
echo "$passed passed, ${#failed[@]} failed, ${#skipped[@]} skipped" | tee -a "$LOG"
[ ${#failed[@]} = 0 ]

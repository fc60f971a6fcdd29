#!/usr/bin/env bash
# Proves the CUDA backend on a host with a GPU, from the folder that deploy/bundle.sh made, in less
# than 8 minutes, without a package registry; ends with one table. Nothing is left out silently: a
# row says SKIPPED and why.
#   bash check.sh            all
#   bash check.sh --keep     leaves the working folder
#   OUT=FOLDER bash check.sh packs what is printed and all logs into FOLDER/check.tar.gz, however it ends
#   bash check.sh --processes FOLDER     only the rows of several processes, with the programs of
#                            FOLDER and a job a hundredth the size: for the emulated device
#   bash check.sh --device FOLDER        only the row of the device
# Exit code 0: all rows passed or were skipped; 1: one failed, and the working folder is left;
# 2: wrong call; 77: no device here.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/host_libraries.sh"

# Steps of the jobs that are compared, and of the one in which a rank is killed.
steps=60 killed_steps=600 interval=100 kill_after=150 length=64 width=128
keep=false
case ${1:-} in
  "") ;;
  --keep) keep=true ;;
  --device | --processes)
    [[ -d ${2:-} ]] || { echo "check: $1 needs the folder of the programs" >&2; exit 2; }
    weft_bin=$2
    if [[ $1 == --processes ]]; then
      steps=8 killed_steps=8 interval=2 kill_after=4 length=16 width=32
    fi
    ;;
  *)
    echo "check: $1 is unknown; use --keep, --processes FOLDER or --device FOLDER" >&2
    exit 2
    ;;
esac
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-check-XXXXXX")
rows=()
failed=0
Leave() {
  PackResults check "$work"
  if $keep || ((failed)); then echo "check: logs are in $work"; else rm -rf "$work"; fi
}
trap Leave EXIT
KeepOutput "$work"

# Within SECONDS COMMAND...: ended after that many, or when eight minutes have passed in all.
ends_at=$((SECONDS + 470))
Within() {
  local left=$((ends_at - SECONDS)) most=$1
  shift
  ((left < most)) && most=$left
  ((most > 0)) || return 124
  timeout -k 5 "$most" "$@"
}

# Row NAME RESULT DETAIL
Row() {
  rows+=("$(printf '%-34s %-8s %s' "$1" "$2" "$3")")
  [[ $2 == FAILED ]] && failed=1
  echo "check: ${rows[-1]}"
}

# GoogleTests NAME SECONDS PROGRAM [ARGUMENT...]: passed, failed and skipped as the report counts.
GoogleTests() {
  local name=$1 seconds=$2 program=$3 log="$work/$1.log" code
  shift 3
  Within "$seconds" "$weft_bin/$program" "$@" >"$log" 2>&1
  code=$?
  local passed skipped last
  passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
  skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
  if ((code == 0 && ${passed:-0} == 0 && ${skipped:-0} > 0)); then
    Row "$name" SKIPPED "$(grep -m1 -A1 ': Skipped$' "$log" | tail -1)"
  elif ((code == 0 && ${passed:-0} > 0)); then
    Row "$name" passed "${passed:-0} passed, ${skipped:-0} skipped"
  elif ((code == 1)); then
    Row "$name" FAILED "$(grep -m1 '^\[  FAILED  \] .*[./]' "$log" || echo "no test ran")"
    grep -B12 '^\[  FAILED  \]' "$log" | head -60
  else  # it hung or crashed
    last=$(sed -n 's/^\[ RUN      \] //p' "$log" | tail -1)
    case $code in
      124 | 137) Row "$name" FAILED "not through in its time; in ${last:-no test yet}" ;;
      *) Row "$name" FAILED "ended with code $code in ${last:-no test yet}" ;;
    esac
    tail -15 "$log"
  fi
}

# Device NAME: that nvidia-smi lists one is not enough, the backend must get at it. Fails by the
# backend's words: the driver's version and the one that is needed, for instance.
Device() {
  local log=$work/device.log
  Within 60 "$weft_bin/gpu_test" --gtest_filter=CudaBackend.DescribesEveryDevice >"$log" 2>&1
  if grep -q '^\[  PASSED  \] 1 test' "$log"; then
    Row "device" passed "$1"
  else
    Row "device" FAILED "$(grep -m1 -o 'cuda: .*\|no CUDA device.*' "$log" || grep -m1 -A4 Failure "$log" | tail -1)"
    tail -15 "$log"
    return 1
  fi
}

# WriteJob FOLDER [DETERMINISTIC [STEPS]]: two ranks, byte tokens, a checkpoint every `interval`
# steps; deterministic unless said otherwise.
WriteJob() {
  mkdir -p "$1"
  local words=(the thread runs across warp and makes cloth of it loom)
  for i in $(seq 1 8000); do
    printf '%s ' "${words[$((i * i % 11))]}"
  done >"$1/text.txt"
  cat >"$1/job.yaml" <<YAML
job: {name: run, output_dir: $1}
model: {model_type: gpt2, vocab_size: 256, n_positions: $length, n_embd: $width, n_layer: 4, n_head: 4}
data: {format: bytes, train: [{path: $1/text.txt}]}
training: {seq_len: $length, global_batch_size: 8, micro_batch_size: 2, steps: ${3:-$steps}, seed: 7}
optimizer: {name: adamw, lr: 1.0e-3}
parallelism: {dp: 2, tp: 1, pp: 1, zero_stage: 0}
checkpoint: {interval: $interval}
metrics: {log_freq: 1}
deterministic: ${2:-true}
cluster: {profile: $1/cluster.yaml}
YAML
  cat >"$1/cluster.yaml" <<'YAML'
name: check
slots_per_node: 2
device:
  name: gpu
  backend: cuda
  memory_bytes: 8000000000
  library_bytes: 1000000000
  peak_flops_per_s: {fp32: 60e12}
  peak_memory_bytes_per_s: 4e12
  efficiency: {matmul_fp32: 0.7, attention: 0.5, streaming: 0.9}
  op_overhead_s: 4e-6
intra_node: {latency_s: 1e-5, bytes_per_s: 20e9}
inter_node: {latency_s: 1e-5, bytes_per_s: 20e9}
YAML
}

# Losses FOLDER [STEPS]: each step and its loss's bits, of the first STEPS; what was done twice, and
# differently, is there twice.
Losses() {
  sed -n 's/.*"step":\([0-9]*\),.*"loss_hex":"\([^"]*\)".*/\1 \2/p' "$1"/run/metrics.jsonl |
    sort -u | sort -n | awk -v most="${2:-$killed_steps}" '$1 <= most'
}

# SameLosses FOLDER FOLDER STEPS: all of them there, and the same to the bit.
SameLosses() {
  local first
  first=$(Losses "$1" "$3")
  (($(wc -l <<<"$first") == $3)) && [[ $first == "$(Losses "$2" "$3")" ]]
}

# The same as decimal numbers.
Curve() {
  sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$1"/run/metrics.jsonl | head -"$steps"
}

# What rank 0's log says of the way between ranks.
Reached() {
  sed -n 's/.*ranks are reached by //p' "$1"/run/logs/generation-1/rank-0.log | tail -1
}

# The same job twice, as two processes that share the GPU: left alone, and with a rank killed in
# the middle. The losses of all steps must agree to the bit.
LeftAlone() {
  local a=$work/left_alone name="two processes, one GPU"
  WriteJob "$a" true "$killed_steps"
  export WEFT_SHARE_DEVICES=1  # of this row and those after it
  if ! Within 90 "$weft_bin/weft" run "$a/job.yaml" >"$a/out" 2>&1; then
    Row "$name" FAILED "$(Cause "$a/out")"
  elif (($(Losses "$a" | wc -l) == killed_steps)); then
    Row "$name" passed "$killed_steps steps; $(Reached "$a")"
  else
    Row "$name" FAILED "$(Losses "$a" | wc -l) of $killed_steps steps are in metrics.jsonl"
  fi
}

# The rank that takes the file away as it reports step kill_after kills itself by the kernel's SIGKILL
# (process/failpoint.h): a kill from outside might come after the job's end.
KillAndResume() {
  local a=$work/left_alone b=$work/killed name="kill -9 and resume" code=0
  WriteJob "$b" true "$killed_steps"
  : >"$b/alive"
  WEFT_FAILPOINT=rank.report_step:$kill_after:$b/alive Within 120 "$weft_bin/weft" run "$b/job.yaml" \
    >"$b/out" 2>&1 || code=$?
  if ((code != 0)); then
    Row "$name" FAILED "$(Cause "$b/out")"
  elif [[ -e $b/alive || ! -d $b/run/logs/generation-2 ]]; then
    Row "$name" FAILED "no rank was killed"
  elif SameLosses "$a" "$b" "$killed_steps"; then
    Row "$name" passed "deterministic: the same losses to the bit"
  else
    Row "$name" FAILED "losses differ from those of the run that was left alone"
  fi
}

# TimedProducts: the job once more with the algorithms of products that are fastest here. Losses may
# differ by rounding, which sixty steps make grow: a thousandth at most.
TimedProducts() {
  local a=$work/left_alone d=$work/timed name="products timed" steps_and_worst
  WriteJob "$d" false
  if ! Within 90 "$weft_bin/weft" run "$d/job.yaml" >"$d/out" 2>&1; then
    Row "$name" FAILED "$(Cause "$d/out")"
    return
  fi
  steps_and_worst=$(paste <(Curve "$a") <(Curve "$d") | awk '
    NF == 2 {apart = ($1 - $2) / $1; apart = apart < 0 ? -apart : apart; steps++}
    NF == 2 && !(apart <= worst) {worst = apart}
    END {printf "%d %.1e", steps, worst}')
  if awk -v steps="$steps" '{exit !($1 == steps && $2 <= 1e-3)}' <<<"$steps_and_worst"; then
    Row "$name" passed "losses within ${steps_and_worst#* } of the deterministic ones"
  else
    Row "$name" FAILED "steps and worst relative difference of losses: $steps_and_worst"
  fi
}

# Graphs: the job once more with passes that are replayed from CUDA graphs: the same kernels in the
# same order, so the same losses to the bit.
Graphs() {
  local a=$work/left_alone g=$work/graphs name="CUDA graphs" by
  WriteJob "$g"
  if ! WEFT_CUDA_GRAPHS=1 Within 90 "$weft_bin/weft" run "$g/job.yaml" >"$g/out" 2>&1; then
    Row "$name" FAILED "$(Cause "$g/out")"
    return
  fi
  by=$(sed -n 's/.*passes are replayed by //p' "$g"/run/logs/generation-1/rank-0.log | tail -1)
  if ! [[ $by =~ ^CUDA\ graphs\ of\ [1-9][0-9]*\ stretches$ ]]; then
    Row "$name" FAILED "the log says of replays: ${by:-nothing}"
  elif SameLosses "$a" "$g" "$steps"; then
    Row "$name" passed "$by; the same losses as without to the bit"
  else
    Row "$name" FAILED "losses differ from those without"
  fi
}

# NcclOnOneGpu: the job once more over NCCL, which takes ranks that share a GPU only if they say that
# they are on different hosts. Two ranks add in either order alike: the same losses to the bit.
NcclOnOneGpu() {
  local a=$work/left_alone c=$work/nccl name="NCCL, two ranks on one GPU" why
  WriteJob "$c"
  mkdir -p "$work/bin"
  cp -L "$weft_bin"/weft* "$weft_bin"/libweft_cuda.so "$work/bin/"
  mv "$work/bin/weft-worker" "$work/bin/weft-worker-itself"
  cat >"$work/bin/weft-worker" <<'WORKER'
#!/usr/bin/env bash
export NCCL_HOSTID=weft-rank-${WEFT_RANK:-0}
exec "$(dirname "${BASH_SOURCE[0]}")/weft-worker-itself" "$@"
WORKER
  chmod +x "$work/bin/weft-worker"
  local settings=(WEFT_TRANSPORT=nccl NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_RAS_ENABLE=0
    NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_DEBUG=WARN)
  if ! Within 60 env "${settings[@]}" "$work/bin/weft" run "$c/job.yaml" >"$c/out" 2>&1; then
    why=$(grep -h -o -m1 'Duplicate GPU.*\|NCCL does not load.*' "$c"/run/logs/*/rank-*.log "$c/out" 2>/dev/null | head -1)
    if [[ -n $why ]]; then
      Row "$name" SKIPPED "$why"
    else
      Row "$name" FAILED "$(Cause "$c/out")"
    fi
  elif ! Reached "$c" | grep -q '^NCCL.* sums in rank order'; then
    Row "$name" FAILED "ranks were reached by $(Reached "$c")"
  elif SameLosses "$a" "$c" "$steps"; then
    Row "$name" passed "the same losses as over mapped memory to the bit"
  else
    Row "$name" FAILED "losses differ from those over mapped memory"
  fi
}

Sanitizer() {
  local tool code
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)
  if [[ -z $tool ]]; then
    Row "compute-sanitizer" SKIPPED "it is not on this host"
    return
  fi
  # Of weft's kernels alone: cuBLASLt's are many, slow to instrument, and NVIDIA's to prove. Not what
  # calls return: one test asks for more pinned memory than there is, and libraries probe for what a
  # driver has.
  for check in memcheck racecheck; do
    local log=$work/$check.log wrong
    Within 100 "$tool" --tool "$check" --report-api-errors no --kernel-name kns=weft \
      --error-exitcode 9 "$weft_bin/gpu_test" \
      --gtest_filter='*Ops*:*Norm*:*CrossEntropy*:*Attention*:*Adamw*:*Fp8*-*MatMul*:*SameBits*:*Cudnn*' \
      >"$log" 2>&1
    code=$?
    wrong=$(grep -m1 -E '=========.*(Invalid|Race|hazard|Uninitialized)' "$log")
    if grep -q 'Device not supported' "$log"; then
      Row "compute-sanitizer $check" SKIPPED "it does not support this device or sandbox"
    elif [[ -n $wrong ]]; then
      Row "compute-sanitizer $check" FAILED "$wrong"
    elif ((code == 0)) && grep -q '^\[  PASSED  \] [1-9]' "$log"; then
      Row "compute-sanitizer $check" passed "no errors in $(grep -c '^\[       OK' "$log") tests"
    elif ((code == 124 || code == 137)); then
      Row "compute-sanitizer $check" SKIPPED "not through in its time; no errors in $(grep -c '^\[       OK' "$log") tests"
    else
      Row "compute-sanitizer $check" FAILED "code $code; $(grep -m1 -E 'ERROR SUMMARY|FAILED' "$log" || tail -1 "$log")"
    fi
  done
}

if [[ ${1:-} == --processes ]]; then
  LeftAlone
  KillAndResume
  TimedProducts
  Graphs
  NcclOnOneGpu
  exit $failed
fi
if [[ ${1:-} != --device ]]; then
  UnpackBundle "$work"
  UseLibraries "$work" || exit 1
fi
if ! device=$(nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader 2>&1); then
  echo "check: no NVIDIA device here: $device"
  exit 77
fi
echo "check: $device"
# One device: threads of the tests read each other's memory, which those of several cannot unasked.
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
Device "$(head -1 <<<"$device")" || exit 1
[[ ${1:-} == --device ]] && exit 0
cat "$here/VERSION"
GoogleTests "operations" 120 gpu_test --gtest_filter='-*CudnnAttention*'
GoogleTests "attention by cuDNN" 120 gpu_test --gtest_filter='*CudnnAttention*-*OverDocuments*:*OverRuns*:*OverTheRuns*'
GoogleTests "the same over runs (cp)" 120 gpu_test --gtest_filter='*CudnnAttention*Over*Runs*'
GoogleTests "the same over documents" 120 gpu_test --gtest_filter='*CudnnAttention*OverDocuments*'
GoogleTests "NCCL, one rank" 60 gpu_layouts_test --gtest_filter='NcclOfOneRank.*'
GoogleTests "layouts, ranks as threads" 180 gpu_layouts_test --gtest_filter='-NcclOfOneRank.*'
LeftAlone
KillAndResume
TimedProducts
Graphs
NcclOnOneGpu
Sanitizer
echo
printf '%s\n' "${rows[@]}"
exit $failed

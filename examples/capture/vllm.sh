#!/bin/sh
# Serves a model with vLLM, loads it with vLLM's own benchmark, and keeps what `bankwise calibrate` reads
# (docs/calibrate.md): bench.json, server.log, metrics.txt.
#   RATE=4 REQUESTS=400 PORT=8000 sh examples/capture/vllm.sh MODEL FOLDER [options of vllm serve ...]
set -eu
here=$(dirname "$0") model=$1 out=$2
shift 2
port=${PORT:-8000}
. "$here/serve.sh"
serve vllm serve "$model" --port "$port" "$@"
# lengths that differ tell more numbers from one another than equal ones
vllm bench serve --model "$model" --port "$port" --dataset-name random --random-input-len 1000 \
    --random-output-len 300 --random-range-ratio 0.9 --num-prompts "${REQUESTS:-400}" \
    --request-rate "${RATE:-4}" --save-result --save-detailed --result-dir "$out" --result-filename bench.json

#!/bin/sh
# The same with SGLang: bench.jsonl, server.log, metrics.txt. Its benchmark writes no times of arrival, so
# that all requests come at once.
#   REQUESTS=400 PORT=30000 sh examples/capture/sglang.sh MODEL FOLDER [options of sglang.launch_server ...]
set -eu
here=$(dirname "$0") model=$1 out=$2
shift 2
port=${PORT:-30000}
. "$here/serve.sh"
serve python3 -m sglang.launch_server --model-path "$model" --port "$port" --enable-metrics "$@"
python3 -m sglang.bench_serving --backend sglang --port "$port" --dataset-name random --random-input-len 1000 \
    --random-output-len 300 --random-range-ratio 0.1 --num-prompts "${REQUESTS:-400}" --request-rate inf \
    --output-details --output-file "$out/bench.jsonl"

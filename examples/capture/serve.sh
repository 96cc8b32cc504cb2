# Sourced by vllm.sh and sglang.sh, with $here, $port and $out: starts a server, waits until it answers, and
# writes its counters down while it runs. Both end with the script.
serve() {
    mkdir -p "$out"
    "$@" > "$out/server.log" 2>&1 &
    server=$!
    trap 'kill $server 2> /dev/null || true' EXIT
    until curl -sf "http://localhost:$port/health" > /dev/null; do
        kill -0 $server || { tail -n 20 "$out/server.log" >&2; exit 1; }
        sleep 2
    done
    python3 "$here/scrape.py" "http://localhost:$port/metrics" > "$out/metrics.txt" &
    scraper=$!
    trap 'kill $scraper $server 2> /dev/null || true' EXIT
}

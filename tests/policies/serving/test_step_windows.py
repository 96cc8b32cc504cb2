"""Are stretches of steps what a server's log says of them?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.requests.request_log import LoggedTimes, read_request_log
from policies.serving.step_windows import of_requests, read_counters

CAPTURE = Path(__file__).resolve().parents[3] / "examples/capture"
VLLM = """(EngineCore) INFO 07-01 10:00:{0}0 [loggers.py:1] Engine 000: Avg prompt throughput: \
{1} tokens/s, Avg generation throughput: {2} tokens/s, Running: {3} reqs, Waiting: 0 reqs, \
GPU KV cache usage: {4}%, Prefix cache hit rate: 0.0%
"""
SGLANG = """[2026-07-01 10:00:00 TP0] Decode batch, #running-req: 8, #token: 4000, token usage: \
0.10, cuda graph: True, gen throughput (token/s): 400.00, #queue-req: 0
[2026-07-01 10:00:01 TP0] Prefill batch, #new-seq: 1, #new-token: 1024, #cached-token: 0, \
token usage: 0.10, #running-req: 8, #queue-req: 0
[2026-07-01 10:00:02 TP0] Decode batch, #running-req: 9, #token: 5500, token usage: \
0.13, cuda graph: True, gen throughput (token/s): 300.00, #queue-req: 0
"""
EXPOSED = """# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{{engine="0",model_name="m"}} 10.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.5
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {0}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {1}
"""


def test_a_request_is_a_stretch_with_what_others_do_meanwhile() -> None:
    times = LoggedTimes(
        np.zeros(2), np.array([0.0, 5.0]), np.array([10.0, 15.0]), np.array([100, 200]),
        np.array([21, 41]),
    )  # fmt: skip
    first, second = of_requests(times)
    assert (first.end_s, first.seconds, first.steps, first.prompt_tokens) == (10, 10, 20, 200)
    assert first.batch == 1.5  # the second runs half of the time
    assert first.context == pytest.approx(100 + 10 + 0.5 * (200 + 10))
    assert second.prompt_tokens == 0


def test_lines_of_vllm(tmp_path: Path) -> None:
    text = "".join(VLLM.format(*each) for each in [
        (1, 0.0, 500.0, 10, 40.0), (2, 100.0, 400.0, 10, 60.0), (3, 0.0, 0.0, 0, 0.0),
    ])  # fmt: skip
    (found,) = read_counters(text, tmp_path, 1000)
    assert (found.seconds, found.steps, found.batch) == (10, 400, 10)
    assert (found.context, found.prompt_tokens) == (500, 1000)


def test_lines_of_sglang(tmp_path: Path) -> None:
    first, second = read_counters(SGLANG, tmp_path, 1)
    assert (first.seconds, first.batch, first.context, first.prompt_tokens) == (0.8, 8, 4000, 0)
    assert (second.seconds, second.context, second.prompt_tokens) == (1.2, 5500, 1024)


def test_scrapes_are_taken_and_read(tmp_path: Path) -> None:
    class Server(BaseHTTPRequestHandler):
        asked = 0

        def do_GET(self) -> None:
            Server.asked += 1
            self.send_response(200)
            self.end_headers()
            text = EXPOSED.format(1000.0 * Server.asked, 5000.0 * Server.asked)
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("localhost", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://localhost:{server.server_port}/metrics"
        command = [sys.executable, str(CAPTURE / "scrape.py"), url, "0.05", "4"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        server.shutdown()
    found = read_counters(text, tmp_path, 4000)
    assert len(found) == 2  # from the second of three differences on
    assert found[0].steps == pytest.approx(500) and found[0].prompt_tokens == pytest.approx(1000)
    assert (found[0].batch, found[0].context) == (10, 2000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing of the kind\n1\n", "expected a request log"),
        ("# scraped_at 1.0\nup 1\n", "no prompt_tokens_total in the scrape at 1.0"),
        (VLLM.format(1, 0.0, 0.0, 0, 0.0), "no stretch of 16 steps"),
    ],
)
def test_what_is_no_log_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=why):
        read_counters(text, tmp_path / "log", 100)


BENCH = '{"input_lens": [9], "output_lens": [2], "ttfts": [0.1], "itls": [[0.1]]'


@pytest.mark.parametrize(
    ("script", "program", "starts", "option", "written"),
    [
        ("vllm.sh", "vllm", "serve", "--result-dir", "bench.json"),
        ("sglang.sh", "python3", "-m sglang.launch_server", "--output-file", "bench.jsonl"),
    ],
)
def test_a_capture_script_keeps_the_benchmark(
    script: str, program: str, starts: str, option: str, written: str, tmp_path: Path
) -> None:
    times = ', "start_times": [1.0]}' if program == "vllm" else ', "request_rate": Infinity}'
    stubs = {
        program: f"""case "$*" in
"{starts}"*) exec sleep 30;;
*scrape.py*) exit 0;;
esac
while [ "$1" != {option} ]; do shift; done
echo '{BENCH}{times}' > "{tmp_path}/out/{written}"
""",
        "curl": "exit 0\n",
    }
    for name, body in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(CAPTURE / script), "some/model", str(tmp_path / "out")]
    subprocess.run(command, env=environment, check=True, timeout=20)
    assert len(read_request_log(tmp_path / "out" / written).queued_s) == 1

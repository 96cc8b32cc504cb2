"""Do `models` and `model import` answer as a user types them?"""

from __future__ import annotations

import json
from pathlib import Path

from hwmodel.specs.transformer import load_model
from tests.hwmodel.specs.test_huggingface import CONFIGS
from tests.sweeps.cli.test_command_line import bankwise, refusal


def test_the_table_has_a_line_for_each_model(tmp_path: Path) -> None:
    done = bankwise("list", "models", "deepseek-v3", "gpt-oss-20b", "llama-2-7b", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for text in ("128 latent 576", "8 of 256 +shared, after 3", "671.03", "128 in 12", "32/32 x"):
        assert text in done.stdout
    every = bankwise("list", "models", "--json", cwd=tmp_path)
    found = {each["name"]: each for each in json.loads(every.stdout)["models"]}
    assert len(found) >= 20
    gemma = found["gemma-3-27b"]
    assert gemma["kv_bytes_a_token"] == 496 * 1024 and gemma["window_layers"] == 52
    held = 10 * 131072 + 52 * 1024
    assert gemma["kv_bytes_at_longest"] == held * 496 * 1024 // 62
    assert found["llama-2-7b"]["weight_bytes"]["bf16"] == 2 * 6_738_415_616
    assert found["mixtral-8x7b-v0.1"]["active_parameters"] == 12_879_925_248


def test_a_model_is_listed_with_overrides(tmp_path: Path) -> None:
    done = bankwise("list", "models", "llama-2-7b", "--json", "--set", "layers=1", cwd=tmp_path)
    assert json.loads(done.stdout)["models"][0]["layers"] == 1


def test_an_import_is_a_model_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIGS["deepseek-v3"], "rope_theta": 1e4, "novelty": [1]}))
    done = bankwise("new", "model", "config.json", "--name", "mine", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for line in (
        "num_hidden_layers        understood      layers",
        "rope_theta               ignored         rotary positions have no parameters",
        "novelty                  not understood  [1]",
        "wrote mine.yaml",
    ):
        assert line in done.stdout
    assert bankwise("check", "mine.yaml", cwd=tmp_path).returncode == 0
    model = load_model(str(tmp_path / "mine.yaml"))
    assert model.parameters == load_model("deepseek-v3").parameters
    assert "mine.yaml: exists" in refusal(
        "new", "model", "config.json", "--name", "mine", cwd=tmp_path
    )
    done = bankwise(
        "new", "model", "config.json", "--name", "a", "--out", "b.yaml", "--json", cwd=tmp_path
    )
    found = json.loads(done.stdout)
    assert found["file"] == "b.yaml" and found["unknown"] == {"novelty": [1]}

"""What a trained length predictor is worth, as a section."""

from __future__ import annotations

from typing import Any

from sweeps.sections.section import Grid, Say, Section


def sheet(report: dict[str, Any]) -> Section:
    """Accuracy against what it has to beat, coverage, calibration and inference time."""
    about = (
        f"{report['file']}: trained on {report['trained_on']:,} answers in"
        f" {report['train_wall_s']:.0f} s, judged on {report['held_out']:,} to other prompts"
    )
    rivals, error = report["accuracy_of"], report["log_error"]
    rows = [
        [
            f"{classes} equal classes", _share(right), _share(rivals["always_the_median"][classes]),
            _share(rivals["lognormal_of_the_same_spread"][classes]), "–",
        ]
        for classes, right in report["accuracy"].items()
    ]  # fmt: skip
    rows += [
        [f"classes of {name}", _share(item["accuracy"]), "–", "–", _share(item["bert"])]
        for name, item in report["like_bert"].items()
    ]
    columns = ["right", "trained", "always the median", "lognormal, same spread", "BERT, on chat"]
    errors = (
        f"ln(true / predicted): mean {error['mean']:+.3f}, standard deviation {error['sd']:.3f},"
        f" mean size {error['mean_absolute']:.3f} (the median alone:"
        f" {report['log_error_of_the_median']:.3f})"
    )
    coverage = [[_share(float(x)), _share(share)] for x, share in report["coverage"].items()]
    found = report["calibration_of_u"]
    fifths = [[f"{row['u']:.2f}", _share(row["said"]), _share(row["right"])]
              for row in found["fifths"]]  # fmt: skip
    inference = [[size, f"{1e3 * s:.3f}"] for size, s in report["inference_s_per_request"].items()]
    return Section("A length predictor", [
        Say(about), Grid("", columns, rows), Say(errors),
        Grid("", ["quantile", "true lengths below"], coverage),
        Grid("", ["u, a fifth each", "likeliest of 4 classes said", "right"], fifths),
        Say(f"mean gap of the two: {_share(found['expected_error'])}"),
        Grid("", ["prompts at once", "ms each"], inference),
    ])  # fmt: skip


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"

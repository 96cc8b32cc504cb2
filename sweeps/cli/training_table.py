"""What a trained length predictor is worth, on the screen."""

from __future__ import annotations

from typing import Any

from sweeps.report.screen import print_table


def show_training(report: dict[str, Any]) -> None:
    """Accuracy against what it has to beat, coverage, calibration and inference time."""
    print(
        f"{report['file']}: trained on {report['trained_on']:,} answers in "
        f"{report['train_wall_s']:.0f} s, judged on {report['held_out']:,} to other prompts\n"
    )
    rivals = report["accuracy_of"]
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
    print_table(columns, rows)
    error = report["log_error"]
    print(
        f"\nln(true / predicted): mean {error['mean']:+.3f}, standard deviation {error['sd']:.3f}, "
        f"mean size {error['mean_absolute']:.3f} (the median alone: "
        f"{report['log_error_of_the_median']:.3f})\n"
    )
    print_table(
        ["quantile", "true lengths below"],
        [[_share(float(level)), _share(share)] for level, share in report["coverage"].items()],
    )
    print()
    found = report["calibration_of_u"]
    print_table(
        ["u, a fifth each", "likeliest of 4 classes said", "right"],
        [[f"{row['u']:.2f}", _share(row["said"]), _share(row["right"])] for row in found["fifths"]],
    )
    print(f"\nmean gap of the two: {_share(found['expected_error'])}\n")
    print_table(
        ["prompts at once", "ms each"],
        [[size, f"{1e3 * each:.3f}"] for size, each in report["inference_s_per_request"].items()],
    )


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"

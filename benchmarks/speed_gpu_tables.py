"""The records of ``h200_speed.py`` and ``h200_fused.py`` as tables."""

from __future__ import annotations

from typing import Any


def gpu_markdown(record: dict[str, Any]) -> list[str]:
    """Put a GPU record into tables; a section that failed says so."""
    lines = [f"{record['machine']}, torch {record['torch']}; {record['date'][:10]}, commit {record['commit']}."]
    if "fused" in record:  # the same networks, and the kernel beside the others
        record = {**record, "real": record["fused"]["real"]}
    shown = (
        ("ceilings", ceilings),
        ("fit", fits),
        ("score", scores),
        ("fused", fused),
        ("real", real),
    )
    for name, show in shown:
        section = record.get(name)
        if section:
            failed = ["", f"{name}: failed."]
            lines += failed if "error" in section else ["", *show(section)]
    return lines


def ceilings(section: dict[str, Any]) -> list[str]:
    kinds = [kind for kind in section if kind != "copy"]
    shapes = list(section[kinds[0]])
    copied = section["copy"]["bytes_per_second"]
    return [
        f"**Ceilings**, TFLOP/s of matrix products; copying moves {copied / 1e12:.2f} TB/s, reads and writes counted:",
        "",
        "| shape | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * len(kinds),
        *(
            f"| {shape} | " + " | ".join(f"{section[kind][shape]['tflops']:.1f}" for kind in kinds) + " |"
            for shape in shapes
        ),
    ]


def fits(section: dict[str, Any]) -> list[str]:
    lines = [
        "**Fit** in float64 of float32 rows, decomposition apart:",
        "",
        "| rows × features | milliseconds | TFLOP/s | of the ceiling | peak memory |",
        "|---|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {name} | {1e3 * one['median']:.2f} | {one['tflops']:.1f} | {100 * one['share_of_ceiling']:.0f} % "
        f"| {(one['peak_bytes'] or 0) / 1e9:.2f} GB |"
        for name, one in section.items()
    ]


def scores(section: dict[str, Any]) -> list[str]:
    lines = [
        f"**Score**, {section['rows']:,} × {section['width']}, {section['classes']} classes:",
        "",
        "| | milliseconds | million rows/s | TFLOP/s | of the ceiling | largest relative error | peak memory |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in section.items():
        if not isinstance(one, dict):
            continue
        if "error" in one:
            lines.append(f"| {name} | failed | | | | | |")
            continue
        cells = [f"{1e3 * one['median']:.2f}", f"{one['rows_per_second'] / 1e6:.1f}"]
        if "tflops" in one:
            cells += [f"{one['tflops']:.1f}", f"{100 * one['share_of_ceiling']:.0f} %"]
            cells += [f"{one['largest_relative_error']:.1e}", f"{(one['peak_bytes'] or 0) / 1e9:.2f} GB"]
        lines.append(f"| {name} | " + " | ".join(cells + [""] * (6 - len(cells))) + " |")
    return lines


def fused(record: dict[str, Any]) -> list[str]:
    """Put the ways of scoring in float16 and TF32 beside each other."""
    section = record["score"]
    ceilings = section["ceilings_tflops"]
    lines = [
        f"**Score in float16**, {section['rows']:,} × 512, 100 classes; {record['date']}, commit {record['commit']}. A",
        f"large square product ran at {ceilings['float16']:.0f} TFLOP/s in float16 and at {ceilings['tf32']:.0f} in",
        "TF32. The share of either counts the products that are needed. Differences are relative to float64:",
        "",
        "| | milliseconds | million rows/s | TFLOP/s | of float16's | of TF32's | median difference | largest |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in section.items():
        if isinstance(one, dict) and "median" in one:
            shares = [f"{100 * one['tflops'] / ceilings[kind]:.0f} %" for kind in ("float16", "tf32")]
            lines.append(
                f"| {name} | {1e3 * one['median']:.2f} | {section['rows'] / one['median'] / 1e6:.0f} "
                f"| {one['tflops']:.0f} | {shares[0]} | {shares[1]} "
                f"| {one['median_relative_difference']:.1e} | {one['largest_relative_difference']:.1e} |"
            )
    return lines


def real(section: dict[str, Any]) -> list[str]:
    kinds = ("float32", "float32 as offered", "tf32", "float16 as offered")
    lines = [
        "**Networks**: largest difference from float64 of any AUROC, in points, and of any regret, relative to it:",
        "",
        "| network, scale | condition | in doubt | " + " | ".join(kinds) + " |",
        "|---|---:|---:|" + "---:|" * len(kinds),
    ]
    for name, one in section.items():
        cells = [
            f"{one[kind]['largest_auroc_difference']:.4f}; {one[kind]['largest_relative_difference']:.0e}"
            if kind in one
            else "not offered"
            for kind in kinds
        ]
        doubt = max(one["doubtful_share"].values())
        lines.append(f"| {name} | {one['condition']:.0e} | {100 * doubt:.1f} % | " + " | ".join(cells) + " |")
    return lines

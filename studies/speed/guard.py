"""What guarding adds to the time of a network, for a DenseNet and a vision transformer with random weights.

On a GPU a ResNet-101 for images of 224 pixels comes last, which would take a CPU an hour.

    python -m studies.speed.guard --out studies/speed/guard-cpu.json

Plain and guarded calls alternate in one process, both as they are or both compiled. Times are wall milliseconds of a
batch, decisions read; the overhead is the median over pairs of calls of what the guarded one took more, in percent of
the plain one.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import pnml
from pnml_bench import zoo
from pnml_bench.environment import environment
from pnml_bench.results import start_run

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 128
CLASSES = 10
PIXELS = {"resnet-101": 224}  # 32 for the others


class VisionTransformer(nn.Module):
    """Patches of 4×4 pixels, twelve layers of width 384, the mean of the tokens: the size of ViT-S."""

    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.place = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.layers(self.patch(x).flatten(2).transpose(1, 2) + self.place)
        logits: Tensor = self.head(self.norm(tokens.mean(dim=1)))
        return logits


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def measure(
    name: str, model: nn.Module, device: torch.device, layers: str, repeats: int, *, compiled: bool
) -> dict[str, Any]:
    """Time a network, plain and guarded, in turn."""
    model = model.to(device).eval()
    generator, pixels = torch.Generator().manual_seed(0), PIXELS.get(name, 32)

    def batch() -> Tensor:
        return torch.rand(BATCH, 3, pixels, pixels, generator=generator).to(device)

    images = batch()
    guard = pnml.guard(model, layers=layers).fit([batch() for _ in range(8)], progress=False)
    guard.calibrate([batch()], progress=False)
    alone: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model
    if compiled:
        guard.compile()

    def plain() -> None:
        with torch.no_grad():
            alone(images).argmax(dim=1).cpu()

    def guarded() -> None:
        result = guard(images)
        result.prediction.cpu()
        result.is_ood.cpu()

    for _ in range(10):
        plain(), guarded()
    pairs = [(milliseconds(plain, device), milliseconds(guarded, device)) for _ in range(repeats)]
    added = [100 * (b - a) / a for a, b in pairs]
    low, middle, high = quantiles(added, n=4)
    return {
        "network": name,
        "layers": layers,
        "watched": len(guard.layers),
        "compiled": compiled,
        "batch": BATCH,
        "pixels": pixels,
        "plain, ms": median(a for a, _ in pairs),
        "guarded, ms": median(b for _, b in pairs),
        "overhead, percent": middle,
        "overhead, quartiles": [low, high],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    label = f"cuda: {torch.cuda.get_device_name()}" if device.type == "cuda" else f"cpu: {environment()['cpu']}"
    run = start_run("python -m studies.speed.guard", label)
    torch.manual_seed(0)
    networks = {"densenet-bc-100": zoo.create("densenet-bc-100", CLASSES), "vision transformer": VisionTransformer()}
    if device.type == "cuda":
        networks["resnet-101"] = zoo.create("resnet-101", CLASSES)
    record = {
        "run": asdict(run),
        "threads": torch.get_num_threads(),
        "repeats": options.repeats,
        "guard": [
            measure(name, model, device, layers, options.repeats, compiled=compiled)
            for name, model in networks.items()
            for layers, compiled in (("auto", False), ("last", False), ("auto", True))
        ],
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()

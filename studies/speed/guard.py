"""What a guard costs, on networks with random weights: a call beside the plain pass, a fit, and its file.

    python -m studies.speed.guard --out studies/speed/guard-h200.json
    python -m studies.speed.guard --out guard-cpu.json --networks DenseNet-BC-100

A plain call reads the class to the host; a guarded one reads class, regret and decision. Both alternate in one process.
Times are wall milliseconds until the device is idle: medians, and of what a guarded call takes more than the plain one
before it the median and the quartiles over pairs. After the calls come fits beside plain passes over the same images,
and two models that are large in one way each: a decoder of width 4,096, and a layer of 100,000 channels.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import pnml
from pnml_bench import zoo
from pnml_bench.environment import environment
from pnml_bench.results import start_run
from pnml_bench.zoo.resnet import Bottleneck, ResNetImageNet
from pnml_bench.zoo.vit import VisionTransformer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

IMAGES = 2_560  # of a fit
FITS = 3
BATCHES = (1, 8, 32, 128)
WARM = 10  # pairs of calls before the timed ones; the fourth call of a batch size records a CUDA graph


class TransformerLayers(nn.Module):
    """Patches of 4×4 pixels, twelve layers of PyTorch's own of width 384, the mean of the tokens."""

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
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.layers(self.patch(x).flatten(2).transpose(1, 2) + self.place)
        logits: Tensor = self.head(self.norm(tokens.mean(dim=1)))
        return logits


class Case(NamedTuple):
    """A network and what it is called with."""

    name: str
    make: Callable[[], nn.Module]
    pixels: int
    batches: tuple[int, ...] = BATCHES
    dtype: torch.dtype = torch.float32


def resnet_50() -> nn.Module:
    return ResNetImageNet(1000, block=Bottleneck, blocks=(3, 4, 6, 3))


CASES = (
    Case("ResNet-50", resnet_50, 224),
    Case("ResNet-50", resnet_50, 224, dtype=torch.bfloat16),
    Case("DenseNet-BC-100", lambda: zoo.create("densenet-bc-100", 10), 32, (1, 128)),
    Case("ViT-S/16", lambda: VisionTransformer(1000, side=224, patch=16, width=384, depth=12, heads=6), 224),
    Case("vision transformer", TransformerLayers, 32, (1, 128)),
)


class Bench:
    """Times calls and fits on one device.

    Args:
        device: of the networks and the images.
        repeats: pairs of calls that are timed.
        quick: whether all sizes are small, to see that everything runs.
    """

    def __init__(self, device: torch.device, *, repeats: int, quick: bool) -> None:
        self.device = device
        self.quick = quick
        self.repeats = 3 if quick else repeats
        self._random = torch.Generator(device).manual_seed(0)

    def images(self, count: int, case: Case) -> Tensor:
        """Return smooth random images, (n, 3, pixels, pixels), which a network tells apart."""
        coarse = torch.randn(count, 3, 4, 4, generator=self._random, device=self.device)
        return nn.functional.interpolate(coarse, size=(case.pixels, case.pixels), mode="bilinear").to(case.dtype)

    def milliseconds(self, work: Callable[[], object]) -> float:
        self.wait()
        begin = time.perf_counter()
        work()
        self.wait()
        return 1e3 * (time.perf_counter() - begin)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def network(self, case: Case) -> nn.Module:
        """Return the network, its batch norms with the statistics of some images."""
        torch.manual_seed(0)
        network = case.make().to(self.device).train()
        with torch.no_grad():
            for _ in range(2 if self.quick else 20):
                network(self.images(8 if self.quick else 32, case).float())
        return network.to(case.dtype).eval()

    def measure(self, case: Case, *, compiled: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the times of calls of every batch size, and those of fits."""
        network = self.network(case)
        size = 8 if self.quick else case.batches[-1]
        loader = [self.images(size, case) for _ in range(2 if self.quick else IMAGES // size)]
        guard = pnml.guard(network)
        facts = {"network": case.name, "pixels": case.pixels, "dtype": str(case.dtype).removeprefix("torch.")}

        def plain_pass() -> None:
            with torch.no_grad():
                for images in loader:
                    network(images)

        def fit_once() -> None:
            guard.fit(loader, progress=False)

        # The first pass and the first fit set up the libraries of the device.
        times = alternate(self, plain_pass, fit_once, 1, 1 if self.quick else FITS)
        fit = {**facts, "images": size * len(loader), **times, **file_sizes(guard)}
        guard.calibrate([self.images(64, case) for _ in range(1 if self.quick else 8)], progress=False)
        calls = [self.calls(guard, case, batch, facts) for batch in case.batches if not self.quick or batch <= 8]
        if compiled:
            guard.compile()
            calls.append(self.calls(guard, case, size, facts, alone=torch.compile(network)))
        return calls, fit

    def calls(
        self,
        guard: pnml.Guard,
        case: Case,
        batch: int,
        facts: dict[str, Any],
        alone: Callable[..., Tensor] | None = None,
    ) -> dict[str, Any]:
        """Return the times of calls with batches of one size; ``alone`` is the network as it is compiled."""
        images = self.images(batch, case)
        network = guard.model if alone is None else alone

        def plain() -> None:
            with torch.no_grad():
                network(images).argmax(dim=1).cpu()

        def guarded() -> None:
            result = guard(images)
            result.prediction.cpu(), result.regret.cpu(), result.is_ood.cpu()

        times = alternate(self, plain, guarded, WARM, self.repeats)
        return {**facts, "watched": len(guard.layers), "compiled": alone is not None, "batch": batch, **times}

    def decoder(self) -> dict[str, Any]:
        """Return what a decoder of width 4,096 costs, fitted on eight texts of 64 tokens."""
        transformers: Any = import_module("transformers")
        width = 256 if self.quick else 4_096
        sizes = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": width // 128}
        config = transformers.LlamaConfig(
            **sizes, num_hidden_layers=8, vocab_size=32_000, num_labels=10, pad_token_id=0
        )
        with self.device:
            model = transformers.LlamaForSequenceClassification(config).half().eval()
            texts = {"input_ids": torch.randint(1, 32_000, (8, 64)), "attention_mask": torch.ones(8, 64).long()}
        return self.large("decoder, 8 samples", pnml.guard(model), texts)

    def wide_layer(self) -> dict[str, Any]:
        """Return what a layer of 100,000 channels costs that is named by hand."""
        width = 1_000 if self.quick else 100_000
        parts = nn.Conv2d(3, width, 1), nn.ReLU(), nn.Conv2d(width, 64, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        model = nn.Sequential(*parts, nn.Flatten(), nn.Linear(64, 10)).to(self.device).eval()
        images = self.images(128, Case("", nn.Identity, 8))
        return self.large(f"a layer of {width:,} channels", pnml.guard(model, layers=["1"]), {"input": images})

    def large(self, name: str, guard: pnml.Guard, batch: dict[str, Tensor]) -> dict[str, Any]:
        """Return the times of a fit on one batch and of a call with it, and whether a stored detector agrees."""
        fit = self.milliseconds(lambda: guard.fit([batch], progress=False))
        regret = guard(**batch).regret
        with TemporaryDirectory() as folder:
            path = Path(folder) / "detector.safetensors"
            guard.save(path)
            again = pnml.guard(guard.model, layers=list(guard.layers)).load(path)
        parameters = sum(p.numel() * p.itemsize for p in guard.model.parameters())
        return {
            "model": name,
            "model, MB": parameters / 1e6,
            "layers": list(guard.layers),
            "fit, ms": fit,
            "call, ms": self.milliseconds(lambda: guard(**batch).regret),
            "regrets are finite": bool(regret.isfinite().all()),
            "stored and loaded alike": bool(torch.allclose(again(**batch).regret, regret, rtol=1e-3)),
            **file_sizes(guard),
        }


def alternate(
    bench: Bench, plain: Callable[[], object], guarded: Callable[[], object], before: int, repeats: int
) -> dict[str, Any]:
    """Time two works in turn; the first ones do not count."""
    for _ in range(before):
        plain()
        guarded()
    pairs = [(bench.milliseconds(plain), bench.milliseconds(guarded)) for _ in range(repeats)]
    return {
        "repeats": repeats,
        "plain, ms": median(a for a, _ in pairs),
        "guarded, ms": median(b for _, b in pairs),
        **spread("overhead, percent", "overhead, quartiles", [100 * (b - a) / a for a, b in pairs]),
        **spread("overhead, ms", "overhead, quartiles, ms", [b - a for a, b in pairs]),
    }


def spread(middle_name: str, ends_name: str, values: list[float]) -> dict[str, Any]:
    low, middle, high = quantiles(values, n=4) if len(values) > 1 else 3 * values
    return {middle_name: middle, ends_name: [low, high]}


def file_sizes(guard: pnml.Guard) -> dict[str, float]:
    """Return the size of the detector file, and of the last layer in it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "detector.safetensors"
        guard.save(path)
        arrays = load_file(path)
        head = arrays["weight"].nbytes + arrays["bias"].nbytes
        return {"file, MB": path.stat().st_size / 1e6, "head in it, MB": head / 1e6}


def table(record: dict[str, Any]) -> str:
    """Lay the record out as text."""
    lines = [f"{named(one)}, batch {one['batch']}: {times_of(one)}" for one in record["guard"]]
    lines += [f"{named(one)}, fit of {one['images']}: {times_of(one)}; {file_of(one)}" for one in record["fit"]]
    lines += [
        f"{one['model']}: fit {one['fit, ms']:.0f} ms, call {one['call, ms']:.1f} ms; {file_of(one)}; "
        f"finite: {one['regrets are finite']}, stored and loaded alike: {one['stored and loaded alike']}"
        for one in record["large"]
    ]
    return "\n".join(lines)


def named(one: dict[str, Any]) -> str:
    return f"{one['network']} {one['dtype']}" + (" compiled" if one.get("compiled") else "")


def times_of(one: dict[str, Any]) -> str:
    low, high = one["overhead, quartiles"]
    added = f"{one['overhead, percent']:+.1f} % ({low:.1f} to {high:.1f}), {one['overhead, ms']:+.3f} ms"
    return f"{one['plain, ms']:9.3f} ms {added}"


def file_of(one: dict[str, Any]) -> str:
    return f"file {one['file, MB']:.1f} MB, head {one['head in it, MB']:.1f} of it"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", nargs="*", help="names of some of the networks, and no large models")
    parser.add_argument(
        "--compiled", action="store_true", help="the largest batches as torch.compile compiles the network, too"
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes, to see that everything runs")
    options = parser.parse_args()
    device = torch.device(options.device)
    label = f"cuda: {torch.cuda.get_device_name()}" if device.type == "cuda" else f"cpu: {environment()['cpu']}"
    bench = Bench(device, repeats=options.repeats, quick=options.quick)
    run = asdict(start_run("python -m studies.speed.guard", label))
    record: dict[str, Any] = {"run": run, "threads": torch.get_num_threads(), "guard": [], "fit": [], "large": []}

    def write() -> None:  # after every part: who is stopped has what was measured
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    for case in CASES:
        if options.networks and case.name not in options.networks:
            continue
        calls, fit = bench.measure(case, compiled=options.compiled)
        record["guard"] += calls
        record["fit"].append(fit)
        write()
    works: Iterable[Callable[[], dict[str, Any]]] = () if options.networks else (bench.wide_layer, bench.decoder)
    for work in works:
        record["large"].append(work())
        write()
    print(table(record))


if __name__ == "__main__":
    main()

"""Time pnml's Gram beside a naive per-class procedure, on the same network and images, in one run.

The naive procedure predicts the classes of all images; then, class by class, runs the network on that class's images,
forms every Gram matrix of every order, and keeps minimum and maximum in NumPy; and does the same again for the
deviations of the test images.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import interpolate

from pnml_bench.methods.gram import Gram
from pnml_bench.methods.gram_features import ORDERS
from pnml_bench.zoo import ARCHITECTURES, create, load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from pnml_bench.zoo import Network

    Floats = NDArray[np.float32]
    Features = list[list[Floats]]  # of each tap, of each order: (n, channels)

EXAMPLE = """example:
  python -m studies.speed.gram --device cuda --train 20000 --test 5000 --compiled
  python -m studies.speed.gram --network densenet-bc-100_cifar10 --train 60 --test 20 --batch 20
"""


def main() -> None:
    args = parse()
    network, train, test = prepare(args)

    def ours() -> Tensor:
        gram = Gram(compiled=args.compiled).fit(network, batches(train, args.batch))
        return gram.deviations(network, batches(test, args.batch)).cpu()

    def naive() -> Tensor:
        return naive_deviations(network, train, test, args.naive_batch)

    print(f"{args.network} on {device_name(args.device)}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{args.train} training and {args.test} test images")
    warm_up, _ = timed(ours)
    print(f"first run of ours, with whatever is compiled or set up once: {warm_up:.2f} s")
    timed(lambda: naive_deviations(network, train[: args.naive_batch], test[: args.naive_batch], args.naive_batch))
    fast, slow, forward = [], [], []
    for _ in range(args.repeats):
        seconds, found = timed(ours)
        fast.append(seconds)
        seconds, expected = timed(naive)
        slow.append(seconds)
        seconds, _ = timed(lambda: predict(network, torch.cat((train, test)), args.batch))
        forward.append(seconds)
    images = args.train + args.test
    report(f"ours{', compiled' if args.compiled else ''} (batches of {args.batch})", fast, images)
    report(f"naive (batches of {args.naive_batch})", slow, images)
    report(f"the network alone, once (batches of {args.batch})", forward, images)
    ratios = [s / f for s, f in zip(slow, fast, strict=True)]
    print(
        f"naive / ours: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}), {args.repeats} runs"
    )
    known = expected.isfinite()
    apart = (found[known] - expected[known]).abs() / expected[known].clamp_min(1e-3)
    print(f"deviations differ by {apart.median():.1e} of their size in the median, {apart.quantile(0.99):.1e} in 99 %")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="densenet-bc-100", help="an architecture (fresh weights) or a checkpoint")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--train", type=int, default=60, help="number of training images")
    parser.add_argument("--test", type=int, default=20, help="number of test images")
    parser.add_argument("--batch", type=int, default=250, help="images per batch of ours")
    parser.add_argument("--naive-batch", type=int, default=64, help="images per batch of the naive procedure")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is timed, taking turns")
    parser.add_argument("--compiled", action="store_true", help="ours with torch.compile")
    return parser.parse_args()


@torch.inference_mode()
def prepare(args: argparse.Namespace) -> tuple[Network, Tensor, Tensor]:
    """Return the network and the images: random, but smooth enough for a network to tell them apart."""
    torch.manual_seed(0)
    fresh = args.network in ARCHITECTURES
    network = (create(args.network, 10) if fresh else load(args.network)).to(args.device)
    coarse = torch.randn(args.train + args.test, 3, 4, 4, device=args.device)
    images = interpolate(coarse, size=(32, 32), mode="bilinear")
    if fresh:
        for _ in range(10):
            network.train()(images[:64])  # gives the batch norms their statistics
        network.eval()
        network.head.bias.copy_(-network(images[:64]).mean(0))  # or all images would be of one class
    return network.eval(), images[: args.train], images[args.train :]


def batches(images: Tensor, size: int) -> Iterator[Tensor]:
    for start in range(0, len(images), size):
        yield images[start : start + size]


def timed(function: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Return seconds and result; the result is on the CPU, so that no work is left on the device."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


@torch.inference_mode()
def predict(network: Network, images: Tensor, size: int) -> Tensor:
    return torch.cat([network(batch).softmax(1) for batch in batches(images, size)]).cpu()


def naive_deviations(network: Network, train: Tensor, test: Tensor, size: int) -> Tensor:
    """Follow the definition, class by class; (n, taps). NaN where no training image was of that class."""
    train_classes = predict(network, train, size).argmax(1)
    confidence, test_classes = predict(network, test, size).max(1)
    order, parts = [], []
    for number in range(network.head.out_features):
        minimum, maximum = naive_ranges(network, train[(train_classes == number).to(train.device)], size)
        for rows in batches((test_classes == number).nonzero()[:, 0], size):
            features = naive_features(network, test[rows.to(test.device)])
            order.append(rows)
            parts.append(torch.from_numpy(naive_distance(features, minimum, maximum)))
    back = torch.cat(order).argsort()
    return torch.cat(parts)[back] / confidence[:, None]


def naive_distance(features: Features, minimum: Features, maximum: Features) -> Floats:
    """Return how far features leave the range of one class, summed over each tap: (n, taps)."""
    result = np.full((len(features[0][0]), len(features)), 0 if minimum else np.nan, dtype=np.float32)
    for tap, (low_ends, high_ends) in enumerate(zip(minimum, maximum, strict=True)):
        for value, low, high in zip(features[tap], low_ends, high_ends, strict=True):
            result[:, tap] += (np.maximum(low - value, 0) / np.abs(low + 1e-6)).sum(1)
            result[:, tap] += (np.maximum(value - high, 0) / np.abs(high + 1e-6)).sum(1)
    return result


def naive_ranges(network: Network, images: Tensor, size: int) -> tuple[Features, Features]:
    """Return minimum and maximum of each tap and order over the images of one class."""
    minimum: Features = []
    maximum: Features = []
    for batch in batches(images, size):
        found = naive_features(network, batch)
        low = [[value.min(0) for value in orders] for orders in found]
        high = [[value.max(0) for value in orders] for orders in found]
        minimum = [[*map(np.minimum, a, b)] for a, b in zip(minimum, low, strict=True)] if minimum else low
        maximum = [[*map(np.maximum, a, b)] for a, b in zip(maximum, high, strict=True)] if maximum else high
    return minimum, maximum


@torch.inference_mode()
def naive_features(network: Network, batch: Tensor) -> Features:
    """Form every Gram matrix, in float32."""
    activations: list[Tensor] = []
    network.embed(batch, activations.append)
    features = []
    for activation in activations:
        orders = []
        for order in range(1, ORDERS + 1):
            power = activation.flatten(2) ** order
            sums = (power @ power.transpose(1, 2)).sum(2)
            orders.append((sums.sign() * sums.abs() ** (1 / order)).cpu().numpy())
        features.append(orders)
    return features


def report(what: str, seconds: list[float], images: int) -> None:
    middle = statistics.median(seconds)
    print(f"{what}: {middle:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {images / middle:.0f} images/s")


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


if __name__ == "__main__":
    main()

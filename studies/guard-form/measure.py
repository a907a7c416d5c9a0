"""Train the networks of the plan, or load published ones, and write what forms of the guard are made of.

    python studies/guard-form/measure.py --pictures FOLDER --weights FOLDER --out FOLDER [NAME ...]

The folder of pictures is that of ``pictures.py``. A GPU is used where there is one.
"""

from __future__ import annotations

import argparse
import traceback
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from leverages import Rows, collect, strided
from networks import Network, published_densenet, train
from PIL import Image
from torch import Tensor

# known set, kind of network, classes left out, near sets, epochs
NETWORKS: dict[str, tuple[str, str, tuple[int, ...], tuple[str, ...], int]] = {
    "resnet50-c10": ("c10", "resnet50", (2, 9), ("left-out", "c100"), 24),
    "resnet18-c100": ("c100", "resnet18", (), ("c10",), 30),
    "resnet18-c10": ("c10", "resnet18", (), ("c100",), 30),
    "vgg13-c10": ("c10", "vgg13", (), ("c100",), 30),
    "densenet40-svhn": ("svhn", "densenet40", (3, 7), ("left-out",), 20),
    "wrn16-c100": ("c100", "wrn16", tuple(range(0, 100, 5)), ("left-out", "c10"), 30),
    "mobilenet-c10": ("c10", "mobilenet", (), ("c100",), 30),
    "convnext-c100": ("c100", "convnext", (), ("c10",), 40),
    "vit-c10": ("c10", "vit", (), ("c100",), 60),
    "mixer-svhn": ("svhn", "mixer", (1, 4, 8), ("left-out",), 40),
    "gru-svhn": ("svhn", "gru", (0, 5), ("left-out",), 30),
    "densenet100-c10": ("c10", "densenet-bc-100_cifar10", (), ("c100",), 0),
    "densenet100-c100": ("c100", "densenet-bc-100_cifar100", (), ("c10",), 0),
    "densenet100-svhn": ("svhn", "densenet-bc-100_svhn", (), (), 0),
}
FAR = "isun", "tin_resize", "tin_crop", "rooms", "textures", "uniform", "gaussian"
POSITIONS = 8


def pictures(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pictures (n, 3, 32, 32) of uint8 and labels (n,)."""
    labels = np.load(folder / f"{name}.labels.npy").astype(np.int64)
    mosaics = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.glob(f"{name}.[0-9]*.webp"))]
    tiles = [m.reshape(-1, 32, 40, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 32, 32) for m in mosaics]
    return np.concatenate(tiles)[: len(labels)], labels


def textures(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return gratings of two colours, and filtered noise."""
    y, x = np.mgrid[:32, :32]
    made = []
    for number in range(count):
        first, second = rng.uniform(0, 255, (2, 3, 1, 1))
        if number % 2:
            fx, fy = rng.uniform(-0.4, 0.4, 2)
            wave = (np.sin(2 * np.pi * (fx * x + fy * y) + rng.uniform(0, 6)) + 1) / 2
        else:
            frequency = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.fftfreq(32)) + 1 / 32
            wave = np.fft.ifft2(np.fft.fft2(rng.normal(size=(32, 32))) / frequency ** rng.uniform(0.5, 2)).real
            wave = (wave - wave.min()) / np.ptp(wave)
        made.append(first * wave + second * (1 - wave))
    return np.stack(made).astype(np.uint8)


def distortions(x: Tensor) -> dict[str, Tensor]:
    """Return distorted pictures (n, 3, 32, 32), given pictures in [0, 1]."""
    mean = x.mean(dim=(1, 2, 3), keepdim=True)
    return {
        "darkened": x / 4,
        "flattened": mean + (x - mean) / 4,
        "swapped": x.flip(1),
        "upside-down": x.flip(2),
        "times255": x * 255,
        "times16": x * 16,
    }


def recorded(network: Network) -> list[int]:
    """Return the blocks whose outputs are recorded, evenly spaced over the depth; short networks repeat."""
    return [-(-k * len(network.blocks) // POSITIONS) - 1 for k in range(1, POSITIONS + 1)]


@torch.no_grad()
def run(network: Network, images: Tensor) -> Rows:
    """Return what a network makes of pictures: of uint8, or of float in [0, 1]."""
    positions = recorded(network)
    embeddings: list[Tensor] = []
    logits: list[Tensor] = []
    layers: list[list[Tensor]] = [[] for _ in positions]
    for batch in torch.split(images, 250):
        outputs: list[Tensor] = []
        e, z = network(batch.float() / 255 if batch.dtype == torch.uint8 else batch, outputs.append)
        embeddings.append(e)
        logits.append(z)
        for held, position in zip(layers, positions, strict=True):
            output = outputs[position]
            x = strided(output if output.ndim == 4 else output.transpose(1, 2), 256).flatten(2).float()
            mean = x.mean(dim=2)
            square = torch.linalg.vector_norm(x, dim=2).square() / x.shape[2]
            held.append(torch.stack([mean, x.amax(dim=2), (square - mean.square()).clamp(min=0).sqrt()], dim=2))
    return Rows(torch.cat(embeddings), torch.cat(logits), [torch.cat(held) for held in layers])


def measure(
    name: str, data: Path, weights: Path, *, most: int, tested: int, epochs: int | None
) -> dict[str, np.ndarray]:
    """Return what forms are made of for one network of the plan."""
    known, kind, out, near, planned = NETWORKS[name]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rng, limit = np.random.default_rng(0), 3 * tested
    images, labels = pictures(data, f"{known}_train")
    test, test_labels = pictures(data, f"{known}_test")
    inside = np.setdiff1d(np.unique(labels), out)
    order = rng.permutation(np.flatnonzero(np.isin(labels, inside)))[:most]
    x, y = (torch.tensor(held).to(device) for held in (images[order], np.searchsorted(inside, labels[order])))
    if planned:
        flips = known != "svhn"
        network = train(kind, x, y, len(inside), epochs=planned if epochs is None else epochs, flips=flips)
    else:
        from safetensors.torch import load_file

        network = published_densenet(load_file(weights / f"{kind}.safetensors")).to(device).eval()
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    is_known = np.isin(test_labels, inside)
    groups: dict[str, np.ndarray | Tensor] = {"known": test[is_known][:limit]}
    for other in near:
        chosen = test[~is_known] if other == "left-out" else pictures(data, f"{other}_test")[0]
        groups[f"near/{other}"] = chosen[:tested]
    for other in ("c10_test" if known == "svhn" else "svhn_test", *FAR):
        if other == "textures":
            groups[f"far/{other}"] = textures(rng, tested)
        elif other == "uniform":
            groups[f"far/{other}"] = rng.integers(0, 255, (tested, 3, 32, 32)).astype(np.uint8)
        elif other == "gaussian":
            groups[f"far/{other}"] = np.clip(127.5 + 255 * rng.normal(size=(tested, 3, 32, 32)), 0, 255).astype(
                np.uint8
            )
        else:
            groups[f"far/{other}"] = pictures(data, other)[0][:tested]
    groups |= {f"distorted/{key}": v for key, v in distortions(torch.tensor(groups["known"][:tested]) / 255).items()}
    parts = [torch.as_tensor(part).to(device) for part in groups.values()]
    rows = [run(network, part) for part in parts]
    layers = [torch.cat(held) for held in zip(*(r.layers for r in rows), strict=True)]
    new = Rows(torch.cat([r.embeddings for r in rows]), torch.cat([r.logits for r in rows]), layers)
    head = network.fc.weight.detach(), network.fc.bias.detach()
    answer = collect(run(network, x), new, *head, recorded(network))
    correct = rows[0].logits.argmax(dim=1).cpu().numpy() == np.searchsorted(inside, test_labels[is_known][:limit])
    answer["accuracy"] = np.array(100 * correct.mean())
    answer["groups"] = np.array(list(groups))
    answer["sizes"] = np.array([len(part) for part in parts])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=20_000, help="training pictures at most")
    parser.add_argument(
        "--tested", type=int, default=700, help="pictures of every set but the known one, which has 3 times"
    )
    parser.add_argument("--epochs", type=int, help="instead of those of the plan, for a trial")
    args = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        start = perf_counter()
        try:
            answer = measure(name, args.pictures, args.weights, most=args.most, tested=args.tested, epochs=args.epochs)
        except Exception:  # noqa: BLE001 - one network that fails does not stop the others
            traceback.print_exc()
            continue
        np.savez_compressed(args.out / f"{name}.npz", **answer)  # type: ignore[arg-type]
        print(f"{name}: accuracy {answer['accuracy']:.1f}, {perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()

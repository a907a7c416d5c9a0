"""Which layers are watched and how they are pooled; what falls back, and what is refused."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import pnml
from pnml.core.layout import WIDEST
from pnml.pytorch.contract import Layer
from pnml.pytorch.layers import COUNT, LayersNotFoundError, LayersNotFoundWarning, find_layers
from pnml.pytorch.recording import join, pool, record_layers

from .networks import (
    CLASSES,
    CNN,
    Encoder,
    Repeated,
    Tokens,
    bert,
    images,
    loader,
    mlp,
    rows,
    seeded,
    sentences,
    sequences,
    texts,
    vit,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Residual(nn.Module):
    def __init__(self, width: int, kind: type[nn.Module] = nn.Conv2d) -> None:
        super().__init__()
        options: dict[str, Any] = {} if kind is nn.Linear else {"kernel_size": 3, "padding": 1}
        self.body = nn.Sequential(kind(width, width, **options), nn.ReLU(), kind(width, width, **options))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(x + self.body(x))
        return out


class Stage(nn.Module):
    """Puts out what the last of its blocks puts out, as those of ConvNeXt and Swin do."""

    def __init__(self, width: int, wider: int, count: int) -> None:
        super().__init__()
        self.wider, self.blocks = nn.Conv2d(width, wider, 1), nn.ModuleList(Residual(wider) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        x = self.wider(x)
        for block in self.blocks:
            x = block(x)
        return x


class ChannelsLast(nn.Module):
    """A block on pictures with their channels in the last axis, as those of Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(6), nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 6))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.mlp(self.norm(x))
        return out


class Then(nn.Module):
    """Modules one after the other, the mean of their output over all axes but those of samples and channels, a head."""

    def __init__(self, *body: nn.Module, width: int, channels: int = 1, first: int = 0) -> None:
        super().__init__()
        self.body, self.head, self.channels, self.first = (
            nn.ModuleList(body),
            nn.Linear(width, CLASSES),
            channels,
            first,
        )

    def forward(self, x: Tensor) -> Tensor:
        for module in self.body:
            out: Any = module(x)
            x = out[0] if isinstance(out, tuple) else out
        logits: Tensor = self.head(x.movedim((self.first, self.channels), (0, 1)).flatten(2).mean(2))
        return logits


def recurrent(*, batch_first: bool) -> nn.Module:
    parts = nn.LSTM(5, 9, batch_first=batch_first), nn.GRU(9, 8, batch_first=batch_first)
    return Then(*parts, width=8, channels=2, first=0 if batch_first else 1)


CHOICES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], list[str], tuple[int, int]]] = {
    "perceptron": (mlp, lambda: rows(20), ["0", "input"], (0, 1)),
    "convolutions": (CNN, lambda: images(20), ["body.0", "body.2"], (0, 1)),
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3), *(Residual(6) for _ in range(7)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)
        ),
        lambda: images(20),
        ["2", "4", "5", "7"],
        (0, 1),
    ),
    "stages": (
        lambda: Then(Stage(3, 4, 2), Stage(4, 6, 2), width=6),
        lambda: images(20),
        ["body.0.blocks.0", "body.0.blocks.1", "body.1.blocks.0", "body.1.blocks.1"],
        (0, 1),
    ),
    "channels last": (
        lambda: Then(*(ChannelsLast() for _ in range(5)), width=6, channels=3),
        lambda: images(20, size=6).movedim(1, 3).repeat(1, 1, 1, 2),
        ["body.0", "body.1", "body.3", "body.4"],
        (0, 3),
    ),
    "convolutions of sequences": (
        lambda: Then(*(Residual(5, nn.Conv1d) for _ in range(4)), width=5),
        lambda: sequences(20).transpose(1, 2),
        ["body.0", "body.1", "body.2", "body.3"],
        (0, 1),
    ),
    "encoder": (Encoder, lambda: sequences(20), [f"encoder.layers.{n}" for n in range(4)], (0, 2)),
    "recurrent": (lambda: recurrent(batch_first=True), lambda: sequences(20), ["body.0", "body.1"], (0, 2)),
    "steps first": (
        lambda: recurrent(batch_first=False),
        lambda: sequences(9, length=20).transpose(0, 1).contiguous().transpose(0, 1),
        ["body.0", "body.1"],
        (1, 2),
    ),
    "one block, called again": (Repeated, lambda: rows(20), ["block", "block#1", "block#2", "input"], (0, 1)),
    "bert": (bert, lambda: sentences(20), [f"bert.encoder.layer.{n}" for n in range(2)], (0, 2)),
    "vit": (vit, lambda: images(20), [], (0, 2)),
}


@pytest.mark.parametrize("name", [name for name in CHOICES if name not in {"steps first", "vit"}])
def test_layers_are_the_outputs_of_blocks_and_scored_alike_after_loading(name: str, tmp_path: Path) -> None:
    make, batch, expected, axes = CHOICES[name]
    torch.manual_seed(0)
    model, given = make().eval(), batch()
    guard = pnml.guard(model).fit([given, given], progress=False)
    assert list(guard.layers) == expected
    assert {(layer.batch_axis, layer.channel_axis) for layer in guard.watched if str(layer) != "input"} == {axes}
    args, kwargs = ((), given) if isinstance(given, dict) else ((given,), {})
    result = guard(*args, **kwargs)
    assert result.leverage_by_layer.shape == (20, len(guard.fitted().block_names))
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    assert loaded.watched == guard.watched
    assert torch.equal(loaded(*args, **kwargs).regret, result.regret)


def test_a_number_of_layers_is_taken_and_names_are() -> None:
    model = Encoder(depth=12)
    assert pnml.guard(model).fit([sequences(20)], progress=False).layers == tuple(
        f"encoder.layers.{number}" for number in (2, 5, 8, 11)
    )
    assert len(pnml.guard(model, layers=2).fit([sequences(20)], progress=False).layers) == 2
    named = pnml.guard(model, layers=["encoder.layers.0.norm1", "encoder"]).fit([sequences(20)], progress=False)
    assert named.layers == named.fitted().layer_names == ("encoder.layers.0.norm1", "encoder")
    assert pnml.guard(model, layers=[]).fit([sequences(20)], progress=False).layers == ()


def test_the_benchmark_finds_and_records_the_same_layers() -> None:
    model = CNN().eval()
    layers = find_layers(model, (images(9),), head="classifier")
    assert layers == (Layer("body.0"), Layer("body.2"))
    with torch.no_grad(), record_layers(model, layers) as recorded:
        model(images(9))
    guard = pnml.guard(model).fit([images(30)], progress=False)
    assert recorded[0] is not None
    torch.testing.assert_close(join(recorded[0]), guard.run((images(9),)).features[0])


@pytest.mark.parametrize("memory", ["contiguous", "channels last"])
@pytest.mark.parametrize("channels", [5, 700])
def test_channels_are_pooled_by_mean_and_maximum(channels: int, memory: str) -> None:
    x = torch.randn(3, channels, 4, 6, generator=seeded())
    if memory == "channels last":
        x = x.to(memory_format=torch.channels_last)
    step = -(-channels // 256)
    by_hand = x.double()[:, ::step].flatten(2)
    expected = torch.cat([by_hand.mean(2), by_hand.amax(2)], dim=1)
    assert expected.shape[1] <= WIDEST
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-5), (torch.bfloat16, 0.05)):
        pooled = join(pool(x.to(dtype), Layer("x")))
        assert pooled.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        torch.testing.assert_close(pooled.double(), expected, rtol=tolerance, atol=tolerance)


def test_tokens_that_do_not_count_are_left_out_of_pooling() -> None:
    x = torch.randn(3, 7, 4, generator=seeded())
    counts = torch.arange(7) < torch.tensor([[7], [3], [1]])
    pooled = join(pool(x, Layer("x", channel_axis=2), counts))
    for row, length in enumerate((7, 3, 1)):
        alone = join(pool(x[row : row + 1, :length], Layer("x", channel_axis=2)))
        torch.testing.assert_close(pooled[row : row + 1], alone, rtol=1e-5, atol=1e-6)
    steps_first = pool(x.transpose(0, 1), Layer("x", batch_axis=1, channel_axis=2), counts)
    torch.testing.assert_close(join(steps_first), pooled)


def test_vectors_are_cut_to_some_coordinates_and_copied() -> None:
    x = torch.randn(3, 1200, generator=seeded())
    pooled = join(pool(x, Layer("x")))
    assert torch.equal(pooled, x[:, :: -(-1200 // WIDEST)])
    x.zero_()
    assert bool(pooled.any()), "what the next module writes into it is not seen"


def test_a_layer_of_any_width_is_watched() -> None:
    convolutions = nn.Conv2d(1, 100_000, 1), nn.Conv2d(100_000, 4, 1)
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    guard = pnml.guard(model, layers=["0"]).fit([torch.randn(9, 1, 2, 2)], progress=False)
    assert guard.fitted().feature_widths == (2 * 256,)


def test_tables_are_watched_themselves() -> None:
    model = nn.Sequential(nn.Linear(1000, 4), nn.Tanh(), nn.Linear(4, 3))
    x = torch.randn(40, 1000, generator=seeded())
    guard = pnml.guard(model).fit([x], progress=False)
    assert guard.layers == ("0", "input")
    torch.testing.assert_close(guard.run((x,)).features[1], x[:, :: -(-1000 // WIDEST)])
    assert pnml.guard(model, layers=["0"]).fit([x], progress=False).layers == ("0",)


def test_a_layer_that_puts_out_nan_flags_its_sample() -> None:
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    class Branches(CNN):
        def __init__(self) -> None:
            super().__init__()
            self.root = Root()

        def forward(self, x: Tensor) -> Tensor:
            self.root(x.abs() - 1e-3 * (x < -4))
            return super().forward(x)

    guard = pnml.guard(Branches(), layers=["root", "body"]).fit([images(60).clamp(-3, 3)], progress=False)
    guard.calibrate([images(60, seed=1).clamp(-3, 3)], progress=False)
    fresh = images(5, seed=2).clamp(-3, 3)
    fresh[3, 0, 0, 0] = -1e9
    fresh[1, 0, 0, 0] = torch.nan
    result = guard(fresh)
    assert result.regret.isnan()[1]
    assert result.is_ood is not None
    assert bool(result.is_ood[[1, 3]].all())
    assert not bool(result.regret[[0, 2, 4]].isnan().any())


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_layers_with_made_weights_are_watched(name: str) -> None:
    torch.manual_seed(0)
    made = getattr(parametrizations, name)
    parts = (nn.Sequential(made(nn.Linear(8, 8)), nn.Tanh()) for _ in range(3))
    guard = pnml.guard(nn.Sequential(*parts, made(nn.Linear(8, 8)))).fit([rows(64)], progress=False)
    assert guard.layers == ("0.1", "1.1", "2.0", "input")


def test_layers_that_are_not_there_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"layer 'body\.7' is no module of the model; some .* are \['body'"):
        pnml.guard(CNN(), layers=["body.0", "body.7"])
    for again in ("body", "body#0"):
        with pytest.raises(ValueError, match=f"layer '{again}' is named twice"):
            pnml.guard(CNN(), layers=["body", again])
    with pytest.raises(ValueError, match=r"layer 'body#last' must have the number of a call after #.* '"):
        pnml.guard(CNN(), layers=["body#last"])
    with pytest.raises(LayersNotFoundError, match=r"no module 'body#1' was called .*; some that were: \['body"):
        pnml.guard(CNN(), layers=["body#1"]).fit([images(10)], progress=False)
    for layers in ("body", 0):
        with pytest.raises(ValueError, match=f'"last", a number of layers or names of modules, got {layers!r}'):
            pnml.guard(CNN(), layers=layers)
    with pytest.raises(TypeError, match="layers must be names of modules, got 3"):
        pnml.guard(CNN(), layers=[3])  # type: ignore[list-item]
    with pytest.raises(LayersNotFoundError, match="no module 'classifier' was called before the head"):
        pnml.guard(CNN(), layers=["classifier"]).fit([images(10)], progress=False)


@pytest.mark.parametrize("embedding_scale", ["paper", "natural"])
def test_other_scales_are_for_embeddings_alone(embedding_scale: Any) -> None:
    guard = pnml.guard(CNN(), embedding_scale=embedding_scale).fit([images(40)], progress=False)
    assert guard.layers == ()
    with pytest.raises(ValueError, match=f"need embedding_scale=\"auto\", got '{embedding_scale}'"):
        pnml.guard(CNN(), layers=["body"], embedding_scale=embedding_scale)


def test_a_model_without_earlier_layers_falls_back() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    with pytest.warns(LayersNotFoundWarning, match="The embeddings alone are watched, as with layers='last'") as caught:
        guard = pnml.guard(model).fit(loader(images(64)), progress=False)
    assert len(caught) == 1
    last = pnml.guard(model, layers="last").fit(loader(images(64)), progress=False)
    assert torch.equal(guard(images(9)).regret, last(images(9)).regret)


def test_repr_is_short_and_says_what_is_watched() -> None:
    guard = pnml.guard(CNN())
    assert repr(guard) == "Guard(CNN, head auto, layers auto, not fitted)"
    guard.fit(loader(images(60)), progress=False)
    assert repr(guard).startswith("Guard(CNN, head classifier, layers ['body.0', 'body.2'], fitted on 60 samples, not")
    guard.calibrate([images(30, seed=1)], progress=False)
    assert "calibrated" in repr(guard)
    last = pnml.guard(mlp(), layers="last").fit([rows(30)], progress=False)
    assert "layers last" in repr(last)


class Skipping(nn.Module):
    """Calls one of its layers only for batches of another size than 20."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 20:
            self.first(x)
        logits: Tensor = self.last(x.mean((2, 3)))
        return logits


def test_a_layer_missing_in_a_later_batch_raises() -> None:
    guard = pnml.guard(Skipping()).fit([images(40), images(30)], progress=False)
    assert guard.layers == ("first",)
    said = "layer 'first' did not put out one entry per sample"
    with pytest.raises(LayersNotFoundError, match=said):
        guard(images(20))
    for work in (guard.calibrate, pnml.guard(Skipping()).fit):
        with pytest.raises(ValueError, match=f"batch 1 of the loader: {said}"):
            work([images(40), images(20)], progress=False)


def test_a_failing_fit_leaves_the_guard_as_it_was() -> None:
    guard = pnml.guard(CNN()).fit([images(60)], progress=False)
    before, layers = guard(images(9)).regret, guard.layers
    with pytest.raises(ValueError, match="batch 1 of the loader"):
        guard.fit([images(9), images(9) * torch.nan], progress=False)
    assert guard.layers == layers
    assert torch.equal(guard(images(9)).regret, before)


def test_layers_are_found_with_a_few_samples_of_the_first_batch_or_with_all() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = CNN()
            self.sizes: list[int] = []

        def forward(self, x: Tensor) -> Tensor:
            self.sizes.append(len(x))
            logits: Tensor = self.inner(x.reshape(16, 3, 8, 8) if self.fixed else x)
            return logits

        fixed = False

    model = Fixed()
    pnml.guard(model).fit(loader(images(64)), progress=False)
    assert max(size for size in model.sizes if size != 16) <= 8
    model.fixed = True
    assert pnml.guard(model).fit(loader(images(64)), progress=False).layers == ("inner.body.0", "inner.body.2")


def test_a_module_that_is_replaced_by_its_like_is_watched() -> None:
    model = CNN().eval()
    guard = pnml.guard(model).fit([images(60)], progress=False)
    expected = guard(images(4)).regret
    other = copy.deepcopy(guard)
    other.model.classifier = copy.deepcopy(model.classifier)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(other(images(4)).regret, expected)


def test_padding_token_of_an_embedding_is_left_out() -> None:
    tokens, _ = texts(40)
    model = Tokens("none", padding_idx=0).double()
    guard = pnml.guard(model).fit([tokens], progress=False)
    assert len(guard.layers) <= COUNT
    longer = torch.cat([tokens, torch.zeros_like(tokens)], dim=1)
    torch.testing.assert_close(guard(longer).regret, guard(tokens).regret, rtol=1e-6, atol=1e-12)

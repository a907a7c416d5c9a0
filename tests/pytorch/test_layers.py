"""Layers of networks of many kinds: which are chosen, and that their outputs are pooled as NumPy pools them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pnml.pytorch.finding import find_head
from pnml.pytorch.layers import COUNT, Layer, LayersNotFoundError, find_layers
from pnml.pytorch.pooling import join, pool, token_shares
from pnml.pytorch.recording import record_layers

from .architectures import Case, Images, InAndOut, MeanOfTokens, Repeated, Residual, Scale, cases, sequences
from .networks import CNN, images, seeded

Matrix = np.ndarray[Any, Any]

CASES = cases()


def pooled_by_numpy(output: Tensor, axes: tuple[int, int], mask: Tensor | None = None) -> Matrix:
    """Compute means and standard deviations over pixels or tokens, sample by sample, channel by channel."""
    x = np.moveaxis(output.double().numpy(), axes, (0, 1))
    if x.ndim == 2:
        return x
    x = x.reshape(*x.shape[:2], -1)
    if x.shape[2] == 1:
        return x[:, :, 0]
    kept = np.ones((len(x), x.shape[2]), bool) if mask is None else mask.numpy().astype(bool)
    means = [[channel[rows].mean() for channel in sample] for sample, rows in zip(x, kept, strict=True)]
    deviations = [[channel[rows].std() for channel in sample] for sample, rows in zip(x, kept, strict=True)]
    return np.hstack([means, deviations])


def outputs_by_hand(case: Case) -> dict[tuple[str, int], Tensor]:
    """Run a network and copy what every call of a module returns, in order, before the next one can overwrite it."""
    found: dict[tuple[str, int], Tensor] = {}

    def note(name: str) -> Any:
        def copy_output(_module: nn.Module, _args: Any, output: Any) -> None:
            if isinstance(case.model, InAndOut) and isinstance(output, tuple):
                output = output[1]
            while not isinstance(output, Tensor):
                output = output[0]
            found[name, sum(other == name for other, _ in found)] = output.clone()

        return copy_output

    model = copy.deepcopy(case.model)
    for name, module in model.named_modules():
        module.register_forward_hook(note(name))
    with torch.no_grad():
        model(*case.args, **case.kwargs)
    return found


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_pooled_over_their_pixels_or_tokens(name: str) -> None:
    case = CASES[name]
    head = find_head(case.model, case.args, case.kwargs).name
    with torch.no_grad():
        layers = find_layers(case.model, case.args, case.kwargs, head=head)
        with record_layers(case.model, layers, case.kwargs) as recorded:
            case.model(*case.args, **case.kwargs)
    assert 1 <= len(layers) <= COUNT
    assert len(set(layers)) == len(layers)
    by_hand = outputs_by_hand(case)
    for layer, found in zip(layers, recorded, strict=True):
        output = by_hand[layer.name, layer.call]
        expected = pooled_by_numpy(output, case.axes.get(layer.name, case.axes.get(output.ndim, (0, 1))))
        assert found is not None
        np.testing.assert_allclose(join(found), expected, rtol=1e-4, atol=1e-5, err_msg=str(layer))


@pytest.mark.parametrize("name", CASES)
def test_layers_come_in_the_order_of_their_calls_and_before_the_head(name: str) -> None:
    case = CASES[name]
    head = find_head(case.model, case.args, case.kwargs).name
    with torch.no_grad():
        layers = find_layers(case.model, case.args, case.kwargs, head=head)
    finished = list(outputs_by_hand(case))
    order = [finished.index((layer.name, layer.call)) for layer in layers]
    assert order == sorted(order)
    assert order[-1] < finished.index((head, 0))
    assert not any(head.startswith(f"{layer.name}.") for layer in layers), "what holds the head comes after it"


@pytest.mark.parametrize("depth", [8, 31, 64])
def test_layers_are_evenly_spaced(depth: int) -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(depth)), nn.Linear(4, 2))
    layers = find_layers(model, (torch.randn(5, 4, generator=seeded()),), head=str(depth))
    blocks = [int(layer.name.split(".")[0]) for layer in layers]
    assert len(blocks) in {COUNT - 1, COUNT}, "the last block is the embedding"
    steps = np.diff([-1, *blocks])
    assert (np.abs(steps - depth / COUNT) < 2).all()


def test_blocks_with_shortcuts_are_taken_whole() -> None:
    many = Images(*(Residual() for _ in range(8))).eval()
    layers = find_layers(many, (images(9),), head="head")
    assert {layer.name for layer in layers if layer.name.startswith("blocks")} <= {f"blocks.{i}" for i in range(8)}


def test_of_several_tensors_the_one_with_an_entry_per_sample_is_taken() -> None:
    layers = find_layers(InAndOut().eval(), (sequences(9),), head="head")
    blocks = [layer for layer in layers if layer.name.startswith("blocks.")]
    assert len(blocks) >= COUNT - 1
    assert {(layer.entry, layer.channel_axis) for layer in blocks} == {(1, 2)}


def test_named_layers_have_the_axes_of_those_that_are_chosen() -> None:
    case = CASES["as many pixels as channels, channels last"]
    chosen = find_layers(case.model, case.args, head="head")
    assert find_layers(case.model, case.args, head="head", named=[str(layer) for layer in chosen]) == chosen


def test_axes_are_found_where_the_model_fails_on_other_numbers() -> None:
    class Careful(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.detach().abs().max()) > 1:
                raise ValueError("expected numbers up to 1")
            return x * torch.ones(8)

    scale = Scale(8)
    with torch.no_grad():
        scale.factor.fill_(1.0)
    model = MeanOfTokens(nn.Linear(3, 8), nn.Sequential(nn.Tanh(), scale, Careful())).eval()
    layers = find_layers(model, (images(9).permute(0, 2, 3, 1),), head="head")
    assert [str(layer) for layer in layers][-1].startswith("blocks.1")


def test_the_embedding_is_no_layer_whatever_axes_of_one_entry_it_has() -> None:
    class Views(nn.Module):
        """Two views of a sample as channels of one convolution, which joins them."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.join = nn.Linear(8, 6), nn.Conv1d(2, 1, 1)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            both = torch.stack([self.body(x), self.body(x).tanh()], dim=1)
            logits: Tensor = self.head(self.join(both).squeeze(dim=1))
            return logits

    layers = find_layers(Views().eval(), (torch.randn(9, 8, generator=seeded()),), head="head")
    assert {layer.name for layer in layers} == {"body"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 6), (5, 6, 1, 1), (5, 6, 3), (5, 6, 4, 3), (5, 6, 3, 2, 4), (40, 130, 12, 12)])
def test_pool(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Also where the means are a thousand times the deviations."""
    x = (torch.randn(shape, generator=seeded()) + 1000 * (dtype in {torch.float32, torch.float64})).to(dtype)
    for tensor in (x, x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x.clone()):
        found = join(pool(tensor, Layer("any", has_places=x[0, 0].numel() > 1)))
        assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        atol = 1e-12 if dtype == torch.float64 else 1e-3 if dtype == torch.float32 else 1e-6
        np.testing.assert_allclose(found, pooled_by_numpy(x, (0, 1)), rtol=1e-6, atol=atol)


@pytest.mark.parametrize("tokens_first", [True, False])
def test_pool_leaves_masked_tokens_out(tokens_first: bool) -> None:  # noqa: FBT001
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[0, 3:], mask[1, 0], mask[4, 1:] = False, False, False
    x = sequences(5) + 10
    with_padding = torch.where(mask[:, :, None], x, torch.tensor(1e6))
    layer = Layer("any", 0, 1, 2) if tokens_first else Layer("any", 0, 0, 2)
    given = with_padding.transpose(0, 1) if tokens_first else with_padding
    share = token_shares(mask)
    np.testing.assert_allclose(join(pool(given, layer, share)), pooled_by_numpy(x, (0, 2), mask), rtol=1e-5, atol=1e-5)
    other = join(pool(x[:, :6], Layer("any", 0, 0, 2), share))
    np.testing.assert_allclose(other, pooled_by_numpy(x[:, :6], (0, 2)), rtol=1e-5, atol=1e-5)


def test_pooled_rows_are_copies() -> None:
    x = torch.randn(5, 6, generator=seeded())
    found = join(pool(x, Layer("any")))
    before = found.clone()
    x.zero_()
    assert torch.equal(found, before)


def test_a_module_that_is_called_again_gives_a_layer_for_every_call() -> None:
    model = Repeated().eval()
    x = torch.randn(9, 8, generator=seeded())
    layers = find_layers(model, (x,), head="head")
    assert [str(layer) for layer in layers] == ["block", "block#1", "block#2"]
    assert find_layers(model, (x,), head="head", named=["block#2", "block"]) == (layers[2], layers[0])


def test_named_layers_that_cannot_be_taken_are_refused_by_name() -> None:
    model = CNN().eval()
    with pytest.raises(LayersNotFoundError, match=r"no module 'body\.9' was called before the head; .*'body'"):
        find_layers(model, (images(4),), head="classifier", named=["body.9"])
    with pytest.raises(LayersNotFoundError, match="no module 'classifier' was called before the head"):
        find_layers(model, (images(4),), head="classifier", named=["classifier"])
    flat = nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (4, 192)), nn.Linear(192, 2))
    with pytest.raises(LayersNotFoundError, match="the output of '0' does not have one entry per sample"):
        find_layers(flat, (images(4),), head="2", named=["0"])


def test_hooks_are_gone_after_a_pass_that_fails() -> None:
    model = CNN().eval()
    with pytest.raises(RuntimeError):
        find_layers(model, (torch.zeros(4, 2),), head="classifier")
    with pytest.raises(RuntimeError), record_layers(model, [Layer("body")], {}):
        model(torch.zeros(4, 2))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_embedding_is_no_layer_also_if_it_still_has_pixels() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.GroupNorm(2, 6), nn.Flatten(), nn.Linear(6, 2)
    )
    assert [layer.name for layer in find_layers(model, (images(4),), head="5")] == ["1"]


class _Padded(nn.Module):
    """A classifier of token sequences that knows padding, token 0, by itself and hides it from its encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        x = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        logits: Tensor = self.head(x.masked_fill(padding[:, :, None], 0).sum(dim=1))
        return logits


def test_layers_of_an_encoder_that_would_pass_nested_tensors_are_watched() -> None:
    torch.manual_seed(0)
    model = _Padded().eval()
    tokens = torch.randint(1, 20, (6, 9))
    tokens[:3, 5:] = 0
    layers = find_layers(model, (tokens,), head="head", named=["encoder.layers.0", "encoder.layers.1"])
    with torch.no_grad(), record_layers(model, layers, {}) as rows:
        model(tokens)
    assert [None if x is None else tuple(join(x).shape) for x in rows] == [(6, 16), (6, 16)]
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(("watched", "stays_fused"), [("1", True), ("1.linear1", False)])
def test_attention_stays_fused_unless_parts_of_it_are_watched(watched: str, *, stays_fused: bool) -> None:
    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            fused.append(torch.backends.mha.get_fastpath_enabled())
            return x.mean(dim=1)

    fused: list[bool] = []
    encoder = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    model = nn.Sequential(*encoder, Asks(), nn.Linear(8, 3)).eval()
    x = torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(0))
    layers = find_layers(model, (x,), head="3", named=[watched])
    fused.clear()
    with torch.no_grad(), record_layers(model, layers, {}) as rows:
        model(x)
    assert fused == [stays_fused]
    assert rows[0] is not None


def test_watched_encoder_layers_fuse_their_parts_as_they_do_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, plain = [], torch._transformer_encoder_layer_fwd

    def count(*args: Any) -> Tensor:
        fused.append(args)
        return plain(*args)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", count)
    encoder = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3)]
    model = nn.Sequential(*encoder, nn.Flatten(), nn.Linear(32, 3)).eval()
    x = torch.randn(5, 4, 8, generator=torch.Generator().manual_seed(0))
    layers = find_layers(model, (x,), head="4", named=["0", "2"])
    with torch.no_grad():
        outputs = [model[:1](x), model[:3](x)]
        alone = model(x)
        fused.clear()
        with record_layers(model, layers, {}) as rows:
            watched = model(x)
    assert len(fused) == 3
    assert torch.equal(watched, alone)
    for row, output in zip(rows, outputs, strict=True):
        expected = torch.cat([output.mean(dim=1), output.std(dim=1, correction=0)], dim=1)
        assert row is not None
        torch.testing.assert_close(join(row), expected)
    assert not nn.modules.module._global_forward_hooks


def test_encoder_layers_of_another_model_are_not_noted_while_one_is_watched() -> None:
    one, other = (
        nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(32, 3)).eval()
        for _ in range(2)
    )
    with torch.no_grad(), record_layers(one, [Layer("0", channel_axis=2)], {}) as rows:
        other(torch.ones(5, 4, 8))
        assert rows == [None]


def test_calls_of_a_module_that_calls_itself_are_told_apart_as_they_return() -> None:
    class Halving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.mix = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.mix(x).tanh()
            return x + self(x[:, ::2]).mean(dim=1, keepdim=True) if x.shape[1] > 1 else x

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.halving, self.head = Halving(), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.halving(x).mean(dim=1))
            return logits

    model, x = Nested(), torch.randn(5, 8, 8, generator=seeded())
    whole = Layer("halving", call=3, channel_axis=2)
    assert find_layers(model, (x,), head="head", named=["halving#3"]) == (whole,)
    with torch.no_grad():
        expected = pool(model.halving(x), whole)
        with record_layers(model, [whole], {}) as rows:
            model(x)
    assert rows[0] is not None
    torch.testing.assert_close(join(rows[0]), join(expected))

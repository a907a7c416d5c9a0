"""Compare the vision transformer with PyTorch's own encoder layers, given the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from pnml_bench import zoo
from pnml_bench.zoo.vit import VisionTransformer

WIDTH, HEADS = 24, 3


@pytest.fixture(scope="module")
def network() -> VisionTransformer:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = VisionTransformer(5, side=16, patch=4, width=WIDTH, depth=2, heads=HEADS).double().eval()
        for parameter in made.parameters():
            nn.init.normal_(parameter, std=0.3)
    return made


def reference(network: VisionTransformer) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    encoder = nn.TransformerEncoder(layer, len(network.blocks), enable_nested_tensor=False).double().eval()
    names = {
        "norm1": "norm1",
        "norm2": "norm2",
        "qkv": "self_attn.in_proj_",
        "project": "self_attn.out_proj",
        "fc1": "linear1",
        "fc2": "linear2",
    }
    for block, theirs in zip(network.blocks, encoder.layers, strict=True):
        state = {}
        for ours, name in names.items():
            for kind in ("weight", "bias"):
                joined = f"{name}{kind}" if name.endswith("_") else f"{name}.{kind}"
                state[joined] = block.state_dict()[f"{ours}.{kind}"]
        theirs.load_state_dict(state)
    return encoder


def test_embeddings_equal_those_of_pytorchs_encoder(network: VisionTransformer) -> None:
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    patches = nn.functional.unfold(x, 4, stride=4).transpose(1, 2)  # (3, 16 tokens, 48)
    weight, bias = network.patches.parameters()
    tokens = patches @ weight.flatten(1).T + bias + network.positions
    with torch.no_grad():
        expected = network.norm(reference(network)(tokens)).mean(dim=1)
        torch.testing.assert_close(network.features(x), expected)
        torch.testing.assert_close(network(x), network.head(expected))


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="expected images of 64×64 pixels, got 32×32: resize them"):
        zoo.create("vit-small", 200)(torch.zeros(1, 3, 32, 32))


def test_the_resnet_for_small_images_has_18_layers_and_takes_both_sizes() -> None:
    network = zoo.create("resnet-18-small", 200).eval()
    weighted = [
        m for name, m in network.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and "shortcut" not in name
    ]
    assert len(weighted) == 18
    assert (
        network.features(torch.zeros(1, 3, 32, 32)).shape
        == network.features(torch.zeros(1, 3, 64, 64)).shape
        == (1, 512)
    )

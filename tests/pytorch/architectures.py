"""Architectures that people use, of torchvision, timm and transformers: tiny, with random weights."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from .networks import CLASSES, images, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_operators: list[torch.library.Library] = []  # one that is garbage-collected takes its operators with it


class Architecture(NamedTuple):
    """A model of a library, and what the guard is expected to make of it.

    Attributes:
        build: returns the model.
        batch: returns so many samples for a seed: a tensor, or a dict of keyword arguments.
        head: the name of the last layer.
        blocks: a regular expression of the names of the repeated blocks, four of which are watched; "" for none.
        pad: returns a batch with three more places of padding; None where there is no padding.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[int, int], Any]
    head: str
    blocks: str
    pad: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None


def library(name: str) -> Any:
    """Return a library; a torchvision that was built for another PyTorch is imported without its operators."""
    try:
        return import_module(name)
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    operators = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        operators.define(f"{operator}(Tensor a, Tensor b, float c) -> Tensor")  # type: ignore[no-untyped-call]
    _operators.append(operators)
    return import_module(name)


def pictures(count: int, seed: int, size: int = 32) -> Tensor:
    return images(count, seed, size).double()


def sounds(count: int, seed: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(count, 800, generator=seeded(seed)).double()}


def spectra(count: int, seed: int) -> dict[str, Tensor]:
    return {"input_values": torch.randn(count, 32, 16, generator=seeded(seed)).double()}


def sentences(count: int, seed: int, side: str = "right") -> dict[str, Tensor]:
    """Return tokens 3 to 49, the 2 that ends a sentence, and padding of zeros on one side, as a tokenizer does."""
    lengths = torch.randint(3, 10, (count, 1), generator=seeded(seed + 1000))
    lengths[0] = 9  # a batch is as long as its longest sentence
    mask = torch.arange(9) < lengths
    tokens = torch.randint(3, 50, (count, 9), generator=seeded(seed)).scatter(1, lengths - 1, 2) * mask
    if side == "left":
        tokens, mask = tokens.flip(1), mask.flip(1)
    return {"input_ids": tokens, "attention_mask": mask.long()}


def longer(batch: dict[str, Tensor], side: str = "right") -> dict[str, Tensor]:
    sides = (0, 3) if side == "right" else (3, 0)
    return {name: torch.nn.functional.pad(values, sides) for name, values in batch.items()}


def call(function: Any, batch: Any) -> Any:
    """Call a model or a guard with a batch."""
    return function(**batch) if isinstance(batch, dict) else function(batch)


def chosen(batch: Any, index: Any) -> Any:
    """Return some samples of a batch."""
    return {name: values[index] for name, values in batch.items()} if isinstance(batch, dict) else batch[index]


def logits_of(answer: Any) -> Tensor:
    """Return the logits in what a model puts out."""
    found: Tensor = answer if isinstance(answer, torch.Tensor) else answer.logits
    return found


def drawn(build: Callable[[], nn.Module]) -> nn.Module:
    """Return a model in float64 and eval mode, with random numbers also where weights are zeros to begin with."""
    torch.manual_seed(0)
    model = build().double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("weight") and not parameter.any():
            nn.init.uniform_(parameter, -0.2, 0.2)
    return model


def _vgg() -> nn.Module:
    vgg = library("torchvision.models.vgg")
    features = vgg.make_layers(vgg.cfgs["A"], batch_norm=True)
    with torch.device("meta"):  # its own classifier has 120 million weights
        model: nn.Module = vgg.VGG(features)
    layers = (nn.Linear(25088, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.ReLU(inplace=True))
    model.classifier = nn.Sequential(*layers, nn.Linear(32, CLASSES))
    return model


def _torchvision(name: str, head: str, blocks: str, **options: Any) -> Architecture:
    def build() -> nn.Module:
        module = library("torchvision.models")
        found: nn.Module = getattr(module, name)(num_classes=CLASSES, **options)
        return found

    return Architecture(build, pictures, head, blocks)


def _timm(name: str, head: str, blocks: str, size: int = 32, **options: Any) -> Architecture:
    options |= {"img_size": size} if "patch" in name or "mixer" in name else {}

    def build() -> nn.Module:
        library("torchvision")
        model: nn.Module = library("timm").create_model(name, num_classes=CLASSES, **options)
        return model

    return Architecture(build, partial(pictures, size=size), head, blocks)


_TINY = {"hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
_GPT = {"n_embd": 24, "n_layer": 4, "n_head": 2, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}
_XLNET = {"d_model": 24, "n_layer": 4, "n_head": 2, "d_inner": 32}
_DISTILBERT = {"dim": 24, "n_layers": 4, "n_heads": 2, "hidden_dim": 32}
_T5 = {"d_model": 24, "d_kv": 12, "d_ff": 32, "num_layers": 4, "num_heads": 2, "eos_token_id": 2}
_VIT = {"image_size": 32, "patch_size": 8}
_VISION = {**_VIT, "num_layers": 6, "num_heads": 2, "hidden_dim": 24, "mlp_dim": 48}
_SWIN = {"image_size": 32, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
_AST = {"patch_size": 8, "frequency_stride": 8, "time_stride": 8, "max_length": 32, "num_mel_bins": 16}
_CONVOLVED = {"conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8], "num_feat_extract_layers": 2}
_PLACES = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 16}


def _transformers(kind: str, head: str, blocks: str, batch: Callable[[int, int], Any], **config: Any) -> Architecture:
    name = kind.partition("For")[0]

    def build() -> nn.Module:
        module = library("transformers")
        found: nn.Module = getattr(module, kind)(getattr(module, f"{name}Config")(**config, num_labels=CLASSES))
        return found

    return Architecture(build, batch, head, blocks)


def _text(name: str, head: str, blocks: str, **config: Any) -> Architecture:
    side = config.pop("side", "right")
    batch = partial(sentences, side=side)
    values = {"vocab_size": 50, "pad_token_id": 0, **config}
    case = _transformers(f"{name}ForSequenceClassification", head, blocks, batch, **values)
    return case._replace(pad=partial(longer, side=side))


def _image(name: str, blocks: str, **config: Any) -> Architecture:
    return _transformers(f"{name}ForImageClassification", "classifier", blocks, pictures, **config)


ARCHITECTURES = {
    "resnet18": _torchvision("resnet18", "fc", r"layer\d\.\d"),
    "resnet50": _torchvision("resnet50", "fc", r"layer\d\.\d"),
    "densenet121": _torchvision("densenet121", "classifier", r"features\.denseblock\d"),
    "vgg11_bn": Architecture(_vgg, pictures, "classifier.4", r"(features|classifier)\.\d+"),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small", "classifier.3", r"features\.\d+"),
    "efficientnet_b0": _torchvision("efficientnet_b0", "classifier.1", r"features\.[1-7]\.\d"),
    "convnext_tiny": _torchvision("convnext_tiny", "classifier.2", r"features\.[1357]\.\d"),
    "swin_t": _torchvision("swin_t", "head", r"features\.[1357]\.\d"),
    "vit": _torchvision("VisionTransformer", "heads.head", r"encoder\.layers\.encoder_layer_\d", **_VISION),
    "regnet_y_400mf": _torchvision("regnet_y_400mf", "fc", r"trunk_output\.block\d\.block\d-\d"),
    "shufflenet_v2_x1_0": _torchvision("shufflenet_v2_x1_0", "fc", r"stage\d\.\d"),
    "timm resnet26d": _timm("resnet26d", "fc", r"layer\d\.\d", size=64),
    "timm vit_tiny": _timm("vit_tiny_patch16_224", "head", r"blocks\.\d+", size=64),
    "timm swin_tiny": _timm(
        "swin_tiny_patch4_window7_224", "head.fc", r"layers\.\d\.blocks\.\d", size=56, embed_dim=24
    ),
    "timm convnext_atto": _timm("convnext_atto", "head.fc", r"stages\.\d\.blocks\.\d"),
    "timm mixer_s32": _timm("mixer_s32_224", "head", r"blocks\.\d", size=64),
    "timm efficientnet_lite0": _timm("efficientnet_lite0", "classifier", r"blocks\.\d\.\d"),
    "timm mobilevit_xxs": _timm("mobilevit_xxs", "head.fc", r"stages\.\d\.\d"),
    "Bert": _text("Bert", "classifier", r"bert\.encoder\.layer\.\d", **_TINY),
    "Roberta": _text("Roberta", "classifier.out_proj", r"roberta\.encoder\.layer\.\d", **_TINY),
    "DistilBert": _text("DistilBert", "classifier", r"distilbert\.transformer\.layer\.\d", **_DISTILBERT),
    "Electra": _text("Electra", "classifier.out_proj", r"electra\.encoder\.layer\.\d", embedding_size=24, **_TINY),
    "Albert": _text(
        "Albert", "classifier", r"albert\.encoder\.albert_layer_groups\.0(#\d)?", embedding_size=24, **_TINY
    ),
    "DebertaV2": _text("DebertaV2", "classifier", r"deberta\.encoder\.layer\.\d", relative_attention=True, **_TINY),
    "XLNet": _text("XLNet", "logits_proj", r"transformer\.layer\.\d", side="left", **_XLNET),
    "GPT2": _text("GPT2", "score", r"transformer\.h\.\d", **_GPT),
    "Llama": _text("Llama", "score", r"model\.layers\.\d", num_key_value_heads=2, **_TINY),
    "Qwen2": _text("Qwen2", "score", r"model\.layers\.\d", num_key_value_heads=2, **_TINY),
    "T5": _text(
        "T5", "classification_head.out_proj", r"transformer\.(en|de)coder\.block\.\d", decoder_start_token_id=0, **_T5
    ),
    "ViT": _image("ViT", r"vit\.layers\.\d", **_VIT, **_TINY),
    "Swin": _image("Swin", r"swin\.encoder\.layers\.\d\.blocks\.\d", **_SWIN),
    "ConvNext": _image(
        "ConvNext", r"convnext\.encoder\.stages\.\d\.layers\.\d", hidden_sizes=[12, 16, 24, 32], depths=[1, 1, 2, 1]
    ),
    "AST": _transformers(
        "ASTForAudioClassification",
        "classifier.dense",
        r"audio_spectrogram_transformer\.layers\.\d",
        spectra,
        **_AST,
        **_TINY,
    ),
    "Wav2Vec2": _transformers(
        "Wav2Vec2ForSequenceClassification",
        "classifier",
        r"wav2vec2\.encoder\.layers\.\d",
        sounds,
        **_CONVOLVED,
        **_PLACES,
        **_TINY,
    ),
}
"""The architectures of which the guard finds everything, by name."""

SQUEEZENET = _torchvision("squeezenet1_0", "classifier.1", r"features\.\d+")._replace(batch=partial(pictures, size=64))
"""It goes on with the output of its last convolution, by a ReLU and a mean."""
DISTILLED = _timm("deit_tiny_distilled_patch16_224", "", r"blocks\.\d+", size=32, patch_size=8)
"""It answers with the mean of two heads."""

"""The models of a campaign: of torchvision, timm, transformers and our own, small, with random weights."""

from __future__ import annotations

from functools import partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.pytorch.architectures import CLASSES, call, drawn, library, logits_of, longer, pictures, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Models = Iterator[tuple[str, Callable[[], "Case"]]]

MOST_WEIGHTS = 30_000_000
SIZES = (32, 64, 224)
SMALL = ["test_", "zepto", "atto", "femto", "pico", "nano", "xx", "tiny", "_t", "_xs", "mini", "_050", "_s", "_b0"]
"""What names of small models have in them, the smallest first."""
CONFIG = {
    "d_ff d_inner hidden_dim intermediate_size moe_intermediate_size encoder_ffn_dim decoder_ffn_dim": 48,
    "hidden_size d_model n_embd dim emb_dim embedding_size embed_dim": 32,
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers": 4,
    "num_attention_heads num_key_value_heads n_head n_heads num_heads encoder_attention_heads num_kv_heads": 4,
    "decoder_attention_heads num_experts num_local_experts n_routed_experts": 4,
    "d_kv head_dim patch_size rotary_dim": 8,
    "vocab_size max_position_embeddings n_positions max_source_positions": 64,
    "image_size max_length": 32,
    "num_mel_bins": 16,
    "num_experts_per_tok": 2,
    "bos_token_id": 1,
}
"""Small values of what configurations of transformers have."""


class LeftOutError(Exception):
    """A model is too large, or does not run in this form."""


class Case(NamedTuple):
    """A model, batches for it, and what adds padding to one."""

    model: nn.Module
    batch: Callable[[int, int], Any]
    pad: Callable[[Any], Any] | None = None


def first_that_runs(*attempts: tuple[Callable[[], nn.Module], Callable[[int, int], Any]]) -> Case:
    """Return the first model that answers its batch with logits."""
    outcome: Case | str = "nothing is known of its inputs"
    for build, batch in attempts:
        outcome = attempt(build, batch)
        if isinstance(outcome, Case):
            return outcome
    raise LeftOutError(outcome)


def attempt(build: Callable[[], nn.Module], batch: Callable[[int, int], Any]) -> Case | str:
    """Return a model that runs, or why it does not."""
    try:
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in build().parameters())
        if count > MOST_WEIGHTS:
            return f"{count / 1e6:.0f} million weights"
        model = drawn(build)
        answer = logits_of(call(model, batch(9, 2)))
    except Exception as error:  # noqa: BLE001  # whatever a library raises
        return f"does not run: {type(error).__name__}: {error}".split("\n")[0]
    if answer.shape != (9, CLASSES) or not answer.isfinite().all():
        return f"answers of shape {tuple(answer.shape)}, or not finite"
    return Case(model, batch)


def of_torchvision() -> Models:
    models = library("torchvision").models
    for name in models.list_models(module=models):
        build = partial(models.get_model, name, num_classes=CLASSES)
        yield name, partial(first_that_runs, *((build, partial(pictures, size=size)) for size in SIZES))


def of_timm() -> Models:
    """Yield two small models of every family."""
    library("torchvision")
    timm = library("timm")
    for family in timm.list_modules():
        names = timm.list_models(module=family)
        names.sort(key=lambda name: next((rank for rank, part in enumerate(SMALL) if part in name), len(SMALL)))
        for name in names[:2]:
            build = partial(timm.create_model, name, num_classes=CLASSES)
            sizes = [(partial(build, img_size=64), 64), (build, 64), (build, 224), (build, 256)]
            yield name, partial(first_that_runs, *((build, partial(pictures, size=size)) for build, size in sizes))


def of_transformers() -> Models:
    library("torchvision")
    module = library("transformers")
    kinds = ("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")
    for name in dir(module):
        if name.endswith(kinds) and not name.startswith("AutoModel"):
            yield name, partial(tiny_transformer, getattr(module, name))


def tiny_transformer(kind: Any) -> Case:
    """Return a transformer with a small configuration, as far as its own allows."""
    default = kind.config_class()
    every = {name: value for names, value in CONFIG.items() for name in names.split()}
    values = {name: value for name, value in every.items() if isinstance(getattr(default, name, None), int)}
    values |= {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0, "num_labels": CLASSES}
    values |= {"experts_implementation": "eager"}  # the others have no float64
    try:
        config = kind.config_class(**values)
    except Exception as error:
        raise LeftOutError(f"no such configuration: {error}".replace("\n", " ")) from error
    build, name = partial(kind, config), kind.main_input_name
    if name == "input_ids":
        return first_that_runs((build, sentences))._replace(pad=longer if "Sequence" in kind.__name__ else None)
    shapes: list[tuple[int, ...]] = [(3, size, size) for size in SIZES]
    if name != "pixel_values":
        shapes = [(1600,), (32, 16), (16, 128), (32, 160)]
    return first_that_runs(*((build, partial(noise, name, shape)) for shape in shapes))


def noise(name: str, shape: tuple[int, ...], count: int, seed: int) -> Any:
    values = torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {name: values} if name else values


class Network(nn.Module):
    """A body, what is taken of its output, a head, and what follows."""

    def __init__(self, body: nn.Module, width: int, take: Callable[[Any], Tensor], then: nn.Module) -> None:
        super().__init__()
        self.body, self.take, self.head, self.then = body, take, nn.Linear(width, CLASSES), then

    def forward(self, *args: Any) -> Tensor:
        answer: Tensor = self.then(self.head(self.take(self.body(*args))))
        return answer


class Encoder(nn.Module):
    """PyTorch's own transformer, and the first token or the mean of those that count."""

    def __init__(self, *, norm_first: bool, of_mean: bool, batch_first: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, norm_first=norm_first, batch_first=batch_first)
        self.embed, self.encoder = nn.Embedding(50, 16), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head, self.of_mean, self.batch_first = nn.Linear(16, CLASSES), of_mean, batch_first

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed(input_ids) if self.batch_first else self.embed(input_ids).transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        x = x if self.batch_first else x.transpose(0, 1)
        share = attention_mask / attention_mask.sum(dim=1, keepdim=True)
        logits: Tensor = self.head((x * share[..., None]).sum(dim=1) if self.of_mean else x[:, 0])
        return logits


def of_our_own() -> Models:
    torch.manual_seed(0)
    plain, softmax = nn.Identity(), nn.LogSoftmax(dim=1)
    norms = (nn.Identity, nn.BatchNorm2d, partial(nn.GroupNorm, 2), nn.InstanceNorm2d)
    for norm, activation in product(norms, (partial(nn.ReLU, inplace=True), nn.GELU, nn.Tanh)):
        parts = [(nn.Conv2d(a, b, 3, padding=1), norm(b), activation()) for a, b in pairwise((3, 8, 8, 12, 12, 16))]
        model = Network(nn.Sequential(*(nn.Sequential(*p) for p in parts)), 16, lambda x: x.mean(dim=(2, 3)), plain)
        yield f"CNN of {parts[0][1:]}", partial(Case, model, partial(pictures, size=12))
    takes = {"last": lambda out: out[0][:, -1], "mean": lambda out: out[0].mean(dim=1), "state": lambda out: out[1][-1]}
    for kind, layers, (name, take) in product((nn.RNN, nn.LSTM, nn.GRU), (1, 3), takes.items()):
        if kind is not nn.LSTM or name != "state":
            model = Network(kind(5, 12, layers, batch_first=True, dropout=0.1 * (layers > 1)), 12, take, plain)
            yield f"{kind.__name__} of {layers} layers, {name}", partial(Case, model, partial(noise, "", (7, 5)))
    for options in product((False, True), repeat=3):
        named = dict(zip(("norm_first", "of_mean", "batch_first"), options, strict=True))
        yield f"encoder {named}", partial(Case, Encoder(**named), sentences, longer)
    for depth, then in product((1, 3), (plain, nn.Softmax(dim=1), softmax)):
        parts = [(nn.Linear(width, 16), nn.ReLU(), nn.Dropout(0.1)) for width in (8, 16, 16)[:depth]]
        model = Network(nn.Sequential(*(layer for part in parts for layer in part)), 16, lambda x: x, then)
        yield f"MLP of {depth} layers, {then}", partial(Case, model, partial(noise, "", (8,)))
    for convolution, shape in ((nn.Conv1d, (3, 20)), (nn.Conv3d, (3, 5, 6, 7))):
        body = nn.Sequential(convolution(3, 8, 3), nn.ReLU(inplace=True), convolution(8, 8, 3), nn.ReLU(inplace=True))
        model = Network(body, 8, lambda x: x.flatten(2).mean(dim=2), softmax)
        yield f"CNN of {convolution.__name__}", partial(Case, model, partial(noise, "", shape))


SOURCES = (of_our_own, of_torchvision, of_timm, of_transformers)

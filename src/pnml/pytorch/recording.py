"""One forward pass of a guarded model: its logits, what enters its head, and its layers pooled to one row a sample."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from functools import partial
from itertools import chain
from threading import Lock, get_ident
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from pnml.backend.arrays import is_traced
from pnml.core.layout import WIDEST
from pnml.pytorch.contract import INPUT
from pnml.pytorch.head import HeadNotFoundError, read_head
from pnml.pytorch.layers import LayersNotFoundError, input_table
from pnml.pytorch.models import eager, first_tensor, unfused_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pnml.pytorch.contract import Contract, Layer

_CHANNELS = WIDEST // 2  # of a layer with pixels or tokens, evenly strided: each has a mean and a maximum
Parts = tuple[Tensor, ...]
"""Features of a layer, (n, features) side by side."""


def pool(output: Tensor, layer: Layer, counts: Tensor | None = None) -> Parts:
    """Return the mean and the maximum of channels over pixels or tokens, (n, channels) each.

    At most 256 channels are read, evenly strided; of an output without pixels or tokens at most 512 coordinates, which
    are copied: the next module may overwrite them. Half precision is pooled in float32.

    Args:
        output: of the layer.
        layer: which axis is which.
        counts: which tokens count, (n, T), of outputs with as many.

    >>> from pnml.pytorch.contract import Layer
    >>> join(pool(torch.tensor([[[1.0, 2.0], [3.0, 2.0]]]), Layer("tokens", channel_axis=2)))
    tensor([[2., 2., 3., 2.]])
    """
    axes = layer.batch_axis, layer.channel_axis
    x = output if axes == (0, 1) else output.movedim(axes, (0, 1))
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    if x.ndim == 2:
        return (x[:, :: -(-x.shape[1] // WIDEST)].to(wide, copy=True),)
    step = -(-x.shape[1] // _CHANNELS)
    places = tuple(range(2, x.ndim))
    if counts is not None and x.ndim == 3 and x.shape[2] == counts.shape[1]:
        return _pool_counting(x[:, ::step].to(wide), counts.to(x.device)[:, None])
    if step > 1 and x.stride(1) != 1:  # or else reading all channels, which lie side by side, takes less
        x, step = x[:, ::step], 1
    if x.dtype is not wide:
        x = x.to(wide)
    mean = x.mean(places)
    largest = x.amax(places)
    if step > 1:
        return mean[:, ::step], largest[:, ::step]
    return mean, largest


def _pool_counting(x: Tensor, counts: Tensor) -> Parts:
    """Pool rows (n, C, T) over the tokens that count, (n, 1, T)."""
    largest = x.masked_fill(~counts, -torch.inf).amax(2)
    mean = x.masked_fill(~counts, 0).sum(2) / counts.sum(2)
    return mean, largest


def join(parts: Parts) -> Tensor:
    """Return the features of a layer as one tensor (n, features)."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class Outputs(NamedTuple):
    """What a forward pass of a guarded model gave.

    Attributes:
        logits: shape (n, C).
        embeddings: what entered the head, shape (n, M).
        parts: the features of all that is watched besides, each in parts that stand side by side.
        places: the shape of the answers where every token or pixel has one, (samples, T) or (samples, H, W), whose
            product is n; None where every sample has one.
        counts: which of these n count, (n,), where a mask of tokens says so; None where all do.
        dtype: the coarsest precision on the way from the embeddings to the logits.
    """

    logits: Tensor
    embeddings: Tensor
    parts: Sequence[Parts] = ()
    places: tuple[int, ...] | None = None
    counts: Tensor | None = None
    dtype: torch.dtype = torch.float32

    @property
    def features(self) -> list[Tensor]:
        """The features of all that is watched besides the embeddings, (n, features of it) each."""
        return [join(parts) for parts in self.parts]

    @property
    def rows(self) -> Tensor:
        """The embeddings, followed by all features, joined by one call; half precision in float32."""
        embeddings = self.embeddings
        if not self.parts:
            return embeddings.float() if embeddings.dtype.itemsize < 4 else embeddings
        device = embeddings.device
        others = [x if x.device == device else x.to(device) for x in chain.from_iterable(self.parts)]
        return torch.cat([embeddings, *others], dim=1)

    def counting(self) -> Outputs:
        """Return what is to be learnt from: padding is left out."""
        if self.counts is None:
            return self
        return self._replace(logits=self.logits[self.counts], embeddings=self.embeddings[self.counts], counts=None)


class _Pass:
    """What is seen in one forward pass of one thread."""

    def __init__(self, counts: Tensor | None, modules: int, layers: int) -> None:
        self.counts = counts
        self.calls = [0] * modules
        self.heads: list[tuple[Any, Any]] = []
        self.parts: list[Parts | None] = [None] * layers


class Recorder:
    """Hooks on the head and the layers of a model, made once; they are on the model only while it runs.

    Any number of threads may run it at once: what a hook sees goes to the pass of its thread.

    Args:
        model: out of its wrappers.
        layers: to be watched.
        head: the name of its last layer, None if nobody asks for what enters it.
    """

    def __init__(self, model: nn.Module, layers: Sequence[Layer], head: str | None = None) -> None:
        self._model, self._layers = model, tuple(layers)
        self._lock, self._users = Lock(), 0
        self._passes: dict[int, _Pass] = {}
        self._compiling: _Pass | None = None
        self._compiled: Callable[..., Any] | None = None
        by_name: dict[str, list[tuple[int, Layer]]] = {}
        for number, layer in enumerate(self._layers):
            by_name.setdefault(layer.name, []).append((number, layer))
        # The hooks have the same numbers in every pass: torch.compile compiles anew when it finds others.
        self._hooks: list[tuple[nn.Module, int, Callable[..., None]]] = []
        for module_number, (name, wanted) in enumerate(by_name.items()):
            hook = partial(self._note_layer, module_number, wanted)
            self._hooks.append((model.get_submodule(name), RemovableHandle(OrderedDict()).id, hook))
        if head is not None:
            self._hooks.append((model.get_submodule(head), RemovableHandle(OrderedDict()).id, self._note_head))
        self._modules = len(by_name)
        self._unfuses = any(isinstance(module, nn.TransformerEncoder) for module in model.modules())

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, _Pass]:
        """Run the model, in eval mode, on arguments with these tokens that count; return its answer and the pass."""
        if self._compiled is not None:
            return self._run_compiled(args, kwargs, counts)
        seen = _Pass(counts, self._modules, len(self._layers))
        self._begin(seen)
        try:
            if self._unfuses:
                with unfused_attention():
                    return eager(self._model)(*args, **kwargs), seen
            return eager(self._model)(*args, **kwargs), seen
        finally:
            self._end()

    @contextmanager
    def watching(self) -> Iterator[list[Parts | None]]:
        """Watch the forward passes of this thread while the context is open; yield the features of the layers."""
        seen = _Pass(None, self._modules, len(self._layers))
        self._begin(seen)
        try:
            yield seen.parts
        finally:
            self._end()

    def compile(self, options: dict[str, Any]) -> None:
        """Run the model as compiled code from now on, one batch at a time."""
        code = Recorder._traced.__code__.replace()  # PyTorch keeps eight versions of one code, for all models
        own = FunctionType(code, Recorder._traced.__globals__, "traced")
        self._compiled = torch.compile(MethodType(own, self), **options)

    def _run_compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, _Pass]:
        assert self._compiled is not None  # noqa: S101 - asked before
        with _COMPILED:
            seen = _Pass(counts, self._modules, len(self._layers))
            self._begin(seen)
            try:
                with unfused_attention():
                    answer, seen.heads, seen.parts = self._compiled(args, kwargs, counts)
            finally:
                self._end()
                self._compiling = None  # which holds the batch
            return answer, seen

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, Any, Any]:
        seen = _Pass(counts, self._modules, len(self._layers))
        self._compiling = seen
        answer = eager(self._model)(*args, **kwargs)
        return answer, seen.heads, seen.parts

    def _begin(self, seen: _Pass) -> None:
        with self._lock:
            self._passes[get_ident()] = seen
            self._users += 1
            if self._users == 1:
                for module, number, hook in self._hooks:
                    module._forward_hooks_with_kwargs[number] = True  # noqa: SLF001 - a new number compiles anew
                    module._forward_hooks[number] = hook  # noqa: SLF001

    def _end(self) -> None:
        with self._lock:
            self._passes.pop(get_ident(), None)
            self._users -= 1
            if not self._users:
                for module, number, _ in self._hooks:
                    module._forward_hooks.pop(number, None)  # noqa: SLF001
                    module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001

    def _this_pass(self) -> _Pass | None:
        if torch.compiler.is_dynamo_compiling():
            return self._compiling
        seen = self._passes.get(get_ident())
        return seen if seen is None or self._compiling is None else self._compiling

    def _note_head(self, _module: nn.Module, args: tuple[Any, ...], *given: Any) -> None:
        seen = self._this_pass()
        if seen is not None:
            seen.heads.append((args[0] if args else next(iter(given[0].values()), None), given[-1]))

    def _note_layer(self, number: int, wanted: Sequence[tuple[int, Layer]], _module: nn.Module, *given: Any) -> None:
        # Whether keyword arguments are given is a mark of its own, which another thread may just have taken away.
        seen = self._this_pass()
        if seen is None:
            return
        call = seen.calls[number]
        seen.calls[number] += 1
        for place, layer in wanted:
            if layer.call == call:
                tensor = first_tensor(given[-1])
                seen.parts[place] = None if tensor is None else pool(tensor, layer, seen.counts)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a guard makes its own


_COMPILED = Lock()
"""Compiled code runs one batch at a time: code compiled while hooks of two passes are there would be of both."""


def record_layers(model: nn.Module, layers: Sequence[Layer]) -> Any:
    """Pool the outputs of layers in this thread's forward passes while the context is open.

    Args:
        model: to be run inside the context.
        layers: of that model.

    Returns:
        A context that yields the features of every layer, in parts that :func:`join` puts side by side; None until the
        layer has been called.
    """
    return Recorder(model, layers).watching()


def input_rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return a copy of at most 512 evenly strided columns of a model's first argument; None if it is no table."""
    table = input_table(args, kwargs)
    if table is None:
        return None
    wide = torch.float64 if table.dtype is torch.float64 else torch.float32
    return table[:, :: -(-table.shape[1] // WIDEST)].to(wide, copy=True)


def read_pass(contract: Contract, recorded: tuple[Tensor, _Pass], head: nn.Module, table: Tensor | None) -> Outputs:
    """Return what a forward pass gave, by how a guard reads its model.

    Args:
        contract: how it does.
        recorded: the model's logits, and what was seen in the pass.
        head: the last layer.
        table: the rows of the input, where it is watched.
    """
    answer, seen = recorded
    if contract.head.call >= len(seen.heads):
        raise HeadNotFoundError(
            f"the head {contract.head.name!r} was called {len(seen.heads)} times, and its call {contract.head.call} is "
            "what was fitted: the model answers by another layer, or the head is inside a compiled part of it. Fit "
            "again if the model was changed, guard.fit(train_loader)"
        )
    call = seen.heads[contract.head.call]
    embeddings, logits, places = read_head(contract.head, head, call, answer, seen.counts)
    parts: list[Parts] = []
    for layer, part in zip(contract.layers, seen.parts, strict=True):
        if part is None or part[0].shape[0] != embeddings.shape[0]:
            raise LayersNotFoundError(
                f"layer {str(layer)!r} did not put out one entry per sample, as it did in the first batch: name others,"
                " pnml.guard(model, layers=[...]), or take layers='last'"
            )
        parts.append(part)
    if contract.has_input:
        if table is None or table.shape[0] != embeddings.shape[0]:
            raise ValueError(f"the layer {INPUT!r} is the first argument, a table of numbers (n, columns): pass it")
        parts.append((table,))
    counts = None
    if places is not None and seen.counts is not None and tuple(seen.counts.shape) == places:
        counts = seen.counts.flatten()
    dtype = embeddings.dtype
    if not is_traced() and torch.finfo(call[1].dtype).eps > torch.finfo(dtype).eps:
        dtype = call[1].dtype
    return Outputs(logits, embeddings, parts, places, counts, dtype)

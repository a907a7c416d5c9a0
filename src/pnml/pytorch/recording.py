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
from pnml.pytorch.models import eager, first_tensor, unfused_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from pnml.pytorch.contract import Layer

_CHANNELS = WIDEST // 2  # of a layer with pixels or tokens, evenly strided: each has a mean and a maximum
Parts = tuple[Tensor, ...]
"""Features of a layer, (n, features) side by side."""


def copied_columns(table: Tensor) -> Tensor:
    """Return a copy of at most 512 evenly strided columns of a table (n, columns); half precision in float32."""
    wide = torch.float64 if table.dtype is torch.float64 else torch.float32
    step = -(-table.shape[1] // WIDEST)
    if step > 1:
        table = table[:, ::step]
    return table.to(wide, copy=True)


def pool(output: Tensor, layer: Layer, counts: Tensor | None = None) -> Parts:
    """Return the mean and the maximum of channels over pixels or tokens, (n, channels) each.

    At most 256 channels are read, evenly strided; of an output without pixels or tokens at most 512 coordinates, which
    are copied: the next module may overwrite them. Half precision is pooled in float32.
    ``counts`` says which tokens count, (n, T), of outputs with as many.

    >>> from pnml.pytorch.contract import Layer
    >>> join(pool(torch.tensor([[[1.0, 2.0], [3.0, 2.0]]]), Layer("tokens", channel_axis=2)))
    tensor([[2., 2., 3., 2.]])
    """
    x = output
    channels = layer.channel_axis
    if x.ndim == 2:
        return (copied_columns(x if channels == 1 else x.T),)
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    step = -(-x.shape[channels] // _CHANNELS)
    reads_all = step > 1 and x.stride(channels) == 1  # all channels, which lie side by side, take less than every other
    if step > 1 and not reads_all:
        x = x[(slice(None),) * channels + (slice(None, None, step),)]
    if x.dtype is not wide:
        x = x.to(wide)
    places = tuple(axis for axis in range(x.ndim) if axis not in {layer.batch_axis, channels})
    if counts is not None and x.ndim == 3 and x.shape[places[0]] == counts.shape[1]:
        mean, largest = _pool_some(x, layer, places[0], counts.to(x.device))
    else:
        mean = x.mean(places)
        largest = x.amax(places)
    if layer.batch_axis > channels:
        mean, largest = mean.T, largest.T
    if reads_all:
        return mean[:, ::step], largest[:, ::step]
    return mean, largest


def _pool_some(x: Tensor, layer: Layer, tokens: int, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the maximum over the tokens that count, (n, T), along an axis of x."""
    if x.is_cpu and not is_traced() and bool(counts.all()):  # on a GPU to look would be to wait
        return x.mean(tokens), x.amax(tokens)
    if layer.batch_axis > tokens:
        counts = counts.T
    padding = ~counts.unsqueeze(layer.channel_axis)
    mean = x.masked_fill(padding, 0).sum(tokens) / (~padding).sum(tokens)
    return mean, x.masked_fill(padding, -torch.inf).amax(tokens)


def join(parts: Parts) -> Tensor:
    """Return the features of a layer as one tensor (n, features)."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class Outputs(NamedTuple):
    """What a forward pass of a guarded model gave."""

    logits: Tensor  # (n, C)
    embeddings: Tensor  # what entered the head, (n, M)
    parts: Sequence[Parts] = ()  # of all that is watched besides
    places: tuple[int, ...] | None = None  # (samples, T) or (samples, H, W), of product n: each place has an answer
    counts: Tensor | None = None  # which of these n count, where a mask of tokens says so
    dtype: torch.dtype = torch.float32  # the coarsest on the way from the embeddings to the logits

    @property
    def features(self) -> list[Tensor]:
        """The features of all that is watched besides the embeddings, (n, features of it) each."""
        return [join(parts) for parts in self.parts]

    @property
    def rows(self) -> Tensor:
        """The embeddings, followed by all features, joined by one call; half precision in float32."""
        embeddings = self.embeddings
        if self.parts:
            return torch.cat([embeddings, *chain.from_iterable(self.parts)], dim=1)
        return embeddings.float() if embeddings.dtype.itemsize < 4 else embeddings

    def counting(self) -> Outputs:
        """Return what is to be learnt from: padding is left out."""
        if self.counts is None:
            return self
        return self._replace(logits=self.logits[self.counts], embeddings=self.embeddings[self.counts], counts=None)


class Pass:
    """What a recorder sees in one forward pass of this thread, while the context is open."""

    def __init__(self, recorder: Recorder, counts: Tensor | None = None) -> None:
        self._recorder = recorder
        self.counts = counts  # which tokens count, (n, T)
        self.calls = [0] * recorder.n_modules
        self.heads: list[tuple[Any, Any]] = []  # what entered the head and what it put out, call by call
        self.parts: list[Parts | None] = [None] * recorder.n_layers

    def __enter__(self) -> Self:
        recorder = self._recorder
        with recorder.lock:
            recorder.passes[get_ident()] = self
            if len(recorder.passes) == 1:
                for module, number, hook in recorder.hooks:
                    module._forward_hooks_with_kwargs[number] = True  # noqa: SLF001 - a new number compiles anew
                    module._forward_hooks[number] = hook  # noqa: SLF001
        return self

    def __exit__(self, *_: object) -> None:
        recorder = self._recorder
        with recorder.lock:
            recorder.passes.pop(get_ident(), None)
            if not recorder.passes:
                for module, number, _hook in recorder.hooks:
                    module._forward_hooks.pop(number, None)  # noqa: SLF001
                    module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001


class Recorder:
    """Hooks on the head and the layers of a model, made once; they are on the model only while it runs.

    Any number of threads may run it at once: what a hook sees goes to the pass of its thread. The model is out of its
    wrappers; ``head`` is the name of its last layer, None if nobody asks for what enters it.
    """

    def __init__(self, model: nn.Module, layers: Sequence[Layer], head: str | None = None) -> None:
        self._model = model
        self.lock = Lock()
        self.passes: dict[int, Pass] = {}
        self._compiling: Pass | None = None
        self._compiled: Callable[..., Any] | None = None
        by_name: dict[str, list[tuple[int, Layer]]] = {}
        for number, layer in enumerate(layers):
            by_name.setdefault(layer.name, []).append((number, layer))
        self.n_layers = len(layers)
        self.n_modules = len(by_name)
        # The hooks have the same numbers in every pass: torch.compile compiles anew when it finds others.
        self.hooks: list[tuple[nn.Module, int, Callable[..., None]]] = []
        for module_number, (name, outputs) in enumerate(by_name.items()):
            hook = partial(self._note_layer, module_number, outputs)
            self.hooks.append((model.get_submodule(name), RemovableHandle(OrderedDict()).id, hook))
        if head is not None:
            self.hooks.append((model.get_submodule(head), RemovableHandle(OrderedDict()).id, self._note_head))
        self._unfuses = any(isinstance(module, nn.TransformerEncoder) for module in model.modules())

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, Pass]:
        """Run the model, in eval mode, on arguments with these tokens that count; return its answer and the pass."""
        if self._compiled is not None:
            return self._run_compiled(args, kwargs, counts)
        with Pass(self, counts) as record:
            if self._unfuses:
                with unfused_attention():
                    return eager(self._model)(*args, **kwargs), record
            return eager(self._model)(*args, **kwargs), record

    def compile(self, options: dict[str, Any]) -> None:
        """Run the model as compiled code from now on, one batch at a time."""
        code = Recorder._traced.__code__.replace()  # PyTorch keeps eight versions of one code, for all models
        own = FunctionType(code, Recorder._traced.__globals__, "traced")
        self._compiled = torch.compile(MethodType(own, self), **options)

    def _run_compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, Pass]:
        assert self._compiled is not None  # noqa: S101 - asked before
        with _COMPILED, Pass(self, counts) as record, unfused_attention():
            try:
                answer, record.heads, record.parts = self._compiled(args, kwargs, counts)
            finally:
                self._compiling = None  # which holds the batch
            return answer, record

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any], counts: Tensor | None) -> tuple[Any, Any, Any]:
        record = Pass(self, counts)
        self._compiling = record
        answer = eager(self._model)(*args, **kwargs)
        return answer, record.heads, record.parts

    def _this_pass(self) -> Pass | None:
        if torch.compiler.is_dynamo_compiling():
            return self._compiling
        record = self.passes.get(get_ident())
        return record if record is None or self._compiling is None else self._compiling

    # Whether a hook gets keyword arguments is a mark of its own, which another thread may just have taken away.
    def _note_head(self, _module: nn.Module, args: tuple[Any, ...], *others: Any) -> None:
        record = self._this_pass()
        if record is not None:
            record.heads.append((args[0] if args else next(iter(others[0].values()), None), others[-1]))

    def _note_layer(self, number: int, outputs: Sequence[tuple[int, Layer]], _module: nn.Module, *others: Any) -> None:
        record = self._this_pass()
        if record is None:
            return
        call = record.calls[number]
        record.calls[number] += 1
        for place, layer in outputs:
            if layer.call == call:
                tensor = first_tensor(others[-1])
                record.parts[place] = None if tensor is None else pool(tensor, layer, record.counts)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a guard makes its own


_COMPILED = Lock()
"""Compiled code runs one batch at a time: code compiled while hooks of two passes are there would be of both."""


@contextmanager
def record_layers(model: nn.Module, layers: Sequence[Layer]) -> Iterator[list[Parts | None]]:
    """Pool the outputs of layers in this thread's forward passes while the context is open.

    It yields the features of every layer, in parts that :func:`join` puts side by side; None until it was called.
    """
    with Pass(Recorder(model, layers)) as record:
        yield record.parts

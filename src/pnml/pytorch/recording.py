"""The outputs of layers in a forward pass, each pooled to one row per sample."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from pnml.backend.arrays import is_traced
from pnml.pytorch.calls import tensor_at
from pnml.pytorch.head import in_this_thread, unfused_attention
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.module_tree import submodules
from pnml.pytorch.pooling import pool, token_shares
from pnml.pytorch.token_mask import token_mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from torch.utils.hooks import RemovableHandle

    from pnml.pytorch.head import Note
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.pooling import Parts
    from pnml.pytorch.token_mask import MaskSource


def record_layers(
    model: nn.Module,
    layers: Sequence[Layer],
    kwargs: dict[str, Any],
    args: tuple[Any, ...] = (),
    source: MaskSource | None = None,
) -> AbstractContextManager[list[Parts | None]]:
    """Pool the outputs of layers in this thread's forward passes while the context is open.

    Args:
        model: to be run inside the context.
        layers: of that model.
        kwargs: the model's keyword arguments, for the mask of its tokens.
        args: its positional arguments, likewise.
        source: what says which tokens count, where no name of an argument does.

    Returns:
        What :meth:`LayerPlaces.recorded` returns.
    """
    return LayerPlaces(model, layers).recorded(token_mask(model, args, kwargs, source))


class LayerPlaces:
    """The modules whose outputs are layers, found once for any number of forward passes.

    Args:
        model: whose modules they are; they are looked for now, and not again.
        layers: of that model.

    Attributes:
        layers: all of them.
        modules: whose outputs they are, each once.
    """

    def __init__(self, model: nn.Module, layers: Sequence[Layer]) -> None:
        wanted: dict[str, list[tuple[int, Layer]]] = {}
        for number, layer in enumerate(layers):
            wanted.setdefault(layer.name, []).append((number, layer))
        paths = {name: [model, *submodules(model, name)] for name in wanted}
        self._model, self.layers = model, tuple(layers)
        self._by_module = list(wanted.values())
        self.modules = [paths[name][-1] for name in wanted]
        self._encoders = [module for path in paths.values() for module in path[:-1] if isinstance(module, _ENCODERS)]

    @contextmanager
    def recorded(self, mask: Tensor | None) -> Iterator[list[Parts | None]]:
        """Pool the outputs of the layers in this thread's forward passes while the context is open.

        Args:
            mask: which tokens of the model's arguments count, (n, T).

        Yields:
            The features of every layer, in parts that :func:`~pnml.pytorch.pooling.join` puts side by side; None until
            the layer has been called, and where it is not known which of its tokens count, and was known at first.
        """
        pooled: list[Parts | None] = [None] * len(self.layers)
        notes = map(in_this_thread, self.notes(mask, pooled))
        handles = _add_hooks(list(zip(self.modules, notes, strict=True)))
        try:
            with self.unfused():
                yield pooled
        finally:
            for handle in handles:
                handle.remove()

    def unfused(self) -> AbstractContextManager[None]:
        """Let the parts of a transformer be called one by one where their outputs would not be seen otherwise."""
        return unfused_attention() if any(map(_may_fuse, self._encoders)) else nullcontext()

    def notes(self, mask: Tensor | None, pooled: list[Parts | None]) -> list[Note]:
        """Return a hook for every module that fills in the features of those of its outputs that are layers."""
        share = None if mask is None else token_shares(mask)  # once for all layers with as many tokens
        return [self._note(layers, mask, share, pooled) for layers in self._by_module]

    def _note(
        self, layers: list[tuple[int, Layer]], mask: Tensor | None, share: Tensor | None, pooled: list[Parts | None]
    ) -> Note:
        calls = 0

        def note(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            nonlocal calls
            for number, layer in layers:
                if layer.call == calls:
                    pooled[number] = self._pooled(output, layer, mask, share)
            calls += 1

        return note

    def _pooled(self, output: Any, layer: Layer, mask: Tensor | None, share: Tensor | None) -> Parts | None:
        tensor = tensor_at(output, layer.entry)
        if tensor is None or mask is None or not layer.has_mask or tensor.ndim != 3:
            return None if tensor is None else pool(tensor, layer)
        counting = mask_of_length(self._model, mask, _tokens(tensor, layer), layer.reach)
        if counting is None:
            return None
        return pool(tensor, layer, share if counting is mask else token_shares(counting))


def _tokens(output: Tensor, layer: Layer) -> int:
    """Return how many tokens an output of three axes has."""
    return output.shape[3 - layer.batch_axis - layer.channel_axis]


def _add_hooks(notes: Sequence[tuple[nn.Module, Note]]) -> list[RemovableHandle]:
    """Call each note after its module, and return what takes the hooks away again.

    An encoder layer with hooks of its own does not fuse its parts, which takes longer and rounds otherwise. A hook of
    all modules leaves it alone; where the model becomes part of a graph, nothing is fused anyway.
    """
    fused = [] if is_traced() else [pair for pair in notes if isinstance(pair[0], nn.TransformerEncoderLayer)]

    def note_fused(called: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        for module, note in fused:
            if module is called:
                note(module, args, output)

    handles = [module.register_forward_hook(note) for module, note in notes if (module, note) not in fused]
    return [*handles, register_module_forward_hook(note_fused)] if fused else handles


_ENCODERS = (nn.TransformerEncoderLayer, nn.TransformerEncoder)


def _may_fuse(encoder: nn.Module) -> bool:
    """Return whether fused attention would hide the outputs of an encoder's parts, or put them out without padding.

    An encoder layer that is fused does not call its parts; an ``nn.TransformerEncoder`` may hand nested tensors to its
    layers.
    """
    return isinstance(encoder, nn.TransformerEncoderLayer) or bool(encoder.use_nested_tensor)

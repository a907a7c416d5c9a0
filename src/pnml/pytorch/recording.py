"""The outputs of layers in a forward pass, each pooled to one row per sample."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from pnml.backend.arrays import is_traced
from pnml.pytorch.calls import tensor_at
from pnml.pytorch.head import unfused_attention
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.module_tree import submodules
from pnml.pytorch.pooling import pool, token_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.utils.hooks import RemovableHandle

    from pnml.pytorch.layers import Layer
    from pnml.pytorch.pooling import Parts

    Note = Callable[[nn.Module, tuple[Any, ...], Any], None]


@contextmanager
def record_layers(
    model: nn.Module, layers: Sequence[Layer], kwargs: dict[str, Any], args: tuple[Any, ...] = ()
) -> Iterator[list[Parts | None]]:
    """Pool the outputs of layers in this thread's forward passes while the context is open.

    Args:
        model: to be run inside the context.
        layers: of that model.
        kwargs: the model's keyword arguments, for the mask of its tokens.
        args: its positional arguments, likewise.

    Yields:
        The features of every layer, in parts that :func:`~pnml.pytorch.pooling.join` puts side by side; None until the
        layer has been called, and where it is not known which of its tokens count, and was known at first.
    """
    pooled: list[Parts | None] = [None] * len(layers)
    mask = token_mask(model, args, kwargs)
    thread = get_ident()
    wanted: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        wanted.setdefault(layer.name, []).append(number)
    calls = dict.fromkeys(wanted, 0)

    def watch(name: str) -> Note:
        def note(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            if get_ident() != thread:
                return
            call, calls[name] = calls[name], calls[name] + 1
            for number in wanted[name]:
                layer = layers[number]
                tensor = tensor_at(output, layer.entry)
                if layer.call != call or tensor is None:
                    continue
                has_mask = mask is not None and layer.has_mask and tensor.ndim == 3
                counting = mask_of_length(model, mask, _tokens(tensor, layer)) if has_mask else None
                if not has_mask or counting is not None:
                    pooled[number] = pool(tensor, layer, counting)

        return note

    paths = {name: [model, *submodules(model, name)] for name in wanted}
    handles = _add_hooks([(path[-1], watch(name)) for name, path in paths.items()])
    try:
        with unfused_attention() if any(map(_are_fused, paths.values())) else nullcontext():
            yield pooled
    finally:
        for handle in handles:
            handle.remove()


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


def _are_fused(path: Sequence[nn.Module]) -> bool:
    """Return whether fused attention would hide the output of a module, or put it out without padding.

    An encoder layer that is fused does not call its parts; an ``nn.TransformerEncoder`` may hand nested tensors to its
    layers.

    Args:
        path: the modules from the model to that one.
    """
    around = path[:-1]
    return any(
        isinstance(module, nn.TransformerEncoderLayer)
        or (isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor)
        for module in around
    )

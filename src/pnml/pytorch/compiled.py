"""Forward passes of a guarded model, as it is or compiled: the model, what enters its head, its layers pooled.

``torch.compile`` compiles the hooks of a model along with it, and compiles anew when it finds others. So the hooks of
a guard, which are on the model only while it runs, are the same objects in every pass here, under the same numbers, and
what they do in a pass is handed to them when it begins.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from threading import Lock, get_ident
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.utils.hooks import RemovableHandle

from pnml.pytorch.head import eager, note_calls, record_calls
from pnml.pytorch.recording import LayerPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    from pnml.pytorch.head import Call, Note
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.pooling import Parts


class Recorded(NamedTuple):
    """What was seen in a forward pass.

    Attributes:
        answer: what the model returned.
        calls: of its last layers, by name.
        pooled: the features of every layer; see :meth:`~pnml.pytorch.recording.LayerPlaces.recorded`.
    """

    answer: Any
    calls: dict[str, list[Call]]
    pooled: list[Parts | None]


class EagerPass(NamedTuple):
    """Runs a model as it is.

    Attributes:
        model: to be run.
        heads: its last layers, by name.
        places: its layers.
    """

    model: nn.Module
    heads: dict[str, nn.Module]
    places: LayerPlaces

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], mask: Tensor | None) -> Recorded:
        """Run the model on these arguments, of whose tokens those count that a mask (n, T) says."""
        with record_calls(self.heads) as calls, self.places.recorded(mask) as pooled:
            return Recorded(eager(self.model)(*args, **kwargs), calls, pooled)


_locks: WeakKeyDictionary[nn.Module, Lock] = WeakKeyDictionary()
_lock_of_locks = Lock()


def lock_of(model: nn.Module) -> Lock:
    """Return the lock of a model: what is compiled while hooks of two passes are on it would be of both."""
    with _lock_of_locks:
        return _locks.setdefault(model, Lock())


class CompiledPass:
    """Runs a model as compiled code, one batch at a time.

    Args:
        model: to be run; it is left as it is.
        heads: its last layers, by name.
        places: its layers.
        options: of ``torch.compile``.
    """

    def __init__(
        self, model: nn.Module, heads: dict[str, nn.Module], places: LayerPlaces, options: dict[str, Any]
    ) -> None:
        self.heads, self.places, self._model = heads, places, model
        modules = [*heads.values(), *places.modules]
        self._hooks = [_Hook(module, self._hook(number)) for number, module in enumerate(modules)]
        self._notes: list[Note] = []
        self._thread: int | None = None
        self._compiled = torch.compile(MethodType(_with_own_code(CompiledPass._run), self), **options)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], mask: Tensor | None) -> Recorded:
        """Run the model on these arguments, of whose tokens those count that a mask (n, T) says."""
        with lock_of(self._model), self.places.unfused(), _on(self._hooks):
            self._thread = get_ident()
            try:
                found: Recorded = self._compiled(args, kwargs, mask)
                return found
            finally:
                self._notes = []  # which hold the batch

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], mask: Tensor | None) -> Recorded:
        calls: dict[str, list[Call]] = {name: [] for name in self.heads}
        pooled: list[Parts | None] = [None] * len(self.places.layers)
        of_layers = [_without_kwargs(note) for note in self.places.notes(mask, pooled)]
        self._notes = [note_calls(seen) for seen in calls.values()] + of_layers
        answer = eager(self._model)(*args, **kwargs)
        return Recorded(answer, calls, pooled)

    def _hook(self, number: int) -> Note:
        """Return a hook that leaves what it does to a note of the pass; the calls of other threads are passed over."""

        def hook(*call: Any) -> None:
            if torch.compiler.is_dynamo_compiling() or get_ident() == self._thread:
                self._notes[number](*call)

        return hook

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a guard compiles anew


class _Hook:
    """A forward hook with the same number whenever it is on its module: for another PyTorch 2.6 compiles anew."""

    def __init__(self, module: nn.Module, run: Note) -> None:
        self._number: int = RemovableHandle(OrderedDict()).id  # that no other hook has
        self._module, self._run = module, run

    def add(self) -> None:
        for kept, value in zip(self._kept, (self._run, True), strict=True):
            kept[self._number] = value

    def remove(self) -> None:
        for kept in self._kept:
            kept.pop(self._number, None)

    @property
    def _kept(self) -> tuple[dict[int, Any], dict[int, bool]]:
        module = self._module  # whose own register_forward_hook takes a new number every time
        return module._forward_hooks, module._forward_hooks_with_kwargs  # noqa: SLF001


@contextmanager
def _on(hooks: list[_Hook]) -> Iterator[None]:
    """Have hooks on their modules while the context is open."""
    try:
        for hook in hooks:
            hook.add()
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _with_own_code(function: Callable[..., Recorded]) -> FunctionType:
    """Return a function whose compiled versions are its own: PyTorch keeps eight of one code, for all models."""
    assert isinstance(function, FunctionType)  # noqa: S101 - not built in
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _without_kwargs(note: Note) -> Note:
    def hook(module: nn.Module, args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
        note(module, args, output)

    return hook


class KeptPasses:
    """The pass of a guarded model, kept as long as its modules, its head and its layers are the same."""

    def __init__(self) -> None:
        self._options: dict[str, Any] | None = None
        self._places: tuple[list[nn.Module], tuple[Layer, ...], LayerPlaces] | None = None
        self._compiled: CompiledPass | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether passes are compiled."""
        return self._options is not None

    def compile(self, options: dict[str, Any]) -> None:
        """Compile passes from now on, with these options of ``torch.compile``."""
        torch.compile(**options)  # which refuses what is none of its options
        self._options, self._compiled = options, None

    def pass_of(
        self,
        model: nn.Module,
        heads: dict[str, nn.Module],
        layers: tuple[Layer, ...],
        modules: list[nn.Module] | None,
        *,
        compiled: bool,
    ) -> EagerPass | CompiledPass:
        """Return what runs a model and sees its heads and its layers.

        Args:
            model: to be run.
            heads: its last layers, by name.
            layers: of the model.
            modules: all of the model, the same list as long as they are the same modules.
            compiled: whether to run compiled code after :meth:`compile`.
        """
        if self._options is None or not compiled:
            return EagerPass(model, heads, self._places_of(model, layers, modules))
        with lock_of(model):  # several threads may ask for the first one
            places, known = self._places_of(model, layers, modules), self._compiled
            if known is None or known.places is not places or known.heads != heads:
                self._compiled = known = CompiledPass(model, heads, places, self._options)
            return known

    def _places_of(self, model: nn.Module, layers: tuple[Layer, ...], modules: list[nn.Module] | None) -> LayerPlaces:
        """Return where the layers are in the model, as found before if its modules are known to be the same."""
        if modules is None:
            return LayerPlaces(model, layers)
        known = self._places
        if known is None or known[0] is not modules or known[1] is not layers:
            known = modules, layers, LayerPlaces(model, layers)
            self._places = known
        return known[2]

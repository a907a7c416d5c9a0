"""One forward pass of a model on a few samples: which module calls which, and what their outputs are like."""

from __future__ import annotations

import math
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from pnml.pytorch.models import copied, eager, first_tensor, is_compiled, unfused_attention

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEPT = 2**26  # numbers of outputs with tokens or pixels that are kept, the last ones: heads are among them


@dataclass(eq=False)
class Call:
    """One call of a module."""

    name: str
    module: nn.Module
    number: int = 0  # which of the module's calls, in the order in which they return
    start: int = 0  # how many modules with parameters and without parts had returned before; a measure of depth
    end: int = 0  # the same when it returned
    weights: nn.Module | None = None  # the last such module until then
    shape: tuple[int, ...] | None = None  # of the output's first tensor, None where there is none of floating point
    place: tuple[int, int] | None = None  # where that lies and how long it is: the same where it is passed on
    entered: Tensor | None = None  # the first argument, while it is kept
    output: Tensor | None = None  # likewise
    children: list[Call] = field(default_factory=list)


class Trace:
    """The calls of a forward pass, in the order in which they returned, and what the model returned."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.root = Call("", model)
        self.calls: list[Call] = []
        self._names = dict(seen_modules(model))
        self._stack: list[Call] = []
        self._numbers = Counter[str]()
        self._depth = 0
        self._weights: nn.Module | None = None
        self._kept: deque[Call] = deque()
        self._size = 0
        self._thread = get_ident()
        with ExitStack() as stack:
            for module in self._names:
                stack.callback(module.register_forward_pre_hook(self._enter).remove)
                stack.callback(module.register_forward_hook(self._leave, with_kwargs=True).remove)
            stack.enter_context(unfused_attention())
            self.answer: Any = eager(model)(*copied(args), **copied(kwargs))

    def _enter(self, module: nn.Module, _args: tuple[Any, ...]) -> None:
        if get_ident() != self._thread:
            return
        call = Call(self._names[module], module, start=self._depth)
        if self._stack:
            self._stack[-1].children.append(call)
        else:
            self.root = call
        self._stack.append(call)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if get_ident() != self._thread:
            return
        while self._stack[-1].module is not module:  # calls that failed, and the model tried another one
            self._stack.pop()
        call = self._stack.pop()
        call.number = self._numbers[call.name]
        self._numbers[call.name] += 1
        if not call.children and next(module.parameters(), None) is not None:
            self._depth += 1
            self._weights = module
        call.end = self._depth
        call.weights = self._weights
        self.calls.append(call)
        tensor = first_tensor(output)
        if tensor is None or not tensor.is_floating_point() or tensor.layout != torch.strided:
            return
        entered = args[0] if args else next(iter(kwargs.values()), None)
        call.shape = tuple(tensor.shape)
        call.place = (tensor.data_ptr(), tensor.numel())
        call.output = tensor
        call.entered = entered if isinstance(entered, Tensor) else None
        if tensor.ndim > 2:
            self._kept.append(call)
            self._size += tensor.numel()
            while self._size > _KEPT and len(self._kept) > 1:
                oldest = self._kept.popleft()
                oldest.entered = None
                oldest.output = None
                self._size -= math.prod(oldest.shape or ())


def seen_modules(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules of a model that hooks reach, and their names: none of compiled or scripted parts.

    >>> [name for _, name in seen_modules(nn.Sequential(nn.ReLU()))]
    ['', '0']
    """
    hidden: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if name.startswith(hidden):
            continue
        is_closed = isinstance(module, (torch.jit.ScriptModule, ParametrizationList))
        if name:  # the model itself is run uncompiled
            is_closed = is_closed or getattr(module, "_compiled_call_impl", None) is not None
        if is_closed or (name and is_compiled(module)):
            hidden += (f"{name}." if name else "",)
        if not is_closed:
            yield module, name

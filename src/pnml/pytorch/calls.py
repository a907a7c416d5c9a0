"""Which modules a model calls before its head, as a tree."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from pnml.pytorch.head import run_on_copies, unfused_attention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.utils.hooks import RemovableHandle


@dataclass(eq=False)
class Node:
    """One call of a module: where it stands in the depth of the model, what it called, what it returned.

    ``call`` counts the calls of the module in the order in which they return: a module that calls itself begins them in
    another. ``source`` is the last call of a module with parameters and without parts before it returned, which may be
    itself. What holds a head has no output: that is made of logits. ``others`` are what a module returns beside its
    output, and ``entry`` is the place of the output among all of them. ``previous`` is the source before this call,
    ``channel_axis`` the axis of the channels in the output, and ``reach`` how many tokens fewer it always has than the
    model; both are None where they are not known. ``joins_tokens`` says that it has fewer, and not always as many.
    """

    name: str
    module: nn.Module
    start: int
    end: int = 0
    call: int = 0
    input: Tensor | None = None
    output: Tensor | None = None
    others: list[Tensor | None] = field(default_factory=list)
    entry: int = 0
    source: Node | None = None
    previous: Node | None = None
    channel_axis: int | None = None
    reach: int | None = None
    joins_tokens: bool = False
    holds_head: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """How many modules with parameters of their own were called inside."""
        return self.end - self.start

    @property
    def is_chain(self) -> bool:
        """Whether the call did nothing but pass what each child returned on to the next, as ``nn.Sequential`` does."""
        inputs = [child.input for child in self.children]
        outputs = [child.output for child in self.children]
        return all(a is b for a, b in zip([self.input, *outputs], [*inputs, self.output], strict=True))


class _CallTree:
    """Hooks that write down which module calls which, in this thread, until all heads are called."""

    def __init__(self, model: nn.Module, heads: Sequence[str]) -> None:
        self.root = Node("", model, 0)
        self.entered: dict[str, Tensor] = {}
        self.depth = 0
        self._source: Node | None = None
        self._heads = set(heads)
        self._stack, self._calls = [self.root], Counter[str]()
        made = {
            part for module in model.modules() if isinstance(module, ParametrizationList) for part in module.modules()
        }
        self._names = {module: name for module, name in seen_modules(model) if module not in made}  # not of weights
        self._returned: nn.Module | None = None
        self._thread = get_ident()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch the calls while the context is open."""
        handles: list[RemovableHandle] = []
        try:
            for module in self._names:
                handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                handles.append(module.register_forward_hook(self._leave))
                handles.append(module.register_forward_hook(self._drop, always_call=True))
            yield
        finally:
            for handle in handles:
                handle.remove()
        for node in self._stack:  # those that enclose the head
            node.end = self.depth

    @property
    def is_complete(self) -> bool:
        """Whether all heads were called."""
        return len(self.entered) == len(self._heads)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if get_ident() != self._thread or self.is_complete:
            return
        name = self._names[module]
        if name in self._heads:
            self.entered.setdefault(name, args[0] if args else next(iter(kwargs.values())))
            for node in self._stack:
                node.holds_head = True
            return
        given = first_tensor((*args, *kwargs.values()))
        node = Node(name, module, self.depth, input=given, previous=self._source)
        self._stack[-1].children.append(node)
        self._stack.append(node)

    def _leave(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if get_ident() != self._thread or self.is_complete or self._stack[-1].module is not module:
            return
        node, self._returned = self._stack.pop(), module
        node.call = self._calls[node.name]
        self._calls[node.name] += 1
        if not node.children and next(module.parameters(), None) is not None:
            self.depth += 1
            self._source = node
        node.end, node.source = self.depth, self._source
        if not node.holds_head:
            node.output, node.others = first_tensor(output), [first_tensor(part) for part in _entries(output)[1:]]

    def _drop(self, module: nn.Module, _args: tuple[Any, ...], _output: Any) -> None:
        """Forget a call that failed: a model may try another one, and only calls that return are recorded."""
        if get_ident() != self._thread or self.is_complete:
            return
        returned, self._returned = self._returned, None
        if returned is module or self._stack[-1].module is not module:
            return
        node = self._stack.pop()
        self._stack[-1].children.remove(node)
        self.depth, self._source = node.start, node.previous


def call_tree(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], heads: Sequence[str]
) -> tuple[Node, list[Tensor]]:
    """Run a model and return the tree of its calls until all heads are called, and what entered those that were."""
    tree = _CallTree(model, heads)
    with tree.watch(), unfused_attention():
        run_on_copies(model, args, kwargs)
    return tree.root, list(tree.entered.values())


def seen_modules(model: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Yield the modules inside a model that hooks reach, and their names: none in its compiled or scripted parts."""
    hidden: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if not name or name.startswith(hidden):
            continue
        closed = getattr(module, "_compiled_call_impl", None) is not None or isinstance(module, torch.jit.ScriptModule)
        if closed or hasattr(module, "_orig_mod"):
            hidden += (f"{name}.",)
        if not closed:
            yield module, name


def first_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a module returned, or the first of a tuple, a dict or a Hugging Face output."""
    return tensor_at(output, 0)


def tensor_at(output: Any, entry: int) -> Tensor | None:
    """Return the tensor in an entry of what a module returned, the first one if it holds several."""
    if entry == 0 and isinstance(output, Tensor):
        return output
    entries = _entries(output)
    return first_tensor(entries[entry]) if entry < len(entries) else None


def _entries(output: Any) -> tuple[Any, ...]:
    """Return what a tuple, a dict or a Hugging Face output holds."""
    if isinstance(output, dict):
        return tuple(output.values())
    return tuple(output) if isinstance(output, (tuple, list)) else ()

"""Every change of one operator or number of a module: what ``mutants.py`` tries."""

from __future__ import annotations

import ast
import copy
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKS_AND_COPIES = {"strict", "copy"}  # of zip and astype: what they are given decides about no answer
SPEED_ONLY = {"_SMALL", "_BLOCK", "_FEW_ROWS", "_FEW_REMOTE_ROWS", "_block_width", "_decomposing"}  # no answer changes

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """One change of one module, and its place among all of that module."""

    module: Path
    number: int
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.module.stem}.py: `{self.before}` → `{self.after}`"

    @property
    def name(self) -> str:
        """What it is called as long as the module stays as it is."""
        return f"{self.module.stem}:{self.number}:{zlib.crc32(self.module.read_bytes()):08x}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return the node with another operator or number, None for a node that is left alone."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in SWAPPED:
        new.ops[0] = SWAPPED[type(new.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(new, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(new.op) in SWAPPED:
        new.op = SWAPPED[type(new.op)]()  # type: ignore[assignment]
    elif isinstance(new, ast.UnaryOp):
        return new.operand
    elif isinstance(new, ast.IfExp):
        new.test = ast.UnaryOp(ast.Not(), new.test)
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, int):
        new.value += 1
    elif isinstance(new, ast.Constant) and isinstance(new.value, float):
        new.value = 2 * new.value or 1.0
    else:
        return None
    return new


def places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield where code stands that may be changed, as (parent, field, index).

    Left alone are annotations, messages, what only decides about speed, and the two ways to name a last axis.
    """
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_comment", "decorator_list"}:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.JoinedStr | ast.AnnAssign):
                continue
            if _name_of(child) in SPEED_ONLY | {"TYPE_CHECKING", "warnings"}:
                continue
            if isinstance(child, ast.keyword) and child.arg in CHECKS_AND_COPIES:
                continue
            if not (isinstance(child, ast.UnaryOp) and getattr(node, "arg", "") == "axis"):
                yield node, name, index if isinstance(value, list) else None
            yield from places(child)


def _name_of(node: ast.AST) -> str:
    """Return what a statement defines, tests or calls, as far as that is one name."""
    if isinstance(node, ast.Assign):
        node = node.targets[0]
    elif isinstance(node, ast.If):
        node = node.test
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        node = node.value.func.value
    return str(getattr(node, "id", getattr(node, "name", "")))


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for number, (parent, name, index) in enumerate(places(tree)):
        held = getattr(parent, name)
        old = held if index is None else held[index]
        new = changed(old)
        if new is None:
            continue
        before = _context(old, parent)
        _put(parent, name, index, new)
        after = ast.unparse(ast.fix_missing_locations(new))
        yield Mutant(module, number, getattr(old, "lineno", 0), before, after, ast.unparse(tree))
        _put(parent, name, index, old)


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _context(node: ast.AST, parent: ast.AST) -> str:
    """Return the code of a node, of a lone number with what stands around it."""
    text = ast.unparse(node)
    around = ast.unparse(parent) if isinstance(node, ast.Constant) and isinstance(parent, ast.expr) else text
    return text if around == text or "\n" in around else f"{text}` in `{around}"

"""Read the pickles that CIFAR is published as, without unpickling them.

A pickle is a program for a small stack machine. This one knows containers, numbers, texts and the four names that a
stored array needs. These names are compared, never looked up or called, and no dtype is made from the file, so the
worst that a forged file can do is to be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pickletools import genops
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_OPERATIONS = 2_000_000  # the largest published file takes 250,000

_MARK = object()
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NAMES = ("numpy ndarray", "numpy dtype", "_codecs encode", *_RECONSTRUCT)
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLE_SIZES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_VALUES = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
_WORD = 100  # characters of a name or of a key at most


@dataclass(frozen=True)
class _Name:
    """A module and a name in it, with a space between them."""

    text: str


@dataclass(frozen=True)
class _Dtype:
    """The name of a dtype, such as "u1"."""

    name: str


@dataclass
class StoredArray:
    """An array as a pickle describes it: version, shape, dtype, order and content, nothing of it checked."""

    state: Any = None

    def to_uint8(self, shape: tuple[int, int]) -> NDArray[np.uint8]:
        """Return the array; raise ``ValueError`` if it is not uint8 of this shape, or not whole."""
        expected = f"expected an array of dtype uint8 and shape {shape}"
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise ValueError(f"{expected}, got none")
        _, found, dtype, is_fortran, content = self.state
        if not isinstance(dtype, _Dtype) or dtype.name != "u1" or found != shape:
            raise ValueError(f"{expected}, got another one")
        if not isinstance(content, str | bytes) or len(content) != shape[0] * shape[1]:
            raise ValueError(f"{expected}, got other than {shape[0] * shape[1]} bytes")
        pixels = np.frombuffer(content.encode("latin-1") if isinstance(content, str) else content, dtype=np.uint8)
        return pixels.reshape(shape, order="F" if is_fortran == 1 else "C")


def read_pickle(content: bytes) -> Any:
    """Return what a pickle of lists, tuples, dicts, numbers, texts and arrays holds.

    Text and bytes come as the file has them; strings of Python 2 are text, a character for every byte. The keys of
    dicts are text. Arrays are :class:`StoredArray`.

    Raises:
        ValueError: the content is no pickle, or holds anything else, or too much.
    """
    machine = _Machine()
    try:
        for number, (operation, argument, _) in enumerate(genops(content)):
            if number == MAX_OPERATIONS:
                raise ValueError(f"it has more than {MAX_OPERATIONS:,} operations")
            machine.run(operation.name, argument)
        (value,) = machine.stack
    except (IndexError, KeyError, TypeError, AttributeError) as error:  # of a stack that is not as it should be
        raise ValueError(f"its operations make no sense ({type(error).__name__}: {error})") from error
    return value


class _Machine:
    """The stack, its memory, and what each operation does to them: no more work than it has values to move."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memory: dict[int, Any] = {}

    def run(self, name: str, argument: Any) -> None:
        """Run one operation, by the name that :mod:`pickletools` gives it."""
        if name in _VALUES:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _TUPLE_SIZES:
            self.stack.append(tuple(self._pop(_TUPLE_SIZES[name])))
        elif name in {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}:
            self.memory[len(self.memory) if argument is None else argument] = self.stack[-1]
        elif name in {"GET", "BINGET", "LONG_BINGET"}:
            self.stack.append(self.memory[argument])
        elif name in _OPERATIONS:
            _OPERATIONS[name](self)
        elif name == "GLOBAL":
            self._name(argument)
        elif name not in {"PROTO", "FRAME", "STOP"}:
            raise ValueError(f"it has the operation {name}, which is not allowed")

    def _pop(self, count: int) -> list[Any]:
        """Remove and return the last ``count`` values."""
        start = len(self.stack) - count
        if start < 0:
            raise IndexError(f"expected {count} values on the stack, got {len(self.stack)}")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def _pop_to_mark(self) -> list[Any]:
        values: list[Any] = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def mark(self) -> None:
        self.stack.append(_MARK)

    def new_list(self) -> None:
        self.stack.append([])

    def new_dict(self) -> None:
        self.stack.append({})

    def list_of_marked(self) -> None:
        self.stack.append(self._pop_to_mark())

    def tuple_of_marked(self) -> None:
        self.stack.append(tuple(self._pop_to_mark()))

    def dict_of_marked(self) -> None:
        values = self._pop_to_mark()
        self.stack.append({})
        self._set(values)

    def append_one(self) -> None:
        self._extend(self._pop(1))

    def append_marked(self) -> None:
        self._extend(self._pop_to_mark())

    def set_one(self) -> None:
        self._set(self._pop(2))

    def set_marked(self) -> None:
        self._set(self._pop_to_mark())

    def name_of_two(self) -> None:
        self._name(" ".join(map(_word, self._pop(2))))

    def call(self) -> None:
        """Take the place of the call of a name: keep what it would be given."""
        name, arguments = self._pop(2)
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise TypeError("what is called is no name")
        if name.text in _RECONSTRUCT:
            self.stack.append(StoredArray())
        elif name.text == "numpy dtype":
            self.stack.append(_Dtype(_word(arguments[0])))
        elif name.text == "_codecs encode":
            self.stack.append(arguments[0])  # text, a character for every byte
        else:
            raise ValueError(f"it calls {_dotted(name.text)}, which is not allowed")

    def set_state(self) -> None:
        """Give an array its state; a uint8 dtype has none."""
        (state,) = self._pop(1)
        if isinstance(self.stack[-1], StoredArray):
            self.stack[-1].state = state
        elif not isinstance(self.stack[-1], _Dtype):
            raise TypeError("a state is for arrays")

    def _name(self, text: str) -> None:
        if text not in _NAMES:
            raise ValueError(f"it refers to {_dotted(text)}, which is not allowed")
        self.stack.append(_Name(text))

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError("appended to what is no list")
        self.stack[-1].extend(values)

    def _set(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict) or len(values) % 2:
            raise TypeError("items are for dicts")
        for key, value in zip(values[::2], values[1::2], strict=True):
            self.stack[-1][_word(key)] = value


def _word(value: Any) -> str:
    """Return a short text or short bytes as text; nothing else is compared or hashed, however deep it is nested."""
    if not isinstance(value, str | bytes) or len(value) > _WORD:
        raise TypeError("a name or a key is no short text")
    return value if isinstance(value, str) else value.decode("latin-1")


def _dotted(text: str) -> str:
    return text[:_WORD].replace(" ", ".")


_OPERATIONS = {
    "MARK": _Machine.mark,
    "EMPTY_LIST": _Machine.new_list,
    "EMPTY_DICT": _Machine.new_dict,
    "LIST": _Machine.list_of_marked,
    "TUPLE": _Machine.tuple_of_marked,
    "DICT": _Machine.dict_of_marked,
    "APPEND": _Machine.append_one,
    "APPENDS": _Machine.append_marked,
    "SETITEM": _Machine.set_one,
    "SETITEMS": _Machine.set_marked,
    "STACK_GLOBAL": _Machine.name_of_two,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.set_state,
}

"""Files that ``torch.save`` writes are pickles, which may run code when they are read: refused, with a way out."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

WHOLE_MODEL = "let your function return torch.load({path!r}, weights_only=False), if you trust the file"
"""How a model that was saved whole is used, not its weights alone."""

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")

_OF_OTHERS = (".pkl", ".pickle")  # of pandas and of Python itself, which torch.load does not read

_LOAD = "torch.load(sys.argv[1], map_location='cpu', weights_only=True)"
_TENSORS = (
    f"import sys, torch; from safetensors.torch import save_file; held = {_LOAD}; "
    "held = next((held[k] for k in ('state_dict', 'model_state_dict', 'model') if k in held), held); "
    "save_file({k: v.contiguous().clone() for k, v in held.items()}, sys.argv[2])"
)
_EMBEDDINGS = f"import sys, numpy, torch; numpy.save(sys.argv[2], {_LOAD}.numpy())"
_LINES = {"tensors": (".safetensors", _TENSORS), "embeddings": (".npy", _EMBEDDINGS)}


def refuse_pickle(path: Path, holds: Literal["tensors", "embeddings"]) -> None:
    """Raise ``ValueError`` for a pickle, told by its suffix, with a line to copy that writes what is read instead.

    That is "tensors" by name, as safetensors, or "embeddings", as .npy.
    """
    if path.suffix.lower() not in SUFFIXES:
        return
    if holds == "embeddings" and path.suffix.lower() in _OF_OTHERS:
        raise ValueError(
            f"{path} is a pickle, which may run code when it is read: write a file that holds the rows alone, as "
            "frame.to_parquet('rows.parquet') or numpy.save('rows.npy', rows)"
        )
    suffix, code = _LINES[holds]
    new = path.with_suffix(suffix)
    raise ValueError(
        f"{path} is a file of torch.save, which may run code when it is read. Write {new.name} once and give that:\n"
        f'python -c "{code}" {quote(str(path))} {quote(str(new))}'
    )

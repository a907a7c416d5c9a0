"""A method of one's own: any class with ``fit(train)`` and ``score(samples)``, both given a view of a set.

A view has ``embeddings`` (n, M), ``logits`` (n, C), ``labels`` (n,) or None, the ``network`` with its ``head``, and
``inputs()``, the batches that go into the network; in a class with ``needs_features = True`` also ``features(layers)``
of its earlier ``layers``. Scores are larger for samples that are more out-of-distribution.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from pnml.backend.arrays import unmasked
from pnml.io.code import Code, load_code
from pnml_bench.methods import ALL_METHODS, GROUPS
from pnml_bench.methods.protocol import Method, MethodFailedError
from pnml_bench.own.names import name_of_code

if TYPE_CHECKING:
    from pnml_bench.methods.view import View

_TRIED = 64  # training samples whose scores must not depend on how many are scored together
_SLACK = 1e-3


class OwnMethod(Method):
    """Calls one's own class, and checks what it returns.

    Attributes:
        code: the class.
    """

    composes = False
    code: ClassVar[Code]

    def fit(self, train: View) -> OwnMethod:
        """Fit a new object of the class, and try it on a few training samples."""
        super().fit(train)
        self._own = self._call("__init__", self.code.value)
        self._call("fit", self._own.fit, train)
        self._check_alone(train)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The class."""
        return {"class": self.code.spec}

    def score(self, view: View) -> Tensor:
        """Return the scores of every sample, shape (n,), in float64 on the CPU."""
        returned = self._call("score", self._own.score, view)
        try:
            scores = torch.as_tensor(unmasked(returned)).detach().cpu().double()
        except (TypeError, ValueError, RuntimeError) as error:
            raise self._failed(
                f"score returned {type(returned).__name__}: expected a tensor or an array of shape ({len(view)},)"
            ) from error
        if scores.shape != (len(view),):
            raise self._failed(
                f"score returned the shape {tuple(scores.shape)} for {view.images!r}: expected one score for each, "
                f"({len(view)},)"
            )
        if missing := int(scores.isnan().sum()):
            raise self._failed(f"score returned NaN for {missing:,} of {view.images!r}")
        return scores

    def _check_alone(self, train: View) -> None:
        """Raise if the scores of samples change with the samples that are scored along with them."""
        many = train.first(_TRIED)
        few = many.first(max(1, len(many) // 2))
        together, apart = self.score(many)[: len(few)], self.score(few)
        scale = float(together.abs().nan_to_num(0, 0, 0).max()) or 1.0
        if not torch.allclose(together, apart, rtol=_SLACK, atol=_SLACK * scale):
            row = int((together - apart).abs().nan_to_num(0).argmax())
            raise self._failed(
                f"score gives a sample {together[row]:.4g} among {len(many)} samples and {apart[row]:.4g} among "
                f"{len(few)} of them: expected a score that depends on the sample and the training set alone"
            )

    def _call(self, step: str, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except (MemoryError, torch.OutOfMemoryError, MethodFailedError):
            raise
        except Exception as error:
            raise self._failed(f"{step} raised {type(error).__name__}: {error}{self._line_of(error)}") from error

    def _line_of(self, error: Exception) -> str:
        """Return where in the user's file an error comes from."""
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == self.code.file]
        return f" (line {lines[-1].lineno} of {Path(lines[-1].filename).name})" if lines else ""

    def _failed(self, reason: str) -> MethodFailedError:
        return MethodFailedError(f"{self.code.spec}: {' '.join(reason.split())}")


def own_method(spec: str) -> type[OwnMethod]:
    """Return the method of a class that is named as ``mine.py:Detector``.

    Raises:
        ValueError: there is no such class, or it lacks ``fit`` or ``score``.
    """
    code = load_code(spec, "--method", "class", "Detector")
    if not isinstance(code.value, type):
        raise ValueError(  # noqa: TRY004 - an invalid option
            f"--method {spec!r} is a {type(code.value).__name__}: expected a class with fit and score"
        )
    for name, takes in {"fit": "train", "score": "samples"}.items():
        if not callable(getattr(code.value, name, None)):
            raise ValueError(  # noqa: TRY004
                f"--method {spec!r} lacks {name}: write def {name}(self, {takes})"
            )
    name = name_of_code(spec)
    if name in {*ALL_METHODS, *GROUPS}:
        raise ValueError(f"--method {spec!r} gives its results the name {name!r}, which is taken: rename the class")
    about = {"name": name, "code": code, "needs_features": bool(getattr(code.value, "needs_features", False))}
    return type(code.value.__name__, (OwnMethod,), {**about, "__doc__": code.value.__doc__})

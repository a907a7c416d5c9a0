"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pnml.backend.read_errors import naming_file
from pnml.backend.state import load_state, save_state
from pnml.core import detector_state
from pnml.core.calibrated import Calibrated
from pnml.core.detector_schema import check_state
from pnml.core.fitted import FewRowsWarning, ZeroEmbeddingWarning

if TYPE_CHECKING:
    import os

    import numpy as np

__all__ = ["Detector", "FewRowsWarning", "Task", "ZeroEmbeddingWarning"]

Task = Literal["multiclass", "multilabel"]
"""Whether one of the classes is right, or each of several labels may be."""


class Detector(Calibrated):
    """Out-of-distribution detector for any softmax classifier, given its last layer and its training embeddings.

    Scores are pNML regrets in nats: larger = less trustworthy. Fitting is one streaming pass in O(M²) memory, needs no
    labels and no out-of-distribution data, and has nothing to tune. Features of earlier layers of the network, if there
    are any, make it see samples that the last layer takes for known ones: pass them as ``features`` to every method.

    Args:
        weight: the last linear layer's weight, shape (C, M).
        bias: its bias, shape (C,); zeros when left out.
        embedding_scale: "auto" scales every embedding to one norm, chosen from the training set so that near- and
            far-OOD are detected, assumes 0.5 % of labels are random, and measures leverage about the mean of the
            predicted class; "paper" scales to norm 1, which reproduces the paper's numbers; "natural" leaves embeddings
            as they are.

    Attributes:
        threshold: the calibrated :class:`~pnml.core.calibration.Threshold`, None before :meth:`calibrate`.
        layer_names: of the earlier layers whose features are used, set before :meth:`fit` or after it.
        preparation: how the inputs of the model are prepared, JSON-able; ``pnml fit`` sets it, and ``save`` keeps it.
            None where nobody said.
        model_fingerprint: of the weights of the model that was fitted, where a model was; empty otherwise.
        head_notes: what is particular about the last layer, in words; empty for a plain linear layer.
        reading: how a guard reads its model, JSON-able; None where no guard was.
        task: "multiclass", or "multilabel" for a :class:`~pnml.core.multilabel.MultiLabelDetector`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(500, 8)) @ np.diag([3, 3, 3, 3, 0.01, 0.01, 0.01, 0.01])
    >>> detector = Detector(rng.normal(size=(4, 8)), np.zeros(4)).fit(train)
    >>> seen, unseen = train[:1], np.eye(8)[7:]
    >>> bool(detector.score(unseen)[0] > detector.score(seen)[0])
    True
    """

    task: Task = "multiclass"

    def __repr__(self) -> str:
        layers = f", layers {list(self.layer_names)}" if self.layer_names else ""
        sizes = f"{self.n_features} features to {self.n_classes} classes"
        return f"{type(self).__name__}({sizes}, scale {self.embedding_scale}{layers}, {self.described_state})"

    @property
    def described_state(self) -> str:
        """How many samples it was fitted on and whether it is calibrated, in words."""
        if not self.correlation.count:
            return "not fitted"
        calibrated = "not calibrated" if self.threshold is None else f"calibrated: {self.threshold}"
        return f"fitted on {self.correlation.count:,} samples, {calibrated}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector, and its threshold if set, to a safetensors file."""
        arrays, info = detector_state.to_state(self)
        check_state(arrays, info)
        save_state(path, detector_state.KIND, detector_state.VERSION, arrays, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read a detector written by :meth:`save`."""
        with naming_file(path):
            return cls._load(path)

    @classmethod
    def _load(cls, path: str | os.PathLike[str]) -> Detector:
        arrays, info = load_state(
            path, detector_state.KIND, detector_state.VERSION, digest_since=detector_state.DIGEST_SINCE
        )
        task = info.get("task", "multiclass")  # which older files do not say
        try:
            check_state(arrays, info)
            if task == cls.task:
                return cls._restored(arrays, info)
        except ValueError as error:
            raise ValueError(f"{path} holds no detector that can be used: {error}: fit the detector again") from error
        return cls._of_task(task).load(path)

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray[Any, Any]], info: dict[str, Any]) -> Detector:
        detector = cls(arrays["weight"], arrays["bias"], embedding_scale=info["embedding_scale"])
        detector.head_notes, detector.reading = tuple(info.get("head_notes", ())), info.get("reading")
        state = detector_state.from_state(arrays, info)
        detector.correlation, detector._geometry, detector._subspace = state.correlation, state.geometry, state.subspace
        detector.layer_names, detector._scales, detector.threshold = state.layer_names, state.scales, state.threshold
        detector.preparation = state.preparation
        detector.model_fingerprint = info.get("model_fingerprint", {})
        return detector

    @staticmethod
    def _of_task(task: Task) -> type[Detector]:
        """Return the class of detectors for a task."""
        from pnml.core.multilabel import MultiLabelDetector

        return MultiLabelDetector if task == "multilabel" else Detector

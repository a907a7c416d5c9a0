"""What the programs of a family (text, pictures, tables, sound) share: outputs, the score of every method, the record.

A record holds one entry a task, "NAME/SEED", with the AUROC and the FPR at TPR 95% of every method on every OOD set, in
percent. A program that is started again leaves out the tasks that the record has.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pnml.integrations._import import import_pytorch_ood
from pnml.metrics import evaluate
from pnml.pytorch.recording import join, record_layers
from pnml_bench.environment import environment, git_state
from pnml_bench.methods import ALL_METHODS, GROUPS, MethodFailedError, Outputs, View
from studies.records import write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from pnml.pytorch.contract import Layer
    from pnml_bench.methods import Method

    Methods = Mapping[str, Callable[[], Method]]

METHODS = tuple(dict.fromkeys((*GROUPS["peers"], *GROUPS["layers"])))
import_pytorch_ood("a comparison with peers")  # now, not after minutes of training
HEAD = "head"  # the name of the last layer of the classifiers here, but for those of others


class Part(NamedTuple):
    """Rows of a classifier: embeddings (n, M), features of each earlier layer, and labels where they are known."""

    embeddings: Tensor
    features: list[Tensor]
    labels: NDArray[np.int64] | None = None

    def of(self, rows: NDArray[np.intp], labels: NDArray[np.int64] | None = None) -> Part:
        """Return some of the rows, with their labels."""
        kept = torch.from_numpy(rows)
        return Part(self.embeddings[kept], [layer[kept] for layer in self.features], labels)


class Task(NamedTuple):
    """A classifier's last layer, its rows of all sets, and the methods that would not fit into memory."""

    head: nn.Linear
    layers: tuple[Layer, ...]
    train: Part
    test: Part
    oods: dict[str, Part]
    too_large: tuple[str, ...] = ()


class Head(nn.Module):
    """What the methods need of a network."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = head


class Stored(View):
    """A view with outputs that were computed before."""

    def __init__(self, network: Any, part: Part, layers: tuple[Layer, ...]) -> None:
        images: Any = SimpleNamespace(labels=part.labels)
        super().__init__(network, images)
        self.__dict__["layers"] = layers
        self._features = part.features
        with torch.inference_mode():
            self.__dict__["outputs"] = Outputs(part.embeddings, network.head(part.embeddings))

    def __len__(self) -> int:
        return len(self.embeddings)

    def features(self, layers: tuple[Layer, ...]) -> list[Tensor]:
        if layers != self.layers:
            raise ValueError(f"the features of {self.layers} are stored, not those of {layers}")
        return self._features


def run_model(
    model: nn.Module, layers: tuple[Layer, ...], batches: Iterable[dict[str, Tensor]], head: str = HEAD
) -> Part:
    """Return the embeddings and the features of earlier layers of batches of arguments of a classifier."""
    embeddings: list[Tensor] = []
    hook = model.get_submodule(head).register_forward_pre_hook(lambda _module, args: embeddings.append(args[0]))
    pooled = []
    try:
        for batch in batches:
            with torch.inference_mode(), record_layers(model, layers) as recorded:
                model(**batch)
            pooled.append([join(layer).float() for layer in recorded if layer is not None])
    finally:
        hook.remove()
    return Part(torch.cat(embeddings), [torch.cat(layer) for layer in zip(*pooled, strict=True)])


def measure(task: Task, methods: Methods | None = None) -> dict[str, Any]:
    """Return what the record holds of a task, by default of all methods."""
    network = Head(task.head).eval()
    train, test = (Stored(network, part, task.layers) for part in (task.train, task.test))
    oods = {name: Stored(network, part, task.layers) for name, part in task.oods.items()}
    right = test.logits.argmax(dim=1).numpy() == task.test.labels
    found: dict[str, Any] = {
        "rows": {"train": len(train), "test": len(test), **{name: len(view) for name, view in oods.items()}},
        "accuracy": round(100 * float(np.mean(right)), 2),
        "auroc": {},
        "fpr": {},
        "failed": {},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in (methods or {name: ALL_METHODS[name] for name in METHODS}).items():
            if name in task.too_large:
                found["failed"][name] = f"{name} does not fit into memory"
                continue
            try:
                method = make().fit(train)
                inside = method.score(test)
                metrics = {ood: evaluate(inside, method.score(view)) for ood, view in oods.items()}
            except MethodFailedError as error:
                found["failed"][name] = str(error).partition(" of namespace")[0]
                continue
            found["auroc"][name] = {ood: round(float(one.auroc), 2) for ood, one in metrics.items()}
            found["fpr"][name] = {ood: round(100 - float(one.tnr_at_tpr95), 2) for ood, one in metrics.items()}
    return found


def read_record(path: Path) -> dict[str, Any]:
    """Return a record, or one without tasks where there is none yet."""
    if not path.exists():
        return {"tasks": {}}
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def run_family(
    program: str,
    about: str | None,
    tasks: Callable[[Path], Mapping[str, Callable[[], Task]]],
    methods: Methods | None = None,
) -> None:
    """Run the tasks of a data folder that the record lacks, and write it after each.

    Several processes may write to a record. Of two that write at the same moment, one loses its task, which the next
    start runs again.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder or file of the data")
    parser.add_argument("--out", type=Path, default=Path(f"studies/families/{program}.json"), help="the record")
    parser.add_argument("--only", default="", help="run the tasks whose name contains this")
    options = parser.parse_args()
    for name, make in tasks(options.data).items():
        if name in read_record(options.out)["tasks"] or options.only not in name:
            continue
        found = measure(make(), methods)
        record = read_record(options.out)
        commit, dirty = git_state()
        record["tasks"][name] = {**found, "commit": commit, "dirty": dirty}
        record["environment"] = environment()
        write_record(options.out, record)
        means = {method: round(float(np.mean(list(sets.values()))), 1) for method, sets in found["auroc"].items()}
        print(name, f"accuracy {found['accuracy']}", means, *found["failed"].values(), flush=True)

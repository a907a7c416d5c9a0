"""Train and measure the networks of OpenOOD's CIFAR protocol and of TinyImageNet-200, three seeds of each.

    python -m studies.photographs.run --out runs --trainings 3 --benches 3
    python -m studies.photographs.run --out runs --status     # what is done, what is running
    python -m studies.photographs.run --out runs --only '*cifar*' --only '*tinyimagenet_seed-0'
    python -m studies.photographs.run --out runs --collect results && python -m studies.pages    # the tables

Every job is one command of pnml in a process of its own (``jobs.py``). A program that was stopped goes on where it was.
``--epochs '*=1' --limit 500`` is a quick trial; its results are in studies of their own.

OpenOOD (``openood.py``): a ResNet-18 for CIFAR-10 and for CIFAR-100. TinyImageNet-200: a ResNet-18 and a small
vision transformer. Its near set is ``imagenet-others`` (``imagenet_others.py``), as OpenOOD's near sets for 200 classes
of ImageNet show other classes of ImageNet. It has to be in a folder of PNML_DATA, else it is left out. Every other set
that is absent is named in the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml_bench.data.source import data_folders
from pnml_bench.leaderboard import NEAR
from studies.jobs import Job, Plan, run_program
from studies.photographs import openood

if TYPE_CHECKING:
    from collections.abc import Iterable

METHODS = "peers,layers"
CIFAR = ("cifar10", "cifar100")
TINY = "tinyimagenet"
TINY_MODELS = ("resnet-18-small", "vit-small")
TINY_SEEDS = (0, 1, 2)
TINY_FAR = ("svhn", "textures", "isun", "uniform", "gaussian")


def tiny_study(seed: int) -> str:
    """Return the study of the networks that were trained on TinyImageNet-200 with a seed."""
    return f"{TINY}-seed-{seed}"


def tiny_near() -> list[str]:
    """Return the paths of the near sets of TinyImageNet-200 that are in a data folder."""
    paths = (folder / name for name in NEAR[TINY] for folder in data_folders())
    return [str(path) for path in paths if path.is_dir()][:1]


class PhotographsPlan(Plan):
    """Trainings and benches: OpenOOD's first, then one seed of TinyImageNet's networks, then the other seeds."""

    def all_jobs(self) -> Iterable[Job]:
        """List the commands."""
        for ind in CIFAR:
            oods = [*openood.near_sets(ind), *openood.FAR]
            for seed in openood.SEEDS:
                yield from self._network(openood.MODEL, ind, seed, openood.study(seed), oods, 0)
        for seed in TINY_SEEDS:
            for number, model in enumerate(TINY_MODELS):
                oods = [*tiny_near(), *TINY_FAR]
                yield from self._network(model, TINY, seed, tiny_study(seed), oods, 1 + 2 * seed + number)

    def _network(  # noqa: PLR0917 - what one network is
        self, model: str, ind: str, seed: int, study: str, oods: list[str], urgency: int
    ) -> Iterable[Job]:
        weights = self.out / "weights" / f"{model}_{ind}_seed-{seed}.safetensors"
        yield self.train(model, ind, weights, urgency, "--seed", str(seed))
        yield self.bench(f"bench_{weights.stem}", model, ind, METHODS, oods, weights, urgency, ["--study", study])


if __name__ == "__main__":
    run_program(__doc__, PhotographsPlan)

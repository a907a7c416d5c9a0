"""Measure every cell of the paper that can be measured: train, tune and run the benchmark, in the order of their value.

    python -m studies.paper.run --out runs            # all of it; --trainings and --benches: commands at a time
    python -m studies.paper.run --out runs --status   # what is done, what is running
    python -m studies.paper.run --out runs --only 'paper_*' --only 'train_resnet-34_*'
    python -m studies.paper.run --out runs --collect results   # add all results to the tables in results/

Every job is one command of pnml in a process of its own (``jobs.py``). A program that was stopped goes on where it was.

Studies: ``paper`` (the paper's checkpoints), ``retrained`` (networks trained here by the published recipes) and
``peers-2026-11`` (today's default beside other detectors, on both); the first two also with ``-oracle`` and
``-published``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from studies.jobs import Job, Plan, run_program

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

INDS = ("cifar10", "cifar100", "svhn")
DENSENET = "densenet-bc-100"
FAR = ("isun", "tinyimagenet_crop", "tinyimagenet_resize_nearest", "uniform", "gaussian")
OTHERS = {"cifar10": ("svhn",), "cifar100": ("svhn",), "svhn": ("cifar10", "cifar100")}
NEAR = {"cifar10": ("cifar100",), "cifar100": ("cifar10",), "svhn": ()}
ANTIALIASED = ("tinyimagenet_resize",)
TRAININGS = (
    ("resnet-34", "cifar10"),
    ("resnet-34", "cifar100"),
    ("wideresnet-40-2", "cifar10"),
    ("wideresnet-40-2", "cifar100"),
    ("resnet-34", "svhn"),
)
TUNINGS = {"resnet-34": "oecc", "wideresnet-40-2": "energy"}
PEERS_STUDY = "peers-2026-11"


class PaperPlan(Plan):
    """Trainings, tunings and benches of the paper."""

    def all_jobs(self) -> Iterable[Job]:
        """List the commands."""
        yield from (*self._trained(), *self._papers())
        yield from (self._peers(DENSENET, ind, None, 2) for ind in INDS)
        yield from (self._differences(ind) for ind in INDS)

    def _papers(self) -> list[Job]:
        """List the benches on the paper's own networks."""
        found = []
        for methods in ("baseline,energy", "gram", "odin", "oecc"):
            for ind in INDS:
                far = (*OTHERS[ind], *FAR, *ANTIALIASED)
                oods = (*far, *NEAR[ind]) if methods == "baseline,energy" else far
                found.append(self._paper(DENSENET, ind, methods, oods))
        return found

    def _trained(self) -> list[Job]:
        """List the trainings, the tunings, and the benches on their networks."""
        found = []
        for model, ind in TRAININGS:
            tune, weights = TUNINGS[model], self.out / "weights" / f"{model}_{ind}.safetensors"
            tuned = weights.with_name(f"{model}-{tune}_{ind}.safetensors")
            found.append(self.train(model, ind, weights, 0))
            outliers = ["--outliers", "rooms_resize", "--outliers", "transformed"]
            found.append(self.train(model, ind, tuned, 0, "--tune", tune, "--from", str(weights), *outliers))
            found[-1].needs = weights
            far = (*OTHERS[ind], *FAR)
            quick = "baseline" if tune == "energy" else "baseline,energy"
            found.append(self._paper(model, ind, quick, (*far, *ANTIALIASED, *NEAR[ind]), weights))
            found += [self._paper(model, ind, one, far, weights) for one in ("gram", "odin") if tune == "oecc"]
            found.append(self._paper(model, ind, tune, far, tuned))
            found.append(self._peers(model, ind, weights, 4))
        return found

    def _paper(self, model: str, ind: str, methods: str, oods: tuple[str, ...], weights: Path | None = None) -> Job:
        study, urgency = ("paper", 1) if weights is None else ("retrained", 3)
        options = ["--oracle", "--published", "--study", study]
        return self.bench(f"{study}_{model}_{ind}_{methods}", model, ind, methods, oods, weights, urgency, options)

    def _peers(self, model: str, ind: str, weights: Path | None, urgency: int) -> Job:
        methods, oods = "peers,layers,pnml-published", (*OTHERS[ind], *FAR, *ANTIALIASED, *NEAR[ind])
        options = ["--study", PEERS_STUDY]
        return self.bench(f"peers_{model}_{ind}", model, ind, methods, oods, weights, urgency, options)

    def _differences(self, ind: str) -> Job:
        words = [
            "-m",
            "studies.paper.differences",
            "--ind",
            ind,
            "--out",
            str(self.out / "results" / f"differences_{ind}.json"),
        ]
        return Job(f"differences_{ind}", [*words, *self.shared()], 5)


if __name__ == "__main__":
    run_program(__doc__, PaperPlan)

"""Mistakes with networks, sets and methods of one's own, and what is said about them."""

from __future__ import annotations

from shutil import copytree
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml_bench.store import load_study

from .files import COMMAND, MINE, bench, pictures, write_pictures

if TYPE_CHECKING:
    from pathlib import Path

MODELS = """
class NoLogits(nn.Module):
    def forward(self, x):
        return x, x

class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(48, 4), nn.Tanh(), nn.Linear(4, 3))

class FourClasses(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(192, 4), nn.Tanh(), nn.Linear(4, 4))

def with_bad_transform():
    return create(), lambda picture: picture.nothing

def of_size(size):
    return create()

class NoScore:
    def fit(self, train):
        pass

class NoFit:
    def score(self, samples):
        pass

def function():
    pass
"""


def command(model: str = "create", ind: str = "photos/train", test: str = "photos/test", ood: str = "other") -> str:
    return f"--model mine.py:{model} --ind {ind} --test {test} --ood {ood} --device cpu"


@pytest.fixture
def mistakes(folder: Path) -> Path:
    (folder / "mine.py").write_text(MINE + MODELS)
    (folder / "empty").mkdir()
    (folder / "words.txt").write_text("no pictures")
    (folder / "words.csv").write_text("text,label\nno pictures,0\n")
    write_pictures(folder / "flat", pictures(6, seed=1)[0])
    write_pictures(folder / "deep" / "other", pictures(6, seed=1)[0])
    write_pictures(folder / "mixed", *pictures(6, seed=1))
    write_pictures(folder / "mixed", pictures(2, seed=1)[0])
    write_pictures(folder / "strange" / "violet", pictures(6, seed=1)[0])
    write_pictures(folder / "wide", np.zeros((3, 8, 12, 3), dtype=np.uint8))
    write_pictures(folder / "deep" / "svhn", pictures(6, seed=1)[0])
    copytree(folder / "photos" / "train", folder / "copy")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "x.png").write_bytes(b"no picture")
    return folder


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (command("of_size"), "takes the arguments size: expected a function that takes none"),
        (command("NoLogits"), "the network fails on a batch of shape (50, 3, 8, 8): the model returned tuple"),
        (command("FourClasses"), "photos/train has 3 class folders, and the network has 4 classes"),
        (command("with_bad_transform"), "photos/train: the transform failed with AttributeError: "),
        (command(ind="gone"), "there is no 'gone': expected a folder of pictures, a .parquet file, or one of cifar10"),
        (command(ind="empty"), "no images in empty: expected files ending in .bmp"),
        (command(ind="words.txt"), "words.txt is neither a folder of pictures nor a .parquet file"),
        (command(ind="words.csv"), "nor a .parquet file: of texts, name their column, --column text"),
        (command(ind="mixed"), "is in no class folder, and others are: expected mixed/CLASS/... for all"),
        (command(test="flat"), "flat has no class folders, and the training set has blue, green, red"),
        (command(test="strange"), "strange has the class folder 'violet', which the training set has not"),
        (command(ind="damaged"), "x.png does not decode as an image"),
        (command(test="wide", ind="flat"), "wide: expected pictures of one size, got one of 8×12 pixels"),
        (command(ood="gone"), "there is no OOD set 'gone': give a path, or some of cifar10"),
        (command(ood="photos/test"), "the OOD set 'photos/test' is an in-distribution set itself"),
        (command(ood="deep/svhn"), "'deep/svhn' gives its results the name 'svhn': rename it, that one is taken"),
        (command(test="copy"), "--test copy holds the samples of --ind photos/train"),
        (command(ood="other,deep/other"), "'other' and 'deep/other' give their results one name, 'other': rename one"),
        (command(ood="all"), "--ood all is for the sets of the paper"),
        (command(ind="uniform").replace("--test photos/test", ""), "--ind uniform has no training set"),
        (command(ind="cifar10"), "--ind cifar10 is a published set with its own test set: leave --test out"),
        (
            command().replace("--test photos/test", ""),
            "--ind photos/train is the training set: give the in-distribution",
        ),
        (command().replace("--ind photos/train", ""), "give the training set of your network, and --test"),
        (f"{command()} --method gram", "the method 'gram' is for the networks of the zoo"),
        (f"{command()} --method mine.py:function", "is a function: expected a class with fit and score"),
        (f"{command()} --method mine.py:NoScore", "lacks score: write def score(self, samples)"),
        (f"{command()} --method mine.py:NoFit", "lacks fit: write def fit(self, train)"),
        (f"{command()} --method mine.py:Detector,mine.py:Detector", "'mine-detector' of another: rename one"),
        (
            f"{command()} --column text",
            "is a column of texts, and mine.py:create returns a model alone: return (model,",
        ),
        (f"{command()} --head-layer nothing", "head 'nothing' is no module of the model"),
        ("--ind photos/train --test photos/test", "--test goes with a network of your own: --model mine.py:create"),
        ("--ind photos/train", "--ind photos/train is a path, which goes with a network of your own"),
        ("--size 8", "--size goes with a network of your own"),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str, mistakes: Path) -> None:
    done = bench(line)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {1, 2}
    said = " ".join(done.stderr.split())
    assert message in said
    assert "unexpected" not in said
    assert "Traceback" not in said
    assert not (mistakes / "results").exists()


METHODS = """
import numpy, torch

class Method:
    def fit(self, train):
        pass

class Fails(Method):
    def score(self, samples):
        return samples.nothing

class FailsToFit(Method):
    def fit(self, train):
        raise KeyError("no such entry")

    def score(self, samples):
        pass

class TakesArguments(Method):
    def __init__(self, k):
        self.k = k

    def score(self, samples):
        return samples.logits[:, 0]

class WrongShape(Method):
    def score(self, samples):
        return samples.logits

class NoNumbers(Method):
    def score(self, samples):
        return ["one"] * len(samples)

class HasNan(Method):
    def score(self, samples):
        return torch.where(samples.logits[:, 0] > -100, torch.nan, 0.0)

class HasMasked(Method):
    def score(self, samples):
        scores = numpy.ma.array(samples.logits[:, 0].numpy())
        scores[3] = numpy.ma.masked
        return scores

class UsesTheBatch(Method):
    def score(self, samples):
        energy = samples.logits.logsumexp(dim=1)
        return energy - energy.mean()
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Fails", "score raised AttributeError: 'OwnView' object has no attribute 'nothing' (line 10 of wrong.py)"),
        ("FailsToFit", "fit raised KeyError: 'no such entry' (line 14 of wrong.py)"),
        ("TakesArguments", "__init__ raised TypeError: "),
        ("WrongShape", "score returned the shape (60, 3) for photos/train (60 pictures): expected one score for each"),
        ("NoNumbers", "score returned list: expected a tensor or an array of shape (60,)"),
        ("HasMasked", "score returned MaskedArray: expected a tensor or an array of shape (60,)"),
        ("HasNan", "score returned NaN for 60 of photos/train (60 pictures)"),
        ("UsesTheBatch", "expected a score that depends on the sample and the training set alone"),
    ],
)
def test_a_method_that_fails_is_named_and_the_others_are_run(name: str, message: str, folder: Path) -> None:
    (folder / "wrong.py").write_text(METHODS)
    alone = bench(f"{COMMAND} --ood other --method wrong.py:{name}")
    assert alone.exit_code == 1
    said = " ".join(alone.stderr.split())
    assert "error: nothing was measured: mine-create, photos against other with wrong-" in said
    assert message in said
    assert bench(f"{COMMAND} --ood other --method baseline,wrong.py:{name}").exit_code == 0
    status = {result.method: result.status for result in load_study("results", "own")}
    assert status == {"baseline": "run", f"wrong-{name.lower()}": "not run"}

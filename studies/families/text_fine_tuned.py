"""Questions to a bank again: a Hugging Face classifier, all of whose weights are trained, guarded whole.

    python -m studies.families.text_fine_tuned --data FOLDER

FOLDER, the packages, the left-out intents of each seed and the OOD sets are those of ``text.py``, and so is the record:
tasks "fine-tuned/SEED" beside "banking77/SEED".

The classifier is ``AutoModelForSequenceClassification`` from the weights of all-MiniLM-L6-v2. Its embedding is the
first token, through the pooler (a dense layer and tanh). The weights come with a pooler, but sentences were not
embedded with it when they were made: it learns its use here, together with the new last layer.

The recipe was written down before any score was seen. AdamW, weight decay 0.01; the learning rate rises to 2e-4 over
the first tenth of the steps and falls to 0, both linearly; gradients are clipped at norm 1; batches of 32 questions of
like length; 5 epochs, so that five classifiers take less than an hour of two cores. If the first classifier had less
than 90% of the known test questions right, it would be 10 epochs for all; nothing else may change the recipe.

Layers are those that ``pnml.guard(model)`` finds. The program stops if the regrets of the method ``pnml`` are not those
of the guard, called with test questions as they come, in batches padded otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import pnml
from pnml_bench.methods import ALL_METHODS
from studies.families.family import Head, Part, Stored, Task, run_family
from studies.families.text import SEEDS, TOKENS, batches, code, questions, run_texts, split, weights

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.pytorch.guard import Guard

EPOCHS, BATCH, RATE, WARM = 5, 32, 2e-4, 0.1
HEAD = "classifier"
COMPARED = 256  # test questions, between the method and the guard


def train(model: nn.Module, tokenizer: Any, texts: list[str], labels: Tensor, epochs: int = EPOCHS) -> nn.Module:
    """Train all weights; a batch has questions of like length, so that there is little padding."""
    tokens = tokenizer(texts, truncation=True, max_length=TOKENS)["input_ids"]
    lengths = torch.tensor([len(row) for row in tokens])
    steps = epochs * -(-len(texts) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (WARM * steps), (steps - step) / ((1 - WARM) * steps), 1.0)
    )
    model.train()
    for epoch in range(epochs):
        losses = []
        rows = (lengths + torch.rand(len(texts))).argsort().split(BATCH)
        for number in torch.randperm(len(rows)).tolist():
            batch = tokenizer.pad({"input_ids": [tokens[row] for row in rows[number]]}, return_tensors="pt")
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            loss = nn.functional.cross_entropy(logits, labels[rows[number]])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.3f}", flush=True)
    return model.eval()


def check_guard(guard: Guard, task: Task, part: Part, inputs: list[dict[str, Tensor]]) -> None:
    """Raise unless the method ``pnml`` has the regrets of a guard, but for the rounding that other padding brings."""
    network = Head(task.head).eval()
    method = ALL_METHODS["pnml"]().fit(Stored(network, task.train, task.layers))
    expected = torch.cat([guard(**batch).regret for batch in inputs])
    found = method.score(Stored(network, part, task.layers))
    torch.testing.assert_close(found.double(), expected.double(), rtol=3e-2, atol=1e-6)


class Texts(NamedTuple):
    """Texts, and their classes as numbers."""

    texts: list[str]
    labels: NDArray[np.int64]


def fine_tune(sets: dict[str, Texts], oods: dict[str, list[str]], seed: int) -> Task:
    """Return the task of a classifier trained on the set "train", with the layers of its guard."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    known, test = sets["train"], sets["test"]
    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(weights())
    model = AutoModelForSequenceClassification.from_pretrained(weights(), num_labels=int(known.labels.max()) + 1)
    train(model, tokenizer, known.texts, torch.from_numpy(known.labels))

    guard = pnml.guard(model).fit(batches(tokenizer, sorted(known.texts, key=len)), progress=False)
    if guard.head_name != HEAD or not guard.watched:
        raise RuntimeError(f"expected the head {HEAD!r} and layers, got {guard}")
    run = partial(run_texts, model, guard.watched, tokenizer, head=HEAD)
    task = Task(
        model.get_submodule(HEAD),
        guard.watched,
        run(known.texts)._replace(labels=known.labels),
        run(test.texts)._replace(labels=test.labels),
        {name: run(texts) for name, texts in oods.items()},
    )
    with torch.inference_mode():
        right = task.head(task.test.embeddings).argmax(dim=1).numpy() == test.labels
    print(f"{np.mean(right):.2%} of the known test questions right", flush=True)
    some = np.random.default_rng(0).choice(len(test.texts), COMPARED, replace=False)
    check_guard(guard, task, task.test.of(some), list(batches(tokenizer, [test.texts[row] for row in some])))
    return task


def make(folder: Path, seed: int) -> Task:
    names, inside, out = split(folder, seed)
    texts = {part: [text for text, _ in questions(folder, part)] for part in names}
    known = {part: np.flatnonzero(np.isin(named, inside)) for part, named in names.items()}
    sets = {
        part: Texts([texts[part][row] for row in rows], np.searchsorted(inside, names[part][rows]))
        for part, rows in known.items()
    }
    strange = [texts["test"][row] for row in np.flatnonzero(np.isin(names["test"], out))]
    return fine_tune(sets, {"near: left-out intents": strange, "far: code": code()}, seed)


if __name__ == "__main__":
    run_family("text", __doc__, lambda folder: {f"fine-tuned/{seed}": partial(make, folder, seed) for seed in SEEDS})

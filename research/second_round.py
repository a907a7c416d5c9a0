"""Run every candidate of the second round: ``python research/second_round.py FILES --results FOLDER --results FOLDER``.

Files of stored embeddings are those of ``embeddings.py`` and of ``independent/train.py``; the AUROCs of the peers come
from folders of results of the same files (``leaderboard.py``), where a later folder has the last word on a network, and
from independent/independent.json. Writes second-round.json and the table of second-round.md.
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from second_candidates import CANDIDATES, NOISE, label_noise
from second_network import Network

from pnml import Detector
from pnml.backend.progress import track
from pnml.bench.methods import GROUPS, REGRETS
from pnml.bench.results import environment, load_results
from pnml.core import theorem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from second_network import Floats, Means

    Aurocs = dict[str, dict[str, float]]  # of each method on each OOD set

HERE = Path(__file__).parent
PEERS = [name for name in GROUPS["peers"] if name not in REGRETS]
CONFIDENCE = ("baseline", "energy")
SHOWN = {"vim": "ViM", "knn": "KNN", "gen": "GEN", "baseline": "MSP", "energy": "Energy"}
SETS = "median leverage; median 1 - max p at the length of auto; AUROC of leverage alone, of auto before, with noise"
BEFORE, AFTER = "What there was: auto before, no label noise", "Label noise, a quarter of the entropy: 0.005"
KINDS = {"image": "image networks", "hidden": "with a hidden layer", "linear": "linear models"}


def peers(folders: Sequence[Path]) -> dict[str, Aurocs]:
    """AUROCs of the peers on every network; a peer that failed is missing."""
    held = json.loads((HERE / "independent" / "independent.json").read_text(encoding="utf-8"))
    found: dict[str, Aurocs] = {name: network["auroc"] for name, network in held["networks"].items()}
    for folder in folders:
        here: dict[str, Aurocs] = {}
        for result in load_results(folder):
            if result.scores is not None:
                of_network = here.setdefault(f"{result.model}_{result.ind}", {})
                of_network.setdefault(result.method, {})[result.ood] = result.scores.method.auroc
        found |= here
    return found


def measure(network: Network, known: Aurocs) -> tuple[dict[str, Any], dict[str, Means]]:
    """What there is to say of a network, with the means of its peers; and the means of every candidate on it."""
    check(network, known)
    found = {
        f"{family}: {name}": rounded(network.means(network.aurocs(candidate(network))))
        for family, members in CANDIDATES.items()
        for name, candidate in members.items()
    }
    sets = {*network.near, *network.far}
    means = {name: rounded(network.means(known[name])) for name in PEERS if known.get(name, {}).keys() >= sets}
    share = network.length() / network.mean_norm
    about = {"kind": network.kind, "length": round(share, 3), "peers": means, "sets": each_set(network)}
    return about, found


def each_set(network: Network) -> dict[str, list[float | None]]:
    """Of every set, as ``SETS`` says: what the regret is made of, and what label noise changes."""
    unsure = -np.expm1(network.new.log_p(network.length()).max(axis=1))
    before, after = (network.aurocs(label_noise(noise)(network)) for noise in (0, NOISE))
    alone = network.aurocs(network.new.h)
    return {
        ood: [
            float(f"{np.median(network.new.h[part]):.3g}"),
            float(f"{np.median(unsure[part]):.3g}"),
            *(round(found[ood], 2) if ood in found else None for found in (alone, before, after)),
        ]
        for ood, part in network.parts.items()
    }


def check(network: Network, known: Aurocs) -> None:
    """Refuse to go on if the peers were run on other rows, or if the package's detector scores otherwise than we do."""
    logits, detector = network.new.logits, network.detector
    same(network, "MSP", 1 - np.exp(theorem.log_softmax(logits)).max(axis=1), known["baseline"], 0.05)
    same(network, "Energy", -np.logaddexp.reduce(logits, axis=1), known["energy"], 0.05)
    if not math.isclose(detector.embedding_length, network.length(), rel_tol=1e-4):
        raise ValueError(f"{network.name}: length {network.length()}, the detector's is {detector.embedding_length}")
    believing = Detector(*detector.scaled_head, embedding_scale="paper").merge(detector.correlation)
    for noise, one in ((detector.label_noise, detector), (0.0, believing)):
        theirs = network.aurocs(np.asarray(one.score(network.stored), dtype=float))
        same(network, f"label noise {noise}", label_noise(noise)(network), theirs, 0.01)


def same(network: Network, what: str, scores: Floats, theirs: dict[str, float], tolerance: float) -> None:
    for ood, value in network.aurocs(scores).items():
        if abs(value - theirs[ood]) > tolerance:
            raise ValueError(f"{network.name}, {what}, {ood}: AUROC {value} here, {theirs[ood]} there")


def rounded(means: Means) -> Means:
    near, far, mean = means
    return None if near is None else round(near, 2), round(far, 2), round(mean, 2)


def table(networks: dict[str, Any], candidates: dict[str, dict[str, Means]]) -> str:
    counts = {kind: sum(network["kind"] == kind for network in networks.values()) for kind in KINDS}
    heads = ["", *(f"{counts[kind]} {name}" for kind, name in KINDS.items()), "near", "far"]
    heads += ["mean place", "first on", "to the best peer", "near losses"]
    rows = [heads, ["---"] * len(heads), ["**Peers**"]]
    for peer, shown in SHOWN.items():
        theirs = {name: of["peers"][peer] for name, of in networks.items()}
        rows.append([shown, *averages(networks, theirs), "", "", "", str(near_losses(networks, theirs))])
    family = ""
    for name, means in candidates.items():
        group, _, short = name.partition(": ")
        if group != family:
            family = group
            rows.append([f"**{group}**"])
        rows.append([short, *averages(networks, means), *standing(networks, means)])
    return "".join(f"| {' | '.join(row + [''] * (len(heads) - len(row)))} |\n" for row in rows)


def averages(networks: dict[str, Any], means: dict[str, Means]) -> list[str]:
    """Mean over the networks of each kind, then near and far over all."""
    columns = [[means[name][2] for name, of in networks.items() if of["kind"] == kind] for kind in KINDS]
    columns += [[near for near, _, _ in means.values() if near is not None], [far for _, far, _ in means.values()]]
    return [f"{np.mean(column):.2f}" if column else "–" for column in columns]


def standing(networks: dict[str, Any], means: dict[str, Means]) -> list[str]:
    """Mean place among the peers, how often first, distance to the best peer, and near losses."""
    places, margins = [], []
    for name, (_, _, mean) in means.items():
        theirs = [peer[2] for peer in networks[name]["peers"].values()]
        places.append(1 + sum(value > mean for value in theirs))
        margins.append(mean - max(theirs))
    return [f"{np.mean(places):.2f}", str(places.count(1)), signed(np.mean(margins)), str(near_losses(networks, means))]


def near_losses(networks: dict[str, Any], means: dict[str, Means]) -> int:
    """On how many networks near-OOD is more than a point below the better of MSP and Energy."""
    return sum(
        near < max(networks[name]["peers"][peer][0] for peer in CONFIDENCE) - 1
        for name, (near, _, _) in means.items()
        if near is not None
    )


def summary(candidates: dict[str, dict[str, Means]]) -> str:
    """What label noise changed, network by network."""
    gains = {name: mean - candidates[BEFORE][name][2] for name, (_, _, mean) in candidates[AFTER].items()}
    order = sorted(gains, key=lambda name: -gains[name])
    ends = [", ".join(f"{name} {signed(gains[name], 1)}" for name in part) for part in (order[:6], order[:-4:-1])]
    values = sorted(gains.values())
    return (
        f"\nLabel noise 0.005 against none, mean AUROC of a network: {signed(np.mean(values))} on average, "
        f"{signed(np.median(values))} the median, {signed(np.mean(values[:-4]))} without the four that gain most; "
        f"more than a point up on {sum(v > 1 for v in values)}, down on {sum(v < -1 for v in values)}. "
        f"Most: {ends[0]}. Least: {ends[1]}.\n"
    )


def signed(value: Any, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def text(value: Any, depth: int) -> str:
    """JSON with the outer levels on lines of their own."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {text(item, depth - 1)}" for key, item in value.items()) + "\n}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--results", type=Path, action="append", default=[], help="a folder of results of the peers")
    args = parser.parse_args()
    known = peers(args.results)
    networks: dict[str, Any] = {}
    candidates: dict[str, dict[str, Means]] = {}
    for path in track(args.files, "networks"):
        network = Network(path)
        networks[network.name], found = measure(network, known[network.name])
        for name, means in found.items():
            candidates.setdefault(name, {})[network.name] = means
    about = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": environment(),
        "means": "AUROC in percent: near, far, mean",
        "sets": SETS,
    }
    whole = text({**about, "networks": networks, "candidates": candidates}, 2)
    (HERE / "second-round.json").write_text(whole + "\n", encoding="utf-8")
    page = HERE / "second-round.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end of table -->")
    marked = f"<!-- table -->\n{table(networks, candidates)}{summary(candidates)}<!-- end of table -->"
    page.write_text(f"{before}{marked}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

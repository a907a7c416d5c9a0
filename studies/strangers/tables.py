"""Write the tables of README.md from the record: ``python -m studies.strangers.tables``."""

from __future__ import annotations

import json
from pathlib import Path

from studies.layers.tables import confidence, each_method, each_network, mean
from studies.records import replace_table

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
RECORD = FOLDER / "record.json"


def main() -> None:
    networks = json.loads(RECORD.read_text(encoding="utf-8"))
    found = {f"{network['network'].replace('_', '-')}_{network['ind']}": [network] for network in networks}
    replace_table(PAGE, "methods", each_method(found))
    replace_table(PAGE, "networks", each_network(found))
    near = {name: (mean(one, "pnml", part="near"), confidence(one)) for name, one in found.items()}
    behind = {name: ours - theirs for name, (ours, theirs) in near.items() if ours is not None and theirs is not None}
    print(f"near-OOD beside the better of MSP and Energy: {sum(behind.values()) / len(behind):+.2f} on average,")
    print(f"worst {min(behind.values()):+.2f} ({min(behind, key=lambda name: behind[name])})")
    methods = [method for method in networks[0]["auroc_tnr"] if method not in {"pnml", "pnml-last", "pnml-paper"}]
    first = sum((mean(one, "pnml") or 0) > max(mean(one, method) or 0 for method in methods) for one in found.values())
    print(f"first on {first} of {len(found)}")


if __name__ == "__main__":
    main()

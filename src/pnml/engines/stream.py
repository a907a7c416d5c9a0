"""Score onto a stream, which cannot be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from pnml.core.rows import check_scored
from pnml.engines.budget import within_budget
from pnml.engines.reading import check_coverage, check_decoded, read_chunks
from pnml.engines.summary import Summary
from pnml.io.part import Part
from pnml.io.preparation_record import check_preparation
from pnml.io.scores import ScoreTable, write_csv
from pnml.io.source import locate_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.core.detector import Detector
    from pnml.io.part import Columns
    from pnml.io.source import Samples


def score_to_stream(samples: Samples, detector: Detector, file: TextIO, *, by_layer: bool) -> Summary:
    """Score all samples as CSV into an open file, a chunk at a time; what was written stays if an error follows."""
    check_preparation(detector.preparation, samples.preparation_record)
    samples = within_budget(samples, detector.n_classes)
    table, summary = ScoreTable.of(detector, by_layer=by_layer), Summary()

    def tables() -> Iterator[Columns]:
        nonlocal summary
        for chunk in read_chunks(samples, [(0, samples.count)], "score", progress=True):
            columns = table.empty(chunk.ids)
            if len(chunk.ids):
                with locate_errors(chunk, samples.path, samples.layer_names):
                    result = detector(chunk.embeddings, features=chunk.features, logits=chunk.logits)
                    check_scored(result.regret, chunk.embeddings, chunk.features)
                columns = table.columns(chunk.ids, result)
            summary += Summary.of(Part(columns, list(chunk.skipped)))
            yield columns

    write_csv(file, tables())
    check_decoded(samples, summary.skipped)
    check_coverage(samples, summary.rows + len(summary.skipped))
    return summary

"""What ``tallygate audit verify`` has found so far, and the answer that it makes. Reads nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.audit.proof.reading import Reading
from aggregator.core.proof.excuses import StillKept
from aggregator.words import Answer, Finding, Span, plural

#: Places that are named; those beyond are counted only.
MOST_NAMED = 1_000


@dataclass(slots=True)
class ProofFindings:
    """Counts are whole; the named places are bounded, faults before notes.

    Attributes:
        lives, blocks: that were walked.
        proved: decisions whose rows give the hash of their block.
        chained_only: decisions in blocks of an older layout, whose hashes cannot be made again.
        missing: decisions of blocks that are not there; `lost`: those that their copies said were lost.
        rows_missing: decisions without a row, of blocks that are there; `erased` and `expired`: those with a reason.
        unnamed: decisions of blocks from whose charges an erased name was taken: whole, but no longer proved.
        altered: blocks whose rows do not give their hash.
        added: decisions that no block covers, or that stand more than once.
        faults: places that do not agree.
    """

    lives: int = 0
    blocks: int = 0
    proved: int = 0
    chained_only: int = 0
    missing: int = 0
    lost: int = 0
    rows_missing: int = 0
    erased: int = 0
    unnamed: int = 0
    expired: int = 0
    altered: int = 0
    added: int = 0
    faults: int = 0
    notes: int = 0
    _named_faults: list[Finding] = field(default_factory=list)
    _named_notes: list[Finding] = field(default_factory=list)
    _left: StillKept | None = None

    def left(self, reading: Reading) -> StillKept:
        """Since when what is kept; asked once."""
        if self._left is None:
            self._left = reading.left()
        return self._left

    def name(self, whose: tuple[str, int], line: str, kind: str, *, fault: bool = False, **facts: object) -> None:
        """Name a place in the life of a copy."""
        named = self._named_faults if fault else self._named_notes
        self.faults, self.notes = self.faults + fault, self.notes + (not fault)
        if len(named) < MOST_NAMED:
            copy_id, epoch = whose
            said = {"kind": kind, "fault": fault, "copy_id": copy_id, "epoch": epoch, **facts}
            named.append(Finding(f"copy {copy_id}, epoch {epoch}: {line}", said))

    def answer(self, span: Span) -> Answer:
        """Agrees if every block is chained, every row is as it was sealed, and no end was cut off.

        Cannot say where there is no block.
        """
        named = [*self._named_faults, *self._named_notes][:MOST_NAMED]
        unnamed = self.faults + self.notes - len(named)
        counts = {
            name: getattr(self, name)
            for name in (
                "lives", "blocks", "proved", "chained_only", "missing", "lost", "rows_missing", "erased", "unnamed",
                "expired", "altered", "added", "faults",
            )
        }  # fmt: skip
        parts = [plural(self.faults, "fault")] if self.faults else []
        parts += [
            f"{plural(self.blocks, 'block')} of {plural(self.lives, 'life', 'lives')} looked at",
            f"{plural(self.proved, 'decision')} proved by hash",
        ]
        for number, words in (
            (self.chained_only, "in blocks of an older layout, which are chained only"),
            (self.lost, "lost by the copies' own records"),
            (self.erased, "erased on request"),
            (self.unnamed, "in blocks from whose charges a name was erased on request"),
            (self.expired, "kept no longer"),
        ):
            if number:
                parts.append(f"{number:,} {words}")
        if unnamed:
            parts.append(f"{plural(unnamed, 'further place')} not named")
        verdict = not self.faults if self.lives or self.faults else None
        summary = f"{', '.join(parts) if verdict is not None else 'no copy has recorded anything'}; {span.words}"
        return Answer(verdict, summary, named, {**counts, "not_named": unnamed})

"""`--only`: which measurements to make."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

SECTIONS = ("claims", "scaling")


@dataclass(frozen=True)
class Only:
    """Patterns `contender/case/rows`, or the name of a section; no pattern means everything.

    A part is a prefix or a glob, and an empty or missing part matches all: `cpu`, `torch/top_p`, `/greedy/real`.
    """

    patterns: tuple[str, ...] = ()

    def contender(self, name: str, case: str, kind: str) -> bool:
        """Whether to measure a contender on a case of a kind of rows."""
        return self._any((name, case, kind), [pattern.split("/") for pattern in self.patterns])

    def case(self, case: str, kind: str) -> bool:
        """Whether to measure anybody on a case of a kind of rows."""
        return self._any((case, kind), [pattern.split("/")[1:] for pattern in self.patterns if pattern not in SECTIONS])

    def section(self, name: str) -> bool:
        """Whether to run a section beside the table."""
        return not self.patterns or name in self.patterns

    def _any(self, names: tuple[str, ...], patterns: list[list[str]]) -> bool:
        return not self.patterns or any(_matches(parts, names) for parts in patterns)


def _matches(parts: list[str], names: tuple[str, ...]) -> bool:
    pairs = zip(names, parts, strict=False)
    return len(parts) <= len(names) and all(fnmatchcase(name, f"{part}*") for name, part in pairs)

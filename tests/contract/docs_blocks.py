"""The code blocks of the documentation, and what their pages say of those that are not run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "loadtest" / "README.md", *ROOT.glob("docs/**/*.md")]
)

RUN = {"sh", "python"}
PARSED = {"json", "yaml", "toml"}
SHOWN = {"text", "js"}

LONG, PROMETHEUS = "by make test-long", "by make test-prometheus"
REASONS = {
    LONG,
    PROMETHEUS,
    "takes minutes",
    "needs a cluster",
    "needs a container engine",
    "needs another machine",
    "needs other tools",
}

_MARKER = re.compile(r"<!-- not run: (.*) -->")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page, line: where its fence is; lines count from 1.
        language: the word after the fence.
        code: what is between the fences.
        reason: why it is not run, as its page says; None for one that runs.
        answers: whether it shows what the block before it answers: nothing, or that word, is between them.
    """

    page: Path
    line: int
    language: str
    code: str
    reason: str | None
    answers: bool

    @property
    def place(self) -> str:
        """Page and line, as a reader of a failure needs them."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order."""
    lines = page.read_text().splitlines()
    found, last_end, fences = [], -1, [number for number, line in enumerate(lines) if line.startswith("```")]
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        marker = _MARKER.fullmatch(lines[start - 1]) if start else None
        between = lines[last_end + 1 : start]
        found.append(
            Block(
                page,
                start + 1,
                lines[start][3:],
                "\n".join(lines[start + 1 : end]) + "\n",
                marker[1] if marker else None,
                answers=last_end >= 0 and "".join(between).strip() in ("", "answers"),
            )
        )
        last_end = end
    return found


def markers(page: Path) -> int:
    """Return how many markers a page has, wherever they stand."""
    return sum(line.startswith("<!-- not run") for line in page.read_text().splitlines())


EVERY = [block for page in PAGES for block in blocks(page)]

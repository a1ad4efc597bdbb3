"""docs/peers.md shows the table that the comparisons go by."""

from pathlib import Path

from differences import DIFFERENCES

from logitd_kernels import TRANSFORMS

PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


def test_the_page_shows_every_difference():
    lines = [f"| {one.peer} | `{one.transform}` | {one.original} | {one.here} |" for one in DIFFERENCES]
    assert [line for line in PAGE.read_text().splitlines() if line.count("|") == 5][2:] == lines


def test_they_are_of_transforms():
    assert {one.transform for one in DIFFERENCES} <= {transform.name for transform in TRANSFORMS}

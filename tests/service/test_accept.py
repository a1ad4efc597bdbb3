"""What an Accept header asks for."""

import pytest

from logitd.api.answers import accepts


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("a/b", True),
        ("A/B", True),
        ("x/y, a/b;q=0.5", True),
        (" a/b ; q=0.001", True),
        ("a/b;q=0", False),
        ("a/b; q=0.000, x/y", False),
        ("a/bc", False),
        ("x/a/b", False),
        ("*/*", False),
        ("", False),
        (";q=0,,", False),
    ],
)
def test_a_type_is_wanted_where_it_is_named_and_not_refused(header, wanted):
    assert accepts(header, "a/b") is wanted

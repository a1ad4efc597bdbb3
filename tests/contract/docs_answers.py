"""Whether an answer is what a page shows of it."""

import json
from decimal import Decimal

ELLIPSIS = "…"


def shown(text: str) -> object:
    """Read JSON as a page shows it; fractions keep the digits that are written."""
    return json.loads(text, parse_float=Decimal)


def fits(told: object, given: object) -> bool:
    """Whether a page tells the truth about an answer.

    Args:
        told: from the page. "…" stands for any value, and as a key or as the last element for what is left out. A
            fraction tells as many digits as it has.
        given: what came.
    """
    if told == ELLIPSIS:
        return True
    if isinstance(told, dict):
        return isinstance(given, dict) and _object(dict(told), given)
    if isinstance(told, list):
        return isinstance(given, list) and _list(told, given)
    if isinstance(told, Decimal):
        return isinstance(given, (int, float)) and round(Decimal(given), -told.as_tuple().exponent) == told
    return told == given


def _object(told: dict, given: dict) -> bool:
    partly = told.pop(ELLIPSIS, None) is not None
    complete = partly or told.keys() == given.keys()
    return complete and all(key in given and fits(value, given[key]) for key, value in told.items())


def _list(told: list, given: list) -> bool:
    if told[-1:] == [ELLIPSIS]:
        told = told[:-1]
        given = given[: len(told)]
    return len(told) == len(given) and all(map(fits, told, given))

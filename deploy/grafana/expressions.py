"""PromQL over what the dashboard's variables choose."""

from typing import Any

from panels import query

CHOSEN = 'job=~"$job", instance=~"$instance"'
WORK = CHOSEN + ', endpoint!~"/metrics|.*/(live|ready)"'
SHED = CHOSEN + ', reason=~"queue_full|bytes_budget|rows_budget|wait|unavailable"'


def rate(series: str, by: str = "", chosen: str = CHOSEN) -> str:
    """Return the sum of a counter's rates, by some labels."""
    return f"sum{f' by ({by})' if by else ''} (rate({series}{{{chosen}}}[$__rate_interval]))"


def mean(histogram: str, by: str = "", chosen: str = CHOSEN) -> str:
    """Return the mean of what a histogram has observed lately."""
    return f"{rate(f'{histogram}_sum', by, chosen)} / {rate(f'{histogram}_count', by, chosen)}"


def quantile(q: float, histogram: str, by: str = "", chosen: str = CHOSEN) -> str:
    """Return a quantile of what a histogram has observed lately."""
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', f'{by}, le' if by else 'le', chosen)})"


def quantiles(histogram: str, chosen: str = CHOSEN, *, exemplars: bool = False) -> list[dict[str, Any]]:
    """Return three targets, the last with the exemplars."""
    return [
        query(quantile(q, histogram, chosen=chosen), f"p{q * 100:.0f}", exemplars=exemplars and q == 0.99)
        for q in (0.5, 0.9, 0.99)
    ]


def counts(histogram: str, chosen: str = CHOSEN) -> str:
    """Return the counts of a histogram's buckets in each interval."""
    return f"sum by (le) (increase({histogram}_bucket{{{chosen}}}[$__rate_interval]))"

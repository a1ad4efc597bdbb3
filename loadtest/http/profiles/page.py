"""A report as one HTML page that loads nothing: no script, no font, no picture from elsewhere."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from loadtest.http.profiles.svg import Chart, drawn

_STYLE = (Path(__file__).parent / "page.css").read_text()
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><title>{title}</title>
<style>{style}</style></head>
<body>
{body}
</body></html>
"""
_HOW = (
    "Requests are sent when they are due, whatever became of those before them. Latency counts from when a request was "
    "due to the last byte of an answer that was as expected; percentiles are exact, of all such requests. "
    "Shed: 429 or 503. Error: any other answer than the expected ones, or none."
)


def page(report: dict[str, Any], charts: Sequence[Chart]) -> str:
    """Return the page."""
    title = f"Load test: {report['profile']}"
    badge = '<span class="verdict held">held</span>' if report["held"] else '<span class="verdict broken">broken</span>'
    about = " · ".join(f"{name}: {value}" for name, value in report["about"].items())
    parts = [
        f"<h1>{escape(title)}{badge}</h1><p>{escape(report['text'])}</p><p>{escape(about)}</p>",
        _section("Demands", _demands(report)),
        f'<h2>Course</h2><div class="charts">{"".join(map(_figure, charts))}</div>',
        _section("Kinds of requests", _figures(report["kinds"] | {"all": report["all"]})),
        _section("Phases", _figures(report["phases"])),
        _section("Answers", _table(["status", "number"], [[k, f"{n:,}"] for k, n in report["all"]["answers"].items()])),
        f"<h2>How to read this</h2><p>{_HOW}</p>",
    ]
    return _FRAME.format(policy=_POLICY, title=escape(title), style=_STYLE, body="\n".join(parts))


def _section(title: str, table: str) -> str:
    return f'<h2>{title}</h2><div class="wide">{table}</div>'


def _figure(chart: Chart) -> str:
    keys = "".join(
        f'<span><i class="c{place % 8}"></i>{escape(line.name)}</span> ' for place, line in enumerate(chart.lines)
    )
    return (
        f'<figure><figcaption>{escape(chart.title)}</figcaption>{drawn(chart)}<div class="keys">{keys}</div></figure>'
    )


def _demands(report: dict[str, Any]) -> str:
    rows = [[slo["text"], slo["shown"], "held" if slo["met"] else "broken"] for slo in report["slos"]]
    if report["capacity_per_second"] is not None:
        rows.append(["capacity, closed loop", f"{report['capacity_per_second']:,.0f}/s", ""])
    if report["knee_rule"] is not None:
        knee = report["knee_per_second"]
        rows.append([f"knee: {report['knee_rule']}", "none" if knee is None else f"{knee:,.0f}/s", ""])
    rows.append(
        ["this client's 99th percentile of sending late", f"{report['all']['lag_p99_seconds'] * 1e3:,.2f} ms", ""]
    )
    return _table(["", "measured", ""], rows)


def _figures(of: dict[str, dict[str, Any]]) -> str:
    names = ("p50", "p90", "p95", "p99", "p99.9", "max")
    rows = []
    for name, told in of.items():
        found = told["latency_seconds"]
        counts = [f"{told[key]:,}" for key in ("requests", "shed", "errors")]
        rate = f"{told['expected_per_second'] or 0:,.1f}"
        rows.append(
            [name, counts[0], rate, *counts[1:], *(f"{found[key] * 1e3:,.2f}" if key in found else "" for key in names)]
        )
    return _table(["", "requests", "good/s", "shed", "errors", *(f"{name} ms" for name in names)], rows)


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    first = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><tr>{first}</tr>{body}</table>"


def _cell(text: str) -> str:
    kind = f' class="{text}"' if text in ("held", "broken") else ""
    return f"<td{kind}>{escape(text)}</td>"

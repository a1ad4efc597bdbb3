"""Write the pages of docs/ that derive from code: sampling parameters, settings, metrics. `make docs` runs it."""

import json
from pathlib import Path

from pydantic.fields import FieldInfo

from logitd.counting.series import SERIES, Series
from logitd.settings import Settings
from logitd_kernels import TRANSFORMS
from logitd_kernels.sampling.order import DIALECTS, order_of
from logitd_kernels.sampling.registry import DRAW_PARAMETERS
from logitd_kernels.sampling.transform import Transform

DOCS = Path(__file__).parent
_DIALECTS = [
    "A dialect is the order of the system that it is named after, and nothing else: a parameter means what its section",
    "says, whatever the dialect. How the system itself differs is said there too. Other names for the same:",
    "`repetition_penalty` is llama.cpp's `repeat_penalty`, `top_n_sigma` its `top_nsigma`, `stop_ids` vLLM's",
    "`stop_token_ids`, `adaptive_target` `adaptive_p`'s target.",
    "",
    "`order` names transforms in an order of your own. Those that it leaves out keep their place behind the same",
    "neighbour as in the dialect. What changes single logits comes before all else, and `adaptive_p` comes last.",
]
GENERATED = "<!-- Written by `make docs` from the code; edit there. -->\n"


def sampling_page() -> str:
    """Return docs/sampling-parameters.md: every transform in the order in which it acts, then the draw's parameters."""
    lines = [
        "# Sampling parameters",
        GENERATED,
        "Transforms act in this order (dialect `vllm`). Ties everywhere follow the total order: logit descending, then",
        "token id ascending. x are the logits, M their maximum, T the temperature.",
        "",
    ]
    for transform in TRANSFORMS:
        lines += _transform_section(transform)
    lines += [*_dialects(), "## The draw", "", "| parameter | values | default | what |", "|---|---|---|---|"]
    lines += [f"| `{p.name}` | {p.bounds} | `{_shown(p.neutral)}` | {p.doc} |" for p in DRAW_PARAMETERS]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Return docs/settings.md: every setting with its variable, flag and default."""
    lines = [
        "# Settings",
        GENERATED,
        "Every setting is an environment variable and a flag of `logitd serve`; the flag wins.",
        "",
        "| variable | flag | default | what |",
        "|---|---|---|---|",
    ]
    for name, field in Settings.model_fields.items():
        flag = f"--{name.replace('_', '-')}"
        lines.append(f"| `LOGITD_{name.upper()}` | `{flag}` | {_default(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Return docs/metrics.md: every series with its type, labels and meaning, then the buckets of histograms."""
    histograms = [series for series in SERIES if series.bounds]
    lines = [
        "# Metrics",
        GENERATED,
        "GET `/metrics` on the admin port, and on the main one: Prometheus text, or OpenMetrics by `Accept`.",
        "No request can add a label value: routes and status codes are the service's own, all other sets are below.",
        "In OpenMetrics the buckets of `logitd_request_duration_seconds` carry the last trace that its caller keeps",
        "(header `traceparent`) as an exemplar, `trace_id`.",
        "",
        "Every thread counts for itself, without a lock, and a scrape adds up. All that a request with one row records",
        "costs it about 10 µs, a row of a batch of 64 about 1.5 µs: 1 to 2 % of sampling it at V = 126,052, on 2 cores",
        "that others used too. `python -m loadtest.http.recording` measures it.",
        "",
        "| series | type | labels | what |",
        "|---|---|---|---|",
        *(f"| `{one.name}` | {one.kind.value} | {_labels(one)} | {one.documentation} |" for one in SERIES),
        "",
        "Besides, `process_…` and `python_…` of the Python client of Prometheus.",
        "",
        "A reason of `logitd_requests_rejected_total` is overload where it is `queue_full` (requests), `bytes_budget`,",
        "`rows_budget`, `wait` (no time left behind those before it) or `unavailable` (no room for attention, or for a",
        "session); `draining` is the end of the process; `deadline` and `slow_body` are time; all else is the caller.",
        "A stage that a request does not come to is not counted: light work has no `queue`.",
        "",
        "## Buckets",
        "",
        "Upper bounds; `+Inf` is added.",
        "",
        "| histogram | bounds |",
        "|---|---|",
        *(f"| `{one.name}` | {', '.join(f'{bound:.10g}' for bound in one.bounds)} |" for one in histograms),
    ]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Return every generated page by its path."""
    return {
        DOCS / "sampling-parameters.md": sampling_page(),
        DOCS / "settings.md": settings_page(),
        DOCS / "metrics.md": metrics_page(),
    }


def _transform_section(transform: Transform) -> list[str]:
    lines = [f"## {transform.name}", "", f"`{transform.formula}`", "", transform.boundary, ""]
    if transform.parameters:
        lines += ["| parameter | values | neutral | what |", "|---|---|---|---|"]
        lines += [f"| `{p.name}` | {p.bounds} | `{_shown(p.neutral)}` | {p.doc} |" for p in transform.parameters]
    else:
        lines.append(f"Sent as the tensor `{transform.name}`.")
    differs = [f"- `{dialect}` itself: {difference}" for dialect, difference in transform.differs.items()]
    return [*lines, "", f"Source: {transform.source}.", *(["", *differs] if differs else []), ""]


def _dialects() -> list[str]:
    lines = ["## Dialects", "", *_DIALECTS, "", "| dialect | order |", "|---|---|"]
    return [*lines, *(f"| `{one}` | {' → '.join(order_of(one).names)} |" for one in DIALECTS), ""]


def _labels(series: Series) -> str:
    told = (f"`{name}`" + (f": {', '.join(values)}" if values else "") for name, values in series.labels.items())
    return "; ".join(told)


def _default(field: FieldInfo) -> str:
    return "the usable cores" if field.default_factory else f"`{field.default}`"


def _shown(value: object) -> str:
    return json.dumps(value).removesuffix(".0")


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))

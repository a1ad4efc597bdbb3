"""Write deploy/grafana/dashboards/logitd.json: what the dashboard shows, from its first glance down to its capacity.

python deploy/grafana/dashboard.py > deploy/grafana/dashboards/logitd.json
"""

import json
import sys
from typing import Any

from expressions import CHOSEN, SHED, WORK, counts, mean, quantile, quantiles, rate
from panels import DATASOURCE, Panel, heatmap, lines, placed, query, stat


def glance() -> list[Panel]:
    """Return the eight numbers that say whether all is well."""
    requests = rate("logitd_requests_total", chosen=WORK)
    errors = rate("logitd_requests_total", chosen=WORK + ', code=~"5..", code!~"501|503"')
    shed = rate("logitd_requests_rejected_total", chosen=SHED)
    slowest = quantile(0.99, "logitd_request_duration_seconds", chosen=WORK)
    oldest = f"max(logitd_queue_oldest_seconds{{{CHOSEN}}})"
    ready = f"sum(logitd_ready{{{CHOSEN}}}) / count(up{{{CHOSEN}}})"
    firing = 'count(ALERTS{alertstate="firing", alertname=~"Logitd.*", job=~"$job"}) or vector(0)'
    tokens = rate("logitd_tokens_sampled_total")
    return [
        stat("Alerts", firing, "none", "Alerts that fire; what to do is in docs/alerts.md.", 1, 1.5),
        stat("Ready", ready, "percentunit", "Replicas that take work, of those that should.", 1, 0.5),
        stat("Requests", requests, "reqps", "Without probes and metrics.", None, None),
        stat("Tokens", tokens, "tokens/s", "Tokens drawn.", None, None),
        stat("Errors", f"({errors} or vector(0)) / {requests}", "percentunit", "5xx but 501 and 503.", 0.001, 0.01),
        stat("Shed", f"{shed} / {requests}", "percentunit", "Turned away for lack of room.", 0.01, 0.05),
        stat("p99", slowest, "s", "One request in a hundred takes longer.", 0.5, 2),
        stat("Oldest", oldest, "s", "How long the oldest of the queue has waited.", 1, 5),
    ]


def traffic() -> list[Panel]:
    """Return who asks what, what goes wrong, and how long it takes."""
    asked = query(rate("logitd_requests_total", "endpoint", WORK), "{{endpoint}}")
    failed = query(rate("logitd_requests_total", "code", WORK + ', code=~"[45].."'), "{{code}}")
    refused = query(rate("logitd_requests_rejected_total", "reason") + " > 0", "refused: {{reason}}")
    left = query(rate("logitd_cancelled_total", "stage") + " > 0", "left while {{stage}}")
    stages = query(mean("logitd_stage_duration_seconds", "stage"), "{{stage}}")
    slow = query(quantile(0.99, "logitd_stage_duration_seconds", "stage"), "{{stage}}")
    latency = quantiles("logitd_request_duration_seconds", WORK, exemplars=True)
    return [
        lines("Requests by route", "reqps", "Without probes and metrics.", asked, stacked=True),
        lines(
            "Errors, refusals, departures",
            "reqps",
            "By status, reason, and what was being done.",
            failed,
            refused,
            left,
        ),
        lines("Latency", "s", "From headers to the last byte; dots are traces.", *latency),
        lines("Mean time by stage", "s", "Where a request spends its time.", stages, stacked=True),
        lines("p99 by stage", "s", "The stage that makes slow requests slow.", slow),
        lines(
            "Loop lag, p99",
            "s",
            "How late the event loop is; above 100 ms everything is late.",
            query(quantile(0.99, "logitd_event_loop_lag_seconds", "instance"), "{{instance}}"),
        ),
    ]


def batches() -> list[Panel]:
    """Return what waits, and what is computed together."""
    waiting = [query(f"sum(logitd_queue_{what}{{{CHOSEN}}})", what) for what in ("rows", "requests")]
    oldest = query(f"max by (instance) (logitd_queue_oldest_seconds{{{CHOSEN}}})", "{{instance}}")
    shape = [query(mean(f"logitd_batch_{what}", "op"), f"{what}, {{{{op}}}}") for what in ("rows", "requests")]
    release = query(rate("logitd_batches_total", "release"), "{{release}}")
    return [
        lines("Queue", "none", "What waits to be computed.", *waiting),
        lines("Oldest in the queue", "s", "The one number of overload.", oldest),
        lines("Rows and requests in a batch", "none", "Means.", *shape),
        lines("Batches by why they were closed", "ops", "inline: light work, computed at once.", release, stacked=True),
        heatmap("Rows in a batch", "none", "Batches by size.", counts("logitd_batch_rows")),
        heatmap("Batch fill", "percentunit", "Of the budget; not of inline work.", counts("logitd_batch_fill_ratio")),
    ]


def sampling() -> list[Panel]:
    """Return what sampling does to the distributions."""
    before, after = (CHOSEN + f', when="{when}"' for when in ("after_temperature", "after_truncation"))
    entropy, support = "logitd_entropy_nats", "logitd_effective_support_tokens"
    methods = query(rate("logitd_tokens_sampled_total", "method"), "{{method}}")
    bad = query(rate("logitd_rows_total", "kind", CHOSEN + ', kind!="ok"'), "{{kind}}")
    return [
        heatmap("Entropy before truncation", "none", "Nats, after temperature.", counts(entropy, before)),
        heatmap("Entropy after truncation", "none", "Nats, of what is drawn from.", counts(entropy, after)),
        heatmap("Tokens kept", "short", "How many a row is drawn from.", counts(support, after)),
        heatmap(
            "Mass cut off", "percentunit", "Probability of what was dropped.", counts("logitd_truncated_mass_ratio")
        ),
        lines("Tokens by method", "tokens/s", "By what cut the row.", methods, stacked=True),
        lines("Bad rows", "rowsps", "Rows that got an error, by kind; each fails alone.", bad),
    ]


def attention() -> list[Panel]:
    """Return exact against linear, and what linear costs in accuracy."""
    chosen = query(rate("logitd_attention_requests_total", "algorithm, reason"), "{{algorithm}}: {{reason}}")
    heads = query(rate("logitd_attention_heads_total", "mode, why"), "{{mode}}: {{why}}")
    error = "logitd_attention_approx_relative_error"
    errors = [query(quantile(q, error, "kernel"), f"{{{{kernel}}}} p{q * 100:.0f}") for q in (0.5, 0.9)]
    return [
        lines("Exact and linear", "reqps", "Requests, and why they were computed so.", chosen, stacked=True),
        lines("Heads by method", "ops", "given_up: too wrong, so computed again exactly.", heads, stacked=True),
        lines("Relative error", "percentunit", "Measured on audited rows; the tolerance is 0.1.", *errors),
        heatmap("Keys", "short", "Sequence lengths.", counts("logitd_attention_sequence_length")),
    ]


def capacity() -> list[Panel]:
    """Return how much is left."""
    cpu = query(f"rate(process_cpu_seconds_total{{{CHOSEN}}}[$__rate_interval])", "{{instance}}")
    yield_ = query(f"{rate('logitd_rows_total')} / {rate('process_cpu_seconds_total')}", "rows per CPU second")
    memory = query(f"sum by (instance, kind) (logitd_device_memory_bytes{{{CHOSEN}}})", "{{instance}} {{kind}}")
    wait = query(mean("logitd_stage_duration_seconds", chosen=CHOSEN + ', stage="queue"'), "in the queue")
    held = [
        query(f"sum(logitd_inflight_bytes{{{CHOSEN}}})", "bodies"),
        query(f"sum(logitd_queue_bytes{{{CHOSEN}}})", "queue"),
        query(f"sum(logitd_session_state_bytes{{{CHOSEN}}})", "sessions"),
        query(f"sum(logitd_shm_bytes{{{CHOSEN}}})", "shared memory"),
    ]
    inside = [
        query(f"sum(logitd_inflight_requests{{{CHOSEN}}})", "requests"),
        query(f"sum(logitd_attention_inflight_requests{{{CHOSEN}}})", "attention requests"),
        query(f"sum(logitd_sessions{{{CHOSEN}}})", "sessions"),
    ]
    return [
        lines("Processors", "none", "CPU seconds a second, of compute_threads and the event loop.", cpu),
        lines("Yield", "none", "Rows for a second of processor: falls where work becomes dearer.", yield_),
        lines("Wait for a request", "s", "What to scale replicas on.", wait),
        lines("Memory of the device", "bytes", "Used, and what there is.", memory),
        lines("Bytes held", "bytes", "By what for.", *held, stacked=True),
        lines("Inside", "none", "Requests and sessions in the house.", *inside),
    ]


def dashboard() -> dict[str, Any]:
    """Return the whole dashboard."""
    rows = [
        ("", 4, glance()),
        ("Traffic and latency", 7, traffic()),
        ("Queue and batches", 7, batches()),
        ("Sampling: entropy and what is kept", 8, sampling()),
        ("Attention", 8, attention()),
        ("Capacity", 7, capacity()),
    ]
    return {
        "uid": "logitd",
        "title": "logitd",
        "description": "logitd at a glance: the first row says whether all is well; docs/dashboard.md reads the rest.",
        "tags": ["logitd"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_source(), _variable("job", ""), _variable("instance", '{job=~"$job"}')]},
        "panels": placed(rows),
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(label: str, of: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": f"label_values(logitd_build_info{of}, {label})", "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1, ensure_ascii=False)
    sys.stdout.write("\n")

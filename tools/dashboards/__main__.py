"""Write deploy/grafana/*.json."""

import json
from pathlib import Path
from typing import Any

from tools.dashboards.parts import CHAINS, DATABASE, WEBHOOKS
from tools.dashboards.payments import GATEWAYS, OVERVIEW
from tools.dashboards.queries import Panel

TARGET = Path(__file__).resolve().parent.parent.parent / "deploy" / "grafana"
_COLUMNS, _WIDTH, _HEIGHT = 24, 8, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

DASHBOARDS = {
    "overview": OVERVIEW,
    "gateways": GATEWAYS,
    "chains": CHAINS,
    "webhooks": WEBHOOKS,
    "database": DATABASE,
}


def dashboard(name: str) -> str:
    """Return a dashboard as Grafana's JSON."""
    return json.dumps(_dashboard(name, DASHBOARDS[name]), indent=2) + "\n"


def _dashboard(name: str, panels: list[Panel]) -> dict[str, Any]:
    return {
        "uid": f"payintent-{name}",
        "title": f"Payment Intent Service: {name}",
        "tags": ["payintent"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "links": [{"type": "dashboards", "tags": ["payintent"], "title": "", "asDropdown": False}],
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    across = _COLUMNS // _WIDTH
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {
            "x": number % across * _WIDTH,
            "y": number // across * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def main() -> None:
    """Write all dashboards."""
    for name in DASHBOARDS:
        (TARGET / f"{name}.json").write_text(dashboard(name))


if __name__ == "__main__":
    main()

"""The events of a run: the lines of metrics.jsonl."""

from typing import Any

Event = dict[str, Any]

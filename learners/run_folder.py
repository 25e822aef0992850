"""What the folder of a run holds, by name. The trainer and the command line write it, `report` and `evaluate` read it."""

from __future__ import annotations

METRICS_FILE = "metrics.jsonl"
"""Logged metrics, an entry a line."""

STREAM_FILE = "stream.jsonl"
"""Recorded env steps, one a line."""

CONFIG_FILE = "config.yaml"
"""All options of a run of the command line."""

PLOT_FILE = "plot.png"
"""Curves."""

AGENTS_FOLDER = "agents"
"""The trained models: `agent_0`, `agent_1`, …"""

CHECKPOINTS_FOLDER = "checkpoints"
"""Checkpoints of a run of the command line."""

TENSORBOARD_FOLDER = "tensorboard"
"""Event files."""

"""Settings of other libraries that a command makes for its process."""

from __future__ import annotations


def set_threads(threads: int) -> None:
    """Let torch use that many threads on a CPU; 0 leaves its own choice."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def hide_library_bars() -> None:
    """No bars for loading and saving models: they drown what the command says."""
    from transformers.utils import logging

    logging.disable_progress_bar()

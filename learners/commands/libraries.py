"""Settings of other libraries that a command makes for its process."""

from __future__ import annotations

import warnings


def set_threads(threads: int) -> None:
    """Let torch use that many threads on a CPU; 0 leaves its own choice."""
    import torch

    if threads:
        torch.set_num_threads(threads)


def quiet_libraries() -> None:
    """No bars for loading and saving models, and no notes of model libraries on each other's future: they drown what we say."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|peft)\.")

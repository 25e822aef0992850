"""How the built-in tiny model acts and is judged in the learning benchmarks, the same for every learner."""

from __future__ import annotations

TINY_TEAM = {
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "temperature": 0.7,
    "top_p": 1.0,
    "top_k": None,
    "max_new_tokens": 48,
    "eval_interval": 0,
    "eval_num_samples": 48,
    "eval_batch_size": 48,
    "shuffle": True,
}
"""Options of a learner's config."""

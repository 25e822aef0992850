"""The policy without a network that tests train learners on."""

from learners.testing import TabularPolicy

__all__ = ["TabularPolicy"]

"""Tasks for teams of language models as PettingZoo parallel environments."""

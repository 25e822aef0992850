"""Other people's environments as ours. Their packages are optional and are imported when an environment is made."""

from llm_envs.adapters.aec import from_aec_env
from llm_envs.adapters.game_env import BranchBy, GameEnv
from llm_envs.adapters.games import Game, Outcome
from llm_envs.adapters.parallel import from_parallel_env
from llm_envs.adapters.verifiers import from_verifiers

__all__ = ["BranchBy", "Game", "GameEnv", "Outcome", "from_aec_env", "from_parallel_env", "from_verifiers"]

"""A chat endpoint as an expert: what environments with the feedback `expert_edits` ask between turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from learners.preference.api import EndpointError, EndpointOptions, EndpointPolicy
from learners.sampling import SamplingConfig
from llm_envs.types import ChatPrompt


@dataclass(frozen=True)
class EndpointExpert:
    """Has a model behind an HTTP endpoint answer conversations. It can be copied and pickled, as environments that hold it are.

    Formats, keys, time-outs and retries are those of an API comparator; keys come from the environment alone.

    Attributes:
        options: of the endpoint, with its `comparator_api_url`.
        sampling: how it is asked to draw; nothing on this side makes the draws repeatable.

    Example: `EndpointExpert(EndpointOptions(comparator_api_url="https://…", comparator_api_format="openai"))`.

    Raises:
        ValueError: options that cannot work, or an environment variable they name is missing.
        ImportError: without the extra `api`.
    """

    options: EndpointOptions
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.3, max_new_tokens=2048))

    def __post_init__(self) -> None:
        EndpointPolicy(self.options, self.sampling)  # refuses now what could not be asked later

    def __call__(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The answer to a conversation.

        Raises:
            EndpointError: if the endpoint refuses, or gave no answer in any attempt: advice that is missing is no empty advice.
        """
        endpoint = EndpointPolicy(self.options, self.sampling, warn=False)
        ((text,),) = endpoint.complete([ChatPrompt(messages)], 1, [0], [None])
        if text is None:
            reasons = ", ".join(endpoint.num_failed)
            raise EndpointError(f"{endpoint} gave no answer ({reasons}) in {self.options.comparator_api_max_attempts} attempts")
        return text

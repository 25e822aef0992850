"""A comparator behind an HTTP endpoint: prompts in, texts out, and None where the endpoint gave no answer."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from learners.preference.endpoint_errors import EndpointError, NoAnswerError
from learners.preference.endpoint_formats import Query, most_per_request, read_texts, request_body
from learners.preference.endpoint_options import EndpointOptions
from learners.preference.endpoint_secrets import shown_url
from learners.sampling import SamplingConfig
from llm_envs.types import Item

if TYPE_CHECKING:
    from learners.preference.endpoint_http import Endpoint

__all__ = ["EndpointError", "EndpointOptions", "EndpointPolicy"]


@dataclass
class _Texts:
    """What was got for one prompt.

    Attributes:
        texts: completions, None where there is none.
        failed: completions that there are not, by reason.
        detail: what was wrong the first time.
    """

    texts: list[str | None] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    detail: str = ""

    def add(self, texts: Sequence[str]) -> None:
        self.texts += texts

    def miss(self, count: int, reason: str, detail: str) -> None:
        self.texts += [None] * count
        self.failed[reason] += count
        self.detail = self.detail or detail


class EndpointPolicy:
    """Has completions written by a model behind an HTTP endpoint.

    Requests for different prompts run at once; those for one prompt follow each other. Nothing here is random: what the endpoint
    draws is its own affair. Connections are held during a call only, keys never.

    Attributes:
        num_failed: completions that the endpoint gave no answer for, by reason: "timeout", "connection", "http_<status>",
            "unreadable" (no JSON, or no text in it) or "missing" (fewer than asked for).

    Args:
        options: of the endpoint, with a URL.
        sampling: how the endpoint is asked to draw.
        warn: say once that answers are missing; whoever looks at every answer need not.

    Raises:
        ValueError: options that cannot work, or an environment variable they name is missing.
        ImportError: without the extra `api`.
    """

    def __init__(self, options: EndpointOptions, sampling: SamplingConfig, *, warn: bool = True) -> None:
        options.check_endpoint_options()
        if options.comparator_api_url is None:
            raise ValueError("comparator_api_url must be given for comparator_policy='api'")
        options.endpoint_secrets()
        _import_endpoint()
        self.options, self.sampling = options, sampling
        self.num_failed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._warned = not warn

    def __repr__(self) -> str:
        return f"EndpointPolicy({self.options.endpoint_format} at {shown_url(self.options.comparator_api_url or '')})"

    def complete(
        self, prompts: Sequence[str], n: int, agents: Sequence[int], items: Sequence[Item | None]
    ) -> list[list[str | None]]:
        """`n` completions of each prompt, in order; None where the endpoint gave no answer in any attempt.

        The first missing answer of this policy is warned of, all are counted in `num_failed`.

        Args:
            prompts: texts; the messages of a `ChatPrompt` are sent as such where the format has messages.
            n: C, completions a prompt.
            agents: position of the agent that reads each prompt.
            items: the row behind each prompt, None for none.

        Raises:
            EndpointError: the endpoint refuses in a way that another attempt cannot mend.
            ValueError: the lists have different lengths, or n is below 1.
        """
        if not len(prompts) == len(agents) == len(items):
            raise ValueError(f"prompts, agents and items must be as many, got {len(prompts)}, {len(agents)} and {len(items)}")
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        if not prompts:
            return []
        queries = [Query(prompt, agent, item, n) for prompt, agent, item in zip(prompts, agents, items, strict=True)]
        results = self._ask_all(queries)
        self._count(results)
        return [result.texts for result in results]

    def _ask_all(self, queries: Sequence[Query]) -> list[_Texts]:
        stop = threading.Event()
        workers = min(len(queries), self.options.comparator_api_concurrency)
        with _import_endpoint()(self.options, stop) as endpoint, ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._ask, endpoint, query) for query in queries]
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future in done:
                        future.result()  # raises what was raised, the first in order of the prompts
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [future.result() for future in futures]

    def _ask(self, endpoint: Endpoint, wanted: Query) -> _Texts:
        """The completions of one prompt, by as many requests as it takes."""
        options, result = self.options, _Texts()
        names = (options.comparator_api_url or "", options.comparator_api_model or "")
        form = options.endpoint_format
        while (left := wanted.n - len(result.texts)) > 0:
            asked = most_per_request(form, left, options.comparator_api_max_n_per_request, names)
            query = Query(wanted.prompt, wanted.agent_idx, wanted.item, asked)
            body = request_body(form, query, self.sampling, options.comparator_api_model, options.comparator_api_extra_body)
            try:
                texts = endpoint.ask(body, lambda answer: read_texts(form, answer, options.comparator_api_response_field))
            except NoAnswerError as failure:
                # A server that cannot be reached or is out of order would let the prompt's next request wait in vain as well.
                result.miss(asked if failure.reason == "unreadable" else left, failure.reason, failure.detail)
                continue
            result.add(texts[:asked])
            if form == "generic" and len(texts) < asked:  # a server of this format says once what it has
                result.miss(asked - len(texts), "missing", f"{len(texts)} of {asked} completions came")
        return result

    def _count(self, results: Sequence[_Texts]) -> None:
        failed = sum((result.failed for result in results), Counter())
        if not failed:
            return
        with self._lock:
            self.num_failed += failed
            first, self._warned = not self._warned, True
        if first:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(failed.items()))
            detail = next(result.detail for result in results if result.detail)
            asked = sum(len(result.texts) for result in results)
            warnings.warn(
                f"the comparator's endpoint gave no answer for {failed.total()} of {asked} completions "
                f"({reasons}; {detail}): they are left out of comparisons. Further ones are counted without a warning",
                stacklevel=3,
            )


def _import_endpoint() -> type[Endpoint]:
    try:
        from learners.preference.endpoint_http import Endpoint
    except ImportError as error:
        raise ImportError("comparator_policy='api' needs httpx and tenacity: pip install 'llm-envs[api]'") from error
    return Endpoint

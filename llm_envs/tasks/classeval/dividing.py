"""Who writes which methods."""

from __future__ import annotations

from llm_envs.tasks.classeval.classes import ClassProblem


def divide(problem: ClassProblem, agents: int) -> tuple[tuple[str, ...], ...]:
    """For each agent the names of its methods, as the skeleton has them.

    The longest method first, each goes to the agent that has the fewest so far, then to the one with the least text, then to the
    first. So numbers differ by at most one, and nobody has nothing.

    Args:
        problem: the class.
        agents: their number.

    Raises:
        ValueError: there are fewer methods than agents.
    """
    if len(problem.methods) < agents:
        raise ValueError(f"row {problem.task_id!r}: {agents} agents cannot share {len(problem.methods)} methods")
    shares: list[list[int]] = [[] for _ in range(agents)]
    text = [0] * agents
    for number in sorted(range(len(problem.methods)), key=lambda one: (-problem.methods[one].characters, one)):
        agent = min(range(agents), key=lambda one: (len(shares[one]), text[one], one))
        shares[agent].append(number)
        text[agent] += problem.methods[number].characters
    return tuple(tuple(problem.methods[number].name for number in sorted(share)) for share in shares)

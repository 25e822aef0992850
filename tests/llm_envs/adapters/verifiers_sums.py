"""Tasksets of the package verifiers, written by hand as others would write them. Sums, which is what is exported, and odd ones."""

from __future__ import annotations

import asyncio

import httpx
import verifiers.v1 as vf
from verifiers.v1.utils.score import verify_boxed_math_answer

__all__ = ["Sums"]


class SumData(vf.TaskData):
    total: int


class SumTask(vf.Task[SumData]):
    """0.8 for the sum, 0.2 for a short text; the text is to be the number."""

    @vf.reward(weight=0.8)
    async def correct(self, task, trace):
        await asyncio.sleep(0)
        return float(trace.last_reply == str(task.total))

    @vf.reward(weight=0.2)
    async def short(self, trace):
        return float(len(trace.last_reply) < 4)

    @vf.metric
    async def letters(self, trace):
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    start: int = 0
    count: int = 8


class Sums(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        for number in range(self.config.start, self.config.start + self.config.count):
            yield SumTask(SumData(prompt=f"What is {number} + 2?", total=number + 2), self.config.task)


class OneSum(vf.Taskset[vf.Task, vf.TasksetConfig]):
    """The same sum three times, as tasks of any class, with this data."""

    def __init__(self, kind, **data):
        super().__init__(vf.TasksetConfig())
        self.kind, self.data = kind, {"prompt": "What is 1 + 2?", "total": 3, **data}

    def load(self):
        for number in range(3):
            yield self.kind(SumData(name=str(number), **self.data), self.config.task)


class Keyed(SumTask):
    @vf.reward
    async def parts(self, trace):
        return {"digit": float(trace.last_reply.isdigit()), "odd": 0.5}


class Boxed(vf.Task[SumData]):
    """Scored by the package's own helper, which uses signals by math-verify, and makes 0 of their absence."""

    @vf.reward
    async def equal(self, task, trace):
        return verify_boxed_math_answer(trace.last_reply, str(task.total))


class Failing(SumTask):
    @vf.reward
    async def number(self, trace):
        return float(trace.last_reply or 0)


class FailingOnNothing(SumTask):
    @vf.reward
    async def number(self, trace):
        return float(trace.last_reply)


class NotFinite(SumTask):
    @vf.reward
    async def ratio(self, trace):
        return float("nan") if trace.last_reply == "nan" else 0.0


class Slow(SumTask):
    @vf.reward
    async def waits(self, trace):
        await asyncio.sleep(60 if trace.last_reply == "wait" else 0)
        return 0.0


class Metered(SumTask):
    @vf.metric
    async def spent(self, trace):
        return float(trace.num_output_tokens if trace.last_reply == "3" else 0)

    @vf.metric
    async def ids(self, trace):
        return float(len(trace.nodes[-1].token_ids) if trace.last_reply == "4" else 0)

    @vf.metric
    async def spent_in_a_branch(self, trace):
        return float(trace.branches[0].num_output_tokens if trace.last_reply == "5" else 0)


class Seen(SumTask):
    """Tells what a reward sees of the conversation."""

    @vf.metric
    async def as_recorded(self, task, trace):
        roles = [message.role for message in trace.messages]
        return float(
            roles == ["system", "user", "assistant", "user", "assistant"]
            and (trace.num_turns, trace.num_branches, trace.stop_condition) == (1, 1, "agent_completed")
            and trace.last_message.content == trace.assistant_messages[0].content == "3"
            and trace.task.data is task
            and trace.transcript.endswith("[user]\nWhat is 1 + 2?\n\n[assistant]\n3")
        )


class Offline(SumTask):
    @vf.metric
    async def optional(self, runtime=None):
        return float(runtime is None)


# ---- the package's own rollouts ----


class DirectConfig(vf.HarnessConfig):
    pass


class Direct(vf.Harness[DirectConfig]):
    """Asks the model once, as the package's `null` does in a process of its own."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [m.model_dump() for m in prompt]
        async with httpx.AsyncClient(trust_env=False) as client:
            request = {"model": ctx.model, "messages": messages}
            reply = await client.post(f"{endpoint}/chat/completions", headers={"Authorization": f"Bearer {secret}"}, json=request)
        reply.raise_for_status()
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


def rolled_out(task, endpoint):
    """The trace of the package's own rollout with the model at the endpoint."""
    client = vf.EvalClientConfig(base_url=endpoint, api_key_var="NO_KEY")
    agent = vf.Agent(vf.AgentConfig(model="m", client=client, runtime=vf.SubprocessConfig()))
    agent.harness = Direct(DirectConfig(id="direct"))
    return asyncio.run(agent.run(task))


# ---- what cannot be played ----


class InARuntime(SumTask):
    @vf.reward
    async def tests(self, trace, runtime):
        return 1.0

    @vf.metric
    async def files(self, runtime):
        return 1.0


class InAContainer(SumTask):
    NEEDS_CONTAINER = True


class Prepared(SumTask):
    async def setup(self, trace, runtime):
        await runtime.write("/data", b"")


class Adder(vf.Toolset):
    @vf.tool
    async def add(self, one: int, other: int) -> int:
        """The sum."""
        return one + other


class WithTools(SumTask):
    @classmethod
    def toolsets(cls, config):
        return [Adder(vf.ToolsetConfig())]


class WithSharedTools(Sums):
    @classmethod
    def toolsets(cls, config):
        return [Adder(vf.ToolsetConfig())]


class Stopping(SumTask):
    @vf.stop
    async def said_enough(self, trace: vf.Trace) -> bool:
        return False


class Intercepting(SumTask):
    @vf.intercept
    async def redacted(self, request: vf.Request) -> None:
        return None


class Unrewarded(vf.Task[SumData]):
    pass


class Dialogue(vf.Env[vf.SingleAgentEnvConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            await interaction.turn("Hello!")

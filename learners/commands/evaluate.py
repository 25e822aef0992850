"""`llm-marl evaluate`: how good a trained run, or a team of models, is on an environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from learners.commands import presets
from learners.commands.display import console, option_help
from learners.commands.errors import UsageError, bad_input
from learners.commands.files import read_yaml
from learners.commands.libraries import quiet_libraries, set_threads
from learners.commands.loading import OF_TRAINING, SECTION, model_config, options_of_loading
from learners.commands.options import Option, dataclass_options, short_name
from learners.commands.parsing import Parsed, first_look, leading_words, parse
from learners.commands.settings import MAIN_ENV
from learners.commands.targets import env_of_team, env_options, find_env, open_sections
from learners.metering import Usage, metered, total_usage
from learners.run_folder import AGENTS_FOLDER, CONFIG_FILE
from llm_envs.env import BranchingEnv
from llm_envs.protocols import PROTOCOLS
from llm_envs.registry import EnvSpec
from llm_envs.types import AgentID, EnvStep, Policy

_SAMPLING = ("temperature", "top_p", "top_k", "max_new_tokens")
# Of the learner's section of a run's config: what decides how its agents write.
_OF_LEARNER = (*_SAMPLING, "seed", "prompt_overflow")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Options of an evaluation. Those of a run's folder are taken from its config unless given.

    Attributes:
        num_samples: items that are played, from the first; none plays all.
        split: `eval` for the env's evaluation items, `train` for those it trains on.
        batch_size: items that are generated together.
        temperature: of sampling, 0 for greedy.
        top_p: nucleus mass; 1 keeps all.
        top_k: tokens kept; 0 keeps all.
        max_new_tokens: longest completion.
        prompt_overflow: `error` or `truncate_left` for prompts that leave no room.
        seed: of the draws. With a run's own, items, batch and sampling the result is that of the run's last evaluation.
        tokenizer: one for all agents or one for each; by default each model's own.
        protocol: `parallel`: all agents write at once. `pipeline`: one after another, reading what was written before.
            `discussion`: all draft, read the drafts and write again. `single`: one model writes every agent's text. By default
            what the run was trained with; `parallel` for bare models.
        num_completions: episodes on each item; the r-th draws with the seed + r.
        pass_at: each k of pass@k, where the env says whether an answer is solved; by default those of 1, 3, 5, 10 that
            `num_completions` allows.
        episodes: how many are printed.
        json: print one JSON object in place of tables.
        threads: threads of torch on a CPU; 0 leaves torch's own choice.
    """

    num_samples: int | None = None
    split: Literal["eval", "train"] = "eval"
    batch_size: int = 16
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_new_tokens: int | None = None
    prompt_overflow: Literal["error", "truncate_left"] | None = None
    seed: int | None = None
    tokenizer: str | Sequence[str] | None = None
    protocol: Literal["single", "parallel", "pipeline", "discussion"] | None = None
    num_completions: int = 1
    pass_at: Sequence[int] | None = None
    episodes: int = 3
    json: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        least_values = {"num_samples": 1, "batch_size": 1, "num_completions": 1, "episodes": 0, "threads": 0, "seed": 0}
        for option, least in least_values.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise ValueError(f"--{option} must be at least {least}, got {value}")
        wrong = [k for k in self.pass_at or () if not 1 <= k <= self.num_completions]
        if wrong:
            raise ValueError(f"--pass_at {wrong[0]} must be from 1 to --num_completions, which is {self.num_completions}")


@dataclass(frozen=True)
class _Subject:
    """What is evaluated.

    Attributes:
        models: one for all agents, or one for each.
        config: of its run; empty for bare models.
    """

    models: Sequence[str]
    config: Mapping[str, Any]


def run(argv: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    if "--help" in argv or "-h" in argv:
        print(_help([word for word in argv if word not in ("--help", "-h")]))
        return 0
    from llm_envs.wrappers import JointAgent

    subject, spec, parsed, options = _settings(argv)
    set_threads(options.threads)
    quiet_libraries()
    env = env_of_team(spec, parsed.section("env"))
    if options.protocol == "single":
        if len(subject.models) > 1:
            given = ", ".join(subject.models)
            raise UsageError(f"--protocol single has one model write for all agents, got {len(subject.models)}: {given}")
        env = JointAgent(env)
    elif len(subject.models) not in (1, len(env.possible_agents)):
        agents = ", ".join(env.possible_agents)
        raise UsageError(f"give one model for all agents or one for each of {agents}, got {len(subject.models)}")
    policies = metered(_policies(subject, env, options, model_config(parsed)))
    steps = _play(env, policies, options)
    results = _Results(steps, _pass_rates(steps, options), total_usage(policies))
    if options.json:
        print(json.dumps(_as_json(spec, subject, options, results), indent=2, ensure_ascii=False))
    else:
        _show(spec, subject, options, results, env.num_turns)
    return 0


@dataclass(frozen=True)
class _Results:
    """What is printed.

    Attributes:
        steps: of all episodes.
        passes: pass@k by k; empty where the env does not say what is solved.
        usage: what the policies spent.
    """

    steps: Sequence[EnvStep]
    passes: Mapping[int, float]
    usage: Usage


def evaluate_options(env: EnvSpec) -> list[Option]:
    """Every option of `evaluate` for an env."""
    return [*_own_options(env), *options_of_loading()]


def _own_options(env: EnvSpec) -> list[Option]:
    """All but those of loading models, which need torch to be read: help must not wait for it."""
    name = Option("env.name", str, MAIN_ENV, "the environment; a run's folder brings its own.")
    return [name, *dataclass_options(EvaluateOptions), *env_options(env)]


def _settings(argv: Sequence[str]) -> tuple[_Subject, EnvSpec, Parsed, EvaluateOptions]:
    words = leading_words(argv)
    subject = _subject(words)
    of_run = subject.config.get("env", {})
    env = first_look(argv, ("env",)).get("env")
    spec = find_env(env or of_run.get("name") or MAIN_ENV)
    options = evaluate_options(spec)
    # Another env has other options.
    config = {"env": of_run} if of_run.get("name") == spec.id or env is None else {}
    parsed = parse(options, argv[len(words) :], {**config, SECTION: _loading(subject)}, open_sections=open_sections(spec))
    return subject, spec, parsed, _filled(parsed.built(EvaluateOptions), parsed, subject)


def _loading(subject: _Subject) -> dict[str, Any]:
    """How the models of a run were loaded. Its folders hold what was trained, adapters too."""
    of_run = dict(subject.config.get(SECTION) or {})
    # One name for the dtype, so that another one on the command line replaces it; the learner's own comes first, as in training.
    also = of_run.pop("torch_dtype", None)
    of_run["dtype"] = subject.config.get("learner", {}).get("dtype") or of_run.get("dtype") or also
    return {name: value for name, value in of_run.items() if name not in OF_TRAINING}


def _subject(words: Sequence[str]) -> _Subject:
    if not words:
        raise UsageError(
            "what is to be evaluated? llm-marl evaluate RUN, or llm-marl evaluate MODEL... --env ID (options come last)"
        )
    folder = Path(words[0]).expanduser()
    if not (folder / CONFIG_FILE).is_file():
        return _Subject(words, {})
    if len(words) > 1:
        raise UsageError(f"{folder} is a run, which has a model for every agent: {words[1]!r} cannot be evaluated with it")
    agents = sorted((folder / AGENTS_FOLDER).glob("agent_*"), key=lambda path: int(path.name.removeprefix("agent_")))
    if not agents:
        raise UsageError(f"{folder / AGENTS_FOLDER} holds no agents: the run has not ended yet")
    return _Subject([str(path) for path in agents], read_yaml(str(folder / CONFIG_FILE)))


def _filled(options: EvaluateOptions, parsed: Parsed, subject: _Subject) -> EvaluateOptions:
    """The options, what was not given taken from the run's config, or for bare models from preset and learners' defaults."""
    from learners.config import TrainingConfig

    learner = subject.config.get("learner")
    if learner is None:
        learner = {**{name: getattr(TrainingConfig(), name) for name in _OF_LEARNER}, **_preset(subject)}
    values: dict[str, Any] = {name: learner[name] for name in _OF_LEARNER if name not in parsed.given}
    if learner.get("eval_temperature") is not None and "temperature" not in parsed.given:
        values["temperature"] = learner["eval_temperature"]
    if "tokenizer" not in parsed.given and subject.config:
        values["tokenizer"] = None  # every agent's folder has its own
    if "protocol" not in parsed.given:
        values["protocol"] = "single" if learner.get("collaboration_mode") == "centralized" else "parallel"
    return replace(options, **values)


def _preset(subject: _Subject) -> Mapping[str, Any]:
    preset = presets.sampling(presets.choose("auto", subject.models))
    return {name: value for name, value in preset.items() if name in _SAMPLING}


def _policies(
    subject: _Subject, env: BranchingEnv, options: EvaluateOptions, loading: Mapping[str, Any] | None
) -> dict[AgentID, Policy]:
    from learners.models import load_policies
    from learners.sampling import SamplingConfig

    with bad_input():
        sampling = SamplingConfig(**{name: getattr(options, name) for name in _SAMPLING})
        policies = load_policies(
            agent_model=subject.models[0] if len(subject.models) == 1 else None,
            agents=subject.models if len(subject.models) > 1 else None,
            names=env.possible_agents,
            tokenizer=options.tokenizer,
            model_config=loading,
            sampling=sampling,
            prompt_overflow=options.prompt_overflow or "error",
        )
    return dict(policies)


def _play(env: BranchingEnv, policies: Mapping[AgentID, Policy], options: EvaluateOptions) -> list[EnvStep]:
    from learners.evaluation import evaluation_episodes

    items = env.eval_items if options.split == "eval" else env.items
    if items is None:
        raise UsageError("the env has no evaluation items: --split train plays those it trains on")
    _, steps = evaluation_episodes(
        env,
        policies,
        items,
        num_samples=_limit(items, options),
        batch_size=options.batch_size,
        seed=options.seed or 0,
        protocol=None if options.protocol == "single" else PROTOCOLS[options.protocol or "parallel"],
        repeats=options.num_completions,
    )
    return steps


def _pass_rates(steps: Sequence[EnvStep], options: EvaluateOptions) -> dict[int, float]:
    from learners.commands.episodes import pass_rates

    rates = pass_rates(steps, options.pass_at)
    if options.pass_at and not rates:
        raise UsageError("--pass_at needs an env whose reward has the term 'solved'; this one does not say what is solved")
    return rates


def _limit(items: Any, options: EvaluateOptions) -> int:
    from llm_envs.task import has_length

    if options.num_samples is not None:
        return options.num_samples
    if not has_length(items):
        raise UsageError("these items have no length: say how many to play with --num_samples")
    return len(items)


def _show(spec: EnvSpec, subject: _Subject, options: EvaluateOptions, results: _Results, num_turns: int) -> None:
    from learners.commands.display import number, print_table
    from learners.commands.episodes import evaluation_rows, show_episodes

    sampling = ", ".join(f"{name} {'none' if getattr(options, name) is None else getattr(options, name)}" for name in _SAMPLING)
    out = console()
    out.print(f"{spec.id}: {', '.join(dict.fromkeys(subject.models))}, {options.protocol}", style="bold", soft_wrap=True)
    out.print(f"{options.split} items, seed {options.seed}, {sampling}")
    out.print()
    rows = evaluation_rows(results.steps, num_turns)
    rows += [(f"pass@{k}", number(rate)) for k, rate in results.passes.items()]
    rows += [(f"{name} an episode", number(value)) for name, value in _spent(results).items()]
    print_table(out, rows, ("", "mean ± standard error"))
    if options.episodes:
        out.print()
        show_episodes(out, results.steps, options.episodes)


def _spent(results: _Results) -> dict[str, float]:
    """What an episode cost on average."""
    from learners.evaluation import by_episode

    episodes, usage = len(by_episode(results.steps)), results.usage
    return {
        "texts": usage.completions / episodes,
        "prompt tokens": usage.prompt_tokens / episodes,
        "completion tokens": usage.completion_tokens / episodes,
        "seconds of generation": usage.seconds / episodes,
    }


def _as_json(spec: EnvSpec, subject: _Subject, options: EvaluateOptions, results: _Results) -> dict[str, Any]:
    from learners.commands.episodes import agent_returns, episode_estimate, return_of
    from learners.evaluation import by_episode, evaluation_metrics

    steps = results.steps
    episodes = by_episode(steps)
    total = episode_estimate(steps, return_of)
    return {
        "env": spec.id,
        "models": list(subject.models),
        "protocol": options.protocol,
        "episodes": len(episodes),
        "return_mean": total.mean,
        "return_standard_error": total.standard_error,
        "agent_returns": {agent: value.mean for agent, value in agent_returns(steps).items()},
        "turns_mean": sum(map(len, episodes)) / len(episodes),
        "metrics": evaluation_metrics(steps),
        "pass_at": {str(k): rate for k, rate in results.passes.items()},
        "cost_per_episode": {name.replace(" ", "_"): value for name, value in _spent(results).items()},
    }


def _help(argv: Sequence[str]) -> str:
    spec = find_env(first_look(argv, ("env",)).get("env") or MAIN_ENV)
    options = _own_options(spec)
    return option_help(
        "llm-marl evaluate RUN [--OPTION VALUE]...\n       llm-marl evaluate MODEL... --env ID [--OPTION VALUE]...",
        "Play a team on the evaluation items of an environment, one completion for each agent and turn, and print what it earns. "
        "RUN is the folder of a run of `llm-marl train`; MODELs are one for all agents or one for each: hub names, folders, tiny. "
        "--model_config.OPTION says how they are loaded, as for `llm-marl train`, whose help lists the options; a run is loaded as "
        "it was trained unless told otherwise.",
        [
            ("the evaluation", [option for option in options if "." not in short_name(option.name)]),
            (f"the env {spec.id}", [option for option in options if short_name(option.name).startswith("env.")]),
        ],
    )

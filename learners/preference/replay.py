"""The pairs of every round on the disk, and which of them a round trains on.

Plain Python. A round is a file `iteration_0001.json`, complete or absent. The buffer knows the rounds of its own run, also after a
resume, and looks at no others that may lie in its folder.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from learners.config import require_choice, require_int
from learners.json_files import dump_json, parse_json, replace_file
from learners.preference.pairs import Pair, pair_from_record, pair_record
from learners.preference.replay_options import ReplayOptions, canonical_replay_mode, check_replay_options
from llm_envs.seeding import REPLAY, stream

# Parsed, a round takes several times the memory of its file.
_CACHE_BYTES = 2**28

_ELSEWHERE = "choose another preference_replay_dir, or move its files away"


class ReplayError(ValueError):
    """A round that cannot be written, or one on disk that cannot be used."""


def shard_weights(mode: str, shards: int, decay: float | None = None) -> list[float]:
    """[K] probability of each shard, a round that has pairs, from the oldest to the newest; they sum to 1.

    lambda_decay: λ^a / Σ_{j<K} λ^j for age a, 0 for the newest; 0^0 is 1    nearest_k, all_history: 1/K

    Args:
        mode: one of these.
        shards: K.
        decay: λ.

    Raises:
        ValueError: another mode.
    """
    require_choice("preference_replay_mode", mode, ("nearest_k", "all_history", "lambda_decay"))
    factor = decay if mode == "lambda_decay" and decay is not None else 1.0
    powers = [factor**age for age in reversed(range(shards))]
    total = math.fsum(powers)
    return [power / total for power in powers]


def positions_drawn(count: int, size: int, chance: np.random.Generator) -> list[int]:
    """[count] positions in a shard of `size` pairs, none twice; beyond its size, whole shuffled copies and then a remainder."""
    drawn: list[int] = []
    while len(drawn) < count:
        drawn.extend(chance.permutation(size)[: count - len(drawn)].tolist())
    return drawn


@dataclass(frozen=True)
class _Round:
    """What is known of a round without reading it: how many pairs it has, and SHA-256 of its file."""

    num_pairs: int
    sha256: str


class ReplayBuffer:
    """The pairs of a run's rounds.

    Args:
        directory: of the files, or what gives it when it is first needed; made when the first is written.
        mode: see `ReplayOptions`; any of its names.
        k: rounds of "nearest_k".
        decay: λ of "lambda_decay".
        sample_size: pairs drawn for a round; None as many as it has, or the newest one that has any.
        seed: of the run.
        cache_bytes: files of at most this size together stay in memory parsed, and the one used last.

    Raises:
        ValueError: options that do not go together.
    """

    def __init__(
        self,
        directory: str | Path | Callable[[], Path],
        mode: str = "current",
        *,
        k: int | None = None,
        decay: float | None = None,
        sample_size: int | None = None,
        seed: int = 0,
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        self.mode = canonical_replay_mode(mode)
        check_replay_options(self.mode, k, decay, sample_size)
        require_int("seed", seed, 0)
        self._directory = directory
        self._k = 1 if self.mode == "current" else k
        self._decay = decay
        self._sample_size = sample_size
        self._seed = seed
        self._cache_bytes = cache_bytes
        # Tells this run's files from another's, also those that it wrote after the checkpoint that it is resumed from.
        self._run = secrets.token_hex(8)
        self._rounds: dict[int, _Round] = {}
        self._cache: OrderedDict[int, tuple[list[Pair], int]] = OrderedDict()

    @classmethod
    def from_options(cls, options: ReplayOptions, default: Callable[[], Path], *, seed: int) -> ReplayBuffer:
        """The buffer of a config.

        Args:
            options: checked ones.
            default: gives the folder where `preference_replay_dir` is None.
            seed: of the run.
        """
        return cls(
            default if options.preference_replay_dir is None else options.preference_replay_dir,
            options.preference_replay_mode,
            k=options.preference_replay_k,
            decay=options.preference_replay_lambda,
            sample_size=options.preference_replay_sample_size,
            seed=seed,
        )

    @property
    def directory(self) -> Path:
        """Folder of the files."""
        return Path(self._directory() if callable(self._directory) else self._directory).expanduser()

    @property
    def num_pairs(self) -> int:
        """Pairs of all rounds so far."""
        return sum(known.num_pairs for known in self._rounds.values())

    def path_of(self, iteration: int) -> Path:
        """The file of a round, counted from 1."""
        return self.directory / f"iteration_{iteration:04d}.json"

    def begin_round(self, iteration: int) -> None:
        """Forget this round and later ones: a run that is begun again draws them anew.

        Raises:
            ReplayError: as `check_vacant`; nothing is forgotten then.
        """
        self.check_vacant(iteration)
        self._rounds = {number: known for number, known in self._rounds.items() if number < iteration}
        for number in [number for number in self._cache if number >= iteration]:
            del self._cache[number]

    def check_vacant(self, iteration: int) -> None:
        """Refuse a round whose file belongs to another run: to be asked before its responses are drawn.

        Raises:
            ReplayError: naming the file.
        """
        path = self.path_of(iteration)
        if not path.exists() and not path.is_symlink():
            return
        try:
            run = _parsed(path, _read(path))[0]
        except ReplayError as error:
            raise ReplayError(f"{path} exists and is not a round of this run, so it stays: {error}; {_ELSEWHERE}") from error
        if run != self._run:
            raise ReplayError(f"{path} is a round of another run and is not overwritten; {_ELSEWHERE}")

    def store(self, iteration: int, pairs: Sequence[Pair]) -> Path:
        """The file of a new round, complete and on the disk. One without pairs is written too, and never drawn from.

        A file that this run left there after the checkpoint it was resumed from is replaced.

        Raises:
            ValueError: a round that is stored already.
            ReplayError: the file belongs to another run, a value has no form in JSON, or the disk refused; what is stored stays.
        """
        require_int("iteration", iteration, 1)
        if iteration in self._rounds:
            raise ValueError(f"iteration {iteration} is stored already, in {self.path_of(iteration)}")
        self.check_vacant(iteration)
        path = self.path_of(iteration)
        data = self._document(iteration, pairs)
        try:
            digest = replace_file(path, data)
        except OSError as error:
            message = f"{path} could not be written: {error.strerror or error}; earlier rounds are untouched"
            raise ReplayError(message) from error
        self._rounds[iteration] = _Round(len(pairs), digest)
        self._remember(iteration, list(pairs), len(data))
        for past in self._cache.keys() - {iteration, *self._shards(iteration)}:
            del self._cache[past]
        return path

    def select(self, iteration: int) -> list[Pair]:
        """What this round trains on, the same whenever it is asked: chance comes from the seed and the round alone.

        "current" gives the round's pairs in order. The other modes draw a shard for each of S pairs by `shard_weights`, then the
        pairs within the shards (`positions_drawn`), and shuffle. Nothing is drawn if no round has pairs.

        Raises:
            ValueError: a round that is not stored.
            ReplayError: a file is missing or not what was stored.
        """
        if iteration not in self._rounds:
            raise ValueError(f"iteration {iteration} is not stored; those that are: {sorted(self._rounds)}")
        if self.mode == "current":
            return list(self._pairs(iteration))
        shards = self._shards(iteration)
        if not shards:
            return []
        chance = stream(REPLAY, (self._seed, iteration))
        size = self._sample_size or self._rounds[iteration].num_pairs or self._rounds[shards[-1]].num_pairs
        counts = chance.multinomial(size, shard_weights(self.mode, len(shards), self._decay))
        drawn: list[Pair] = []
        for shard, count in zip(shards, counts.tolist(), strict=True):
            positions = positions_drawn(count, self._rounds[shard].num_pairs, chance)
            if positions:
                pairs = self._pairs(shard)
                drawn.extend(pairs[position] for position in positions)
        return [drawn[position] for position in chance.permutation(len(drawn))]

    def state_dict(self) -> dict[str, Any]:
        """Which rounds are this run's: plain values. Their pairs stay in the files."""
        rounds = [
            {"iteration": iteration, "num_pairs": known.num_pairs, "sha256": known.sha256}
            for iteration, known in sorted(self._rounds.items())
        ]
        return {"run": self._run, "rounds": rounds}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make sure that the rounds of a state are there.

        Raises:
            ReplayError: the file of a round is missing, or not the one of then.
        """
        for iteration, known in _rounds_of(state).items():
            _read_checked(self.path_of(iteration), known)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`, with the rounds of then.

        Raises:
            ReplayError: as `check_state_dict`; nothing is changed.
        """
        self.check_state_dict(state)
        self._run, self._rounds = state["run"], _rounds_of(state)
        self._cache.clear()

    def _shards(self, iteration: int) -> list[int]:
        """Rounds up to this one that may be drawn from, the newest last."""
        filled = sorted(number for number, known in self._rounds.items() if known.num_pairs and number <= iteration)
        return filled if self._k is None else filled[-self._k :]

    def _pairs(self, iteration: int) -> list[Pair]:
        if iteration in self._cache:
            self._cache.move_to_end(iteration)
            return self._cache[iteration][0]
        path = self.path_of(iteration)
        data = _read_checked(path, self._rounds[iteration])
        pairs = _parsed(path, data)[1]
        self._remember(iteration, pairs, len(data))
        return pairs

    def _remember(self, iteration: int, pairs: list[Pair], size: int) -> None:
        self._cache[iteration] = pairs, size
        while len(self._cache) > 1 and sum(size for _, size in self._cache.values()) > self._cache_bytes:
            self._cache.popitem(last=False)

    def _document(self, iteration: int, pairs: Sequence[Pair]) -> bytes:
        """The round's file: a JSON object with a line for each pair."""
        lines = [_line(pair, f"pair {number} of iteration {iteration}") for number, pair in enumerate(pairs, start=1)]
        head = dump_json({"run": self._run, "iteration": iteration, "num_pairs": len(pairs)})
        return head[:-1] + b',"pairs":[\n' + b",\n".join(lines) + b"\n]}\n"


def _rounds_of(state: Mapping[str, Any]) -> dict[int, _Round]:
    return {entry["iteration"]: _Round(entry["num_pairs"], entry["sha256"]) for entry in state["rounds"]}


def read_round(path: str | Path) -> list[Pair]:
    """The pairs in a round's file.

    Raises:
        ReplayError: no such file, or it is damaged, cut off or something else.
    """
    return _parsed(Path(path), _read(Path(path)))[1]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReplayError(f"{path} cannot be read: {error.strerror or error}") from error


def _read_checked(path: Path, known: _Round) -> bytes:
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != known.sha256:
        raise ReplayError(f"{path} is not the file that this run stored: its checksum differs")
    return data


def _parsed(path: Path, data: bytes) -> tuple[str, list[Pair]]:
    """The run that wrote a round, and its pairs."""
    try:
        document = parse_json(data)
    except ValueError as error:
        raise ReplayError(f"{path} is not a whole JSON file: {error}") from error
    if not isinstance(document, dict):
        raise ReplayError(f"{path} is not a round of pairs: it holds a {type(document).__name__}")
    run, records = document.get("run"), document.get("pairs")
    if not isinstance(run, str) or not isinstance(records, list):
        raise ReplayError(f"{path} is not a round of pairs: it lacks 'run' or 'pairs'")
    if document.get("num_pairs") != len(records):
        raise ReplayError(f"{path} is damaged: it has {len(records)} pairs, and num_pairs is {document.get('num_pairs')!r}")
    return run, [_pair(record, f"{path}, pair {number}") for number, record in enumerate(records, start=1)]


def _pair(record: Any, where: str) -> Pair:
    try:
        return pair_from_record(record)
    except ValueError as error:
        raise ReplayError(f"{where}: {error}") from error


def _line(pair: Pair, where: str) -> bytes:
    try:
        return dump_json(pair_record(pair))
    except (TypeError, ValueError) as error:
        raise ReplayError(f"{where} cannot be stored: {error}") from error

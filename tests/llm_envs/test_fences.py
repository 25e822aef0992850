"""Guards the one rule by which answers are read out of fences, and that no family's reward depends on how an answer is wrapped."""

from __future__ import annotations

import re
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_envs
from llm_envs.tasks.fences import fenced_text
from llm_envs.tasks.tool_use.calls import parse_calls

ANSWER = re.compile(r"go\b")
"""Lines of an answer begin with this word."""


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("go 1\ngo 2\n", "go 1\ngo 2\n"),  # no fence: all of it
        ("", ""),
        ("So:\n```\ngo 1\n\ngo 2\n```\nThat is all: go 3", "go 1\n\ngo 2"),
        ("```python\ngo 1\n```", "go 1"),
        ("``` python title='a'\ngo 1\n```", "go 1"),
        ("~~~\ngo 1\n~~~", "go 1"),
        ("~~~\ngo 1\n```\ngo 2\n~~~", "go 1\n```\ngo 2"),  # the other character's is none
        ("```\ngo 1\n~~~\n```", "go 1\n~~~"),
        ("```\ngo 1", "go 1"),  # never closed
        ("```", ""),
        ("```\n```", ""),
        # Several, of whatever languages.
        ("```\ngo 1\n```\nand\n```sql\ngo 2\n```", "go 1\ngo 2"),
        ("```\ngo 1\n```\nand\n```\ngo 2", "go 1\ngo 2"),
        ("```a\ngo 1\n```b\ngo 2\n```", "go 1\ngo 2"),  # the first one's end is forgotten
        # Longer fences hold shorter ones; a longer one closes too.
        ("````\ngo 1\n```\ngo 2\n```\n````\nno", "go 1\n```\ngo 2\n```"),
        ("```\ngo 1\n`````\nno", "go 1"),
        ("``\ngo 1\n``", "``\ngo 1\n``"),  # two are no fence
        # Line ends, marks of files, indentation.
        ("So:\r\n```\r\ngo 1\r\ngo 2\r\n```\r\n", "go 1\ngo 2"),
        ("\ufeff```\rgo 1\r```\r", "go 1"),
        ("1. So:\n\n    ```\n    go 1\n      go 2\n    ```\n", "go 1\n  go 2"),
        ("```\ngo 1\n    ```\n    go 2\n    ```\n```\nno", "go 1\n    ```\n    go 2\n    ```"),  # as in a docstring
        ("```\ngo 1\n   ```\nno", "go 1"),
        # Careless ones: within a line, or with the answer beside them.
        ("So: ```\ngo 1\ngo 2```\nno", "go 1\ngo 2"),
        ("So: ```python\ngo 1\n```", "go 1"),
        ("```/go 1\ngo 2\n```", "/go 1\ngo 2"),
        ("```\ngo 1\n``` and that is all\nno", "go 1"),
        ("```go(1)```", "go(1)"),
        ("```go(1)``` or ```go(2)```, who knows", "go(1)\ngo(2)"),
        ("go '```'", "go '```'"),
        ("go ```a``` and ```b```", "go ```a``` and ```b```"),
        ("```a `b`\ngo 1", "```a `b`\ngo 1"),
        ("So: ```go 1; go 2", "So: ```go 1; go 2"),
        # One fence after text: the end of a block that the prompt opened, or the start of one that was cut off.
        ("go 1\n```", "go 1"),
        ("go 1```", "go 1"),
        ("go 1\n```\nGood luck!", "go 1"),
        ("go 1\n```\nor\ngo 2", "go 1"),
        ("So:\n```\ngo 1", "go 1"),
        ("So:\n```\nno", "So:"),
        ("So:\n```python\nno", "no"),
        ("go 1\n```\nFor example:\n```sh\ngo 2\n```", "go 1\ngo 2"),
        ("go 1\n```\ngo 2\n```", "go 2"),  # closed, so it is a block
    ],
)
def test_what_is_read(text, read):
    assert fenced_text(text, ANSWER) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("```py\ngo 1\n```\n```text\n5\n```", "go 1"),
        ("```PY\ngo 1\n```", "go 1"),
        ("```\ngo 1\n```", "go 1"),
        ("go 1\n```text\n5\n```\ngo 2", "go 1\ngo 2"),  # the only blocks are others: what is not in them
        ("go 1\n```\nIt gives:\n```text\n5\n```", "go 1"),
        ("```markdown\n# Go\n```py\ngo 1\n```\n```", "go 1"),
    ],
)
def test_of_named_languages(text, read):
    assert fenced_text(text, ANSWER, ("", "py")) == read


PIECES = ["go 1", "text", "```", "```py", "~~~", "````", "    ```", "go 2```", "So: ```", "```a```", "", "\r\n", "`"]


@given(st.lists(st.sampled_from(PIECES)).map("\n".join) | st.text(alphabet="`~ \n\rgox", max_size=60))
def test_nothing_is_invented(text):
    """What is read are pieces of the text in its order; and what holds no fence is read as it is."""
    read = fenced_text(text, ANSWER)
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    place = 0
    for line in read.split("\n"):
        found = plain.find(line.strip(), place)
        assert found >= 0
        place = found + len(line.strip())
    if "```" not in text and "~~~" not in text:
        assert read == plain


@given(st.text(alphabet="abgo()=\n '", max_size=80), st.sampled_from(["```", "~~~~", "`````"]), st.sampled_from(["", "py"]))
def test_a_wrapped_text_is_the_text(text, fence, language):
    block = textwrap.dedent(text)
    read = fenced_text(f"Here:\n\n{fence}{language}\n{text}\n{fence}\n\nDone.", ANSWER)
    assert read == (block if block.strip() else "")


# ---- in the families ----

LANGUAGES = {
    "humaneval-v0": "python",
    "mbpp-v0": "py",
    "coophumaneval-v0": "python3",
    "classeval-v0": "python",
    "bfcl-parallel-v0": "python",
    "bfcl-multiturn-v0": "tool_code",
    "travel-v0": "json",
    "strbuild-v0": "mcfunction",
    "housebuild-v0": "text",
}
"""The families whose answers have a form, each with a name that people give it."""

SMALL = {
    "travel-v0": {"train_rows": 1, "eval_rows": 1, "days": [3]},
    "strbuild-v0": {"train_rows": 1, "eval_rows": 1},
    "housebuild-v0": {"train_rows": 1, "eval_rows": 1},
}


def wrapped(text, language):
    """One answer in many wrappings."""
    return {
        "bare": f"```\n{text}\n```",
        "language": f"```{language}\n{text}\n```",
        "capitals": f"```{language.upper()}\n{text}\n```",
        "attributes": f"```{language} title='mine'\n{text}\n```",
        "tildes": f"~~~{language}\n{text}\n~~~",
        "long": f"`````{language}\n{text}\n`````",
        "text around": f"Here is what I would write.\n\n```{language}\n{text}\n```\n\nIt should work (I hope).",
        "line ends": f"So:\r\n```{language}\r\n{text}\r\n```\r\n".replace("\n", "\r\n").replace("\r\r", "\r"),
        "in a list": "1. My part:\n\n" + textwrap.indent(f"```{language}\n{text}\n```", "   "),
        "deep in a list": "- My part:\n" + textwrap.indent(f"```{language}\n{text}\n```", "      "),
        "never closed": f"So:\n```{language}\n{text}\n",
        "never closed, bare": f"So:\n```\n{text}\n",
        "closed behind": f"```{language}\n{text}```",
        "opened behind": f"So: ```{language}\n{text}\n```",
        "the prompt's": f"{text}\n```",
        "the prompt's, with a farewell": f"{text}\n```\nI hope this helps!",
        "blanks": f"\n\n  \n{text}\n\n",
        "a mark of files": f"\ufeff{text}",
    }


@pytest.mark.parametrize("id", LANGUAGES)
def test_a_reward_does_not_depend_on_the_wrapping(id):
    env = llm_envs.make(id, **SMALL.get(id, {}))
    state = env.initial(env.items[0], (0, 0), 0)
    texts = [one if isinstance(one, str) else one[0] for one in env.task.reference(env.items[0])]
    ways = {"plain": texts}
    for way in wrapped("", "x"):
        ways[way] = [wrapped(text, LANGUAGES[id])[way] for text in texts]
    transitions = env.branch(state, [dict(zip(env.possible_agents, joint, strict=True)) for joint in ways.values()])
    agent = env.possible_agents[0]
    earned = {way: transition.infos[agent] for way, transition in zip(ways, transitions, strict=True)}
    assert earned["plain"]["raw_reward"] > 0
    for way, info in earned.items():
        assert info == earned["plain"], way


def test_every_family_whose_answers_have_a_form_is_here():
    """The others read words wherever they stand (`matching`, `split`, `tldr`, `arxiv`), or none at all (`length-ratio`)."""
    words = {"matching-v0", "split-v0", "length-ratio-v0", "tldr-v0", "arxiv-v0"}
    built_in = {id for id in llm_envs.list_envs() if llm_envs.spec(id).source == "llm_envs"}
    assert built_in == words | set(LANGUAGES)


def test_fences_inside_of_an_answer_are_its_own():
    assert parse_calls("post('''So:\n```\nx()\n```\n''')").calls[0].positional == ("So:\n```\nx()\n```\n",)

"""What commands print: readable at 80 columns, plain where it goes to a pipe or file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from learners.commands.options import Option, short_name, type_text
from llm_envs.calling import REQUIRED

WIDTH = 80


def console() -> Console:
    """Standard output; colours only on a terminal."""
    return Console(highlight=False, markup=False, emoji=False)


def print_table(out: Console, rows: Iterable[Sequence[str]], headers: Sequence[str] = ()) -> None:
    """Print columns, under headers if there are any; numbers to the right, the last column wrapped."""
    body = [list(row) for row in rows]
    columns = len(headers) or len(body[0])
    built = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False, show_header=bool(headers))
    for index in range(columns):
        numbers = bool(body) and all(_is_number(row[index]) for row in body)
        last = index == columns - 1
        built.add_column(
            headers[index] if headers else "", justify="right" if numbers else "left", no_wrap=not last, overflow="fold"
        )
    for row in body:
        built.add_row(*(Text(cell) for cell in row))
    with out.capture() as captured:
        out.print(built)
    # The padding of the last column is of no use to anybody who reads from a pipe.
    out.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def option_help(usage: str, description: str, sections: Iterable[tuple[str, Iterable[Option]]]) -> str:
    """The help of a command.

    Args:
        usage: the command line in short.
        description: what the command does.
        sections: headings with their options.
    """
    parts = [f"usage: {usage}", _wrapped(description, "")]
    for heading, options in sections:
        lines = [line for option in options for line in option_lines(option)]
        if lines:
            parts.append("\n".join([f"{heading}:", *lines]))
    return "\n\n".join(parts)


def number(value: float) -> str:
    """A number as people read it."""
    return f"{value:.3f}"


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", ""))
    except ValueError:
        return False
    return True


def option_lines(option: Option) -> list[str]:
    """An option as the help shows it."""
    name = short_name(option.name)
    default = "required" if option.default is REQUIRED else f"default: {_default_text(option.default)}"
    return [f"  --{name}  ({type_text(option.hint)}; {default})", _wrapped(option.help, "      ")]


def _default_text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent)

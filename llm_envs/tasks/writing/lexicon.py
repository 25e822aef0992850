"""The English words and phrases that the writing tasks count: function words, words that open a phrase, transitions."""

from __future__ import annotations

import re


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


ARTICLES = _set("the a an my your our their its every")

PREPOSITIONS = _set("of in on at to from with for by into about between during through without")

AUXILIARIES = _set(
    "is are was were am be been being has have had having do does did will would shall should can could may might must"
)

CONJUNCTIONS = _set("and or but nor because if while though although unless since that than whether yet so as")

PRONOUNS = _set("i you he she it we they me him her us them who which what this these those there someone nobody everybody anybody")

FUNCTION_WORDS = (
    ARTICLES
    | PREPOSITIONS
    | AUXILIARIES
    | CONJUNCTIONS
    | PRONOUNS
    | _set(
        "his hers mine yours ours theirs myself himself herself itself themselves ourselves whom whose one ones own other "
        "others another no not only very too also just even still now then once again here both each all any some such more "
        "most much many few less same after before until when where why how above below under over up down out off against "
        "among around across along behind within upon toward towards per via however therefore thus hence moreover furthermore "
        "nevertheless otherwise instead besides meanwhile whereas despite rather almost about else ever never perhaps let "
        "cannot i'm i've i'd i'll it's that's don't doesn't didn't isn't aren't wasn't weren't can't couldn't won't wouldn't "
        "haven't hasn't"
    )
)
"""Words that say nothing of what a text is about; all others are its content."""

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "addition": ("also", "moreover", "furthermore", "additionally", "in addition", "besides"),
    "contrast": (
        "but",
        "however",
        "although",
        "though",
        "whereas",
        "yet",
        "nevertheless",
        "instead",
        "despite",
        "on the other hand",
    ),
    "cause": ("because", "since", "due to", "owing to"),
    "result": ("so", "therefore", "thus", "hence", "consequently", "as a result", "which means"),
    "order": ("first", "second", "then", "next", "finally"),
    "time": ("when", "while", "meanwhile", "before", "after", "until", "later", "eventually"),
    "example": ("for example", "for instance", "such as", "namely"),
    "emphasis": ("indeed", "in fact", "above all", "especially", "clearly"),
    "comparison": ("similarly", "likewise", "in the same way", "compared with"),
    "condition": ("if", "unless", "otherwise", "provided that"),
    "purpose": ("in order to", "so that", "to this end"),
    "summary": ("overall", "in short", "in summary", "in conclusion", "to sum up"),
}
"""Twelve categories of words and phrases that join sentences."""

TRANSITION_PATTERNS = {name: re.compile(rf"\b(?:{'|'.join(phrases)})\b") for name, phrases in TRANSITIONS.items()}
"""The same, as whole words."""

"""Parse an nginx configuration into blocks, and find the location of a path."""

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\#[^\n]*|\"(?:[^\"\\]|\\.)*\"|'[^']*'|[{};]|(?:[^\s{};\"'\\]|\\.)+")
_SIZES = {"k": 1024, "m": 1024**2}
_TIMES_S = {"s": 1, "m": 60, "h": 3600}


@dataclass
class Block:
    """A block: its opening words, its directives in order, and its inner blocks."""

    words: list[str]
    directives: list[list[str]] = field(default_factory=list)
    blocks: list["Block"] = field(default_factory=list)

    def all(self, name: str) -> list[list[str]]:
        return [directive[1:] for directive in self.directives if directive[0] == name]

    def single(self, name: str) -> list[str]:
        [arguments] = self.all(name)
        return arguments

    def inner(self, *words: str) -> list["Block"]:
        """Return the inner blocks that start with these words."""
        return [block for block in self.blocks if tuple(block.words[: len(words)]) == words]

    def location(self, path: str) -> "Block":
        """Return the location that nginx selects for a path."""
        locations = [element for element in self.inner("location") if element.words[1][:1] != "@"]
        for item in locations:
            if item.words[1:] == ["=", path]:
                return item
        prefixes = [
            element
            for element in locations
            if element.words[1] not in ("=", "~") and path.startswith(element.words[-1])
        ]
        longest = max(prefixes, key=lambda element: len(element.words[-1]))
        if longest.words[1] == "^~":
            return longest
        for entry in locations:
            if entry.words[1] == "~" and re.search(entry.words[2], path):
                return entry
        return longest


def parse(text: str) -> Block:
    """Parse a file as the content of an unnamed block."""
    open_blocks, words = [Block([])], []
    for token in _TOKEN.findall(text):
        if token.startswith("#"):
            continue
        if token == "{":
            block = Block(words)
            open_blocks[-1].blocks.append(block)
            open_blocks.append(block)
        elif token == "}":
            assert not words, words
            open_blocks.pop()
        elif token == ";":
            open_blocks[-1].directives.append(words)
        else:
            words.append(token[1:-1] if token[0] in "\"'" else token)
            continue
        words = []
    [top] = open_blocks
    return top


def size(text: str) -> int:
    """Return a size such as `64k` in bytes."""
    return int(text[:-1]) * _SIZES[text[-1]]


def seconds(text: str) -> int:
    """Return a time such as `45s` in seconds."""
    return int(text[:-1]) * _TIMES_S[text[-1]]

"""The numbers of a page, each with the file and the key it came from."""

from typing import Any

DASH = "–"


class PageNumbers:
    """Registers numbers and hands out the placeholders that stand for them in the words.

    Attributes:
        entries: placeholder's name → value, text, file and key; a key is readable and can be followed in the file.
    """

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def add(self, value: float, text: str, file: str, key: str) -> str:
        """Register a number; returns the placeholder to write in the text."""
        name = f"n{len(self.entries)}"
        self.entries[name] = {"value": value, "text": text, "file": file, "key": key}
        return "{" + name + "}"

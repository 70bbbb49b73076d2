"""What a story says, block by block, with its numbers filled in."""

import re


def blocks(story, kind):
    """The blocks of a kind, the chart of the lead before those of the sections."""
    first = [(story.get("lead") or {}).get("figure")]
    every = [*filter(None, first), *(block for section in story["sections"] for block in section["blocks"])]
    return [block for block in every if block["kind"] == kind]


def numbers_about(words, *about):
    """The numbers of the first sentence or line that has all of these words; none where there is no such sentence."""
    sentences = re.split(r"\.\s|\n", words.replace("\u00a0", " "))
    found = next((each for each in sentences if all(word in each for word in about)), "")
    return [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)", found)]


def table(story, heading, place=0):
    """The rows of a table of the section whose heading begins so: column → cell."""
    (section,) = [each for each in story["sections"] if each["heading"].startswith(heading)]
    block = [block for block in section["blocks"] if block["kind"] == "table"][place]

    def filled(cell):
        found = re.sub(r"\{(n\d+)\}", lambda place: story["numbers"][place[1]]["text"], cell)
        return found.replace("\u00a0", " ")

    return [dict(zip(block["columns"], map(filled, row), strict=True)) for row in block["rows"]]

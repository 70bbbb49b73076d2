"""One solver for each formulation that reads the prompt and nothing else."""

import re
from collections.abc import Callable


def _pairs(prompt: str, pattern: str) -> dict[str, str]:
    found = re.findall(pattern, prompt, flags=re.MULTILINE)
    assert len(dict(found)) == len(found), "a line contradicts another"
    return dict(found)


def _asked(prompt: str, pattern: str) -> tuple[str, ...]:
    match = re.search(pattern, prompt.splitlines()[-1])
    assert match is not None
    return match.groups()


def equations(prompt: str) -> str:
    told = _pairs(prompt, r"^([a-z]+) = (\w+)$")
    (name,) = _asked(prompt, r"^What is the value of ([a-z]+)\? ")
    while not name.isdigit():
        name = told[name]
    return name


def lives_with(prompt: str) -> str:
    cities, hosts = _pairs(prompt, r"^(\w+) lives in (\w+)$"), _pairs(prompt, r"^(\w+) lives with (\w+)$")
    (name,) = _asked(prompt, r"^Where does (\w+) live\? ")
    while name not in cities:
        name = hosts[name]
    return cities[name]


def kingdoms(prompt: str) -> str:
    lands, creeds, foods, elements, diseases = (
        _pairs(prompt, rf"^(\w+) {verb} (\w+)\.$")
        for verb in ("lives in", "believe in", "eat", "contains", "causes")
    )
    (disease,) = _asked(prompt, r"^Who has (\w+)\? ")
    element = next(cause for cause, what in diseases.items() if what == disease)
    food = next(food for food, what in elements.items() if what == element)
    followers = next(who for who, what in foods.items() if what == food.lower())
    (people,) = (who for who, creed in creeds.items() if followers.lower() == creed[:-3] + "ists")
    (person,) = (who for who, land in lands.items() if people == land + "ns")
    return person


def functions(prompt: str) -> str:
    tables = {(t, x): y for t, x, y in re.findall(r"^(\w)\((\d)\) = (\d)$", prompt, flags=re.MULTILINE)}
    names = _pairs(prompt, r"^([a-z]) = (\w)$")
    function, argument = _asked(prompt, r"value of (\w)\((\w)\)\? ")
    return tables[names[function], names[argument]]


def relatives(prompt: str) -> str:
    homes, jobs = _pairs(prompt, r"^(\w+) lives in (\w+)\.$"), _pairs(prompt, r"^(\w+) works as an? (\w+)\.$")
    rules = _pairs(prompt, r"^(\w+)s live with their (\w+)s\.$")
    kin = {(who, how): name for who, how, name in re.findall(r"(\w+)s (\w+) is (\w+)\.", prompt)}
    (person,) = _asked(prompt, r"^Where does (\w+) live\? ")
    return homes[kin[person, rules[jobs[person].capitalize()]]]


SOLVERS: dict[str, Callable[[str], str]] = {
    "equations": equations,
    "lives_with": lives_with,
    "kingdoms": kingdoms,
    "functions": functions,
    "relatives": relatives,
}

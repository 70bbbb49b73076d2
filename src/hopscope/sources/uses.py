"""Which names from outside itself a piece of code uses."""

import ast
import dis
import functools
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hopscope.sources.definitions import Node, bare


class Use(NamedTuple):
    """A name that code uses, with the attributes that are taken of it; `module` is where a local import finds it."""

    chain: tuple[str, ...]
    module: str | None = None
    level: int = 0


@functools.lru_cache(maxsize=4096)
def uses(node: Node) -> tuple[Use, ...]:
    """Every name that a definition takes from outside itself, each once."""
    plain = bare(node)
    statement: ast.stmt = ast.Expr(plain) if isinstance(plain, ast.Lambda) else plain
    module = ast.fix_missing_locations(ast.Module([statement], []))
    imports = [each for each in ast.walk(plain) if isinstance(each, ast.Import | ast.ImportFrom)]
    modules = {
        alias.asname or alias.name.partition(".")[0]: alias.name
        if alias.asname
        else alias.name.partition(".")[0]
        for each in imports
        if isinstance(each, ast.Import)
        for alias in each.names
    }
    found = [
        Use((alias.name,), each.module or "", each.level)
        for each in imports
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # said when the file itself was compiled
            code = compile(module, "<normalised>", "exec")
        found += uses_of_code(code, modules)
    except SyntaxError:
        # A function cut out of another may name the other's variables (nonlocal): take every name there is.
        found += [Use((each.id,)) for each in ast.walk(plain) if isinstance(each, ast.Name)]
    return tuple(dict.fromkeys(found))


def uses_of_code(code: types.CodeType, modules: Mapping[str, str]) -> Iterator[Use]:
    """Give the global names of a code object and of nested ones, each with the attributes that directly follow it."""
    chain: list[str] = []
    for instruction in [*dis.get_instructions(code), None]:
        operation = "" if instruction is None else instruction.opname
        if operation in ("LOAD_ATTR", "LOAD_METHOD") and chain and instruction is not None:
            chain.append(str(instruction.argval))
            continue
        if chain:
            local = modules.get(chain[0])
            yield Use(tuple(chain)) if local is None else Use(tuple(chain[1:]), local)
        chain = []
        if instruction is None or not isinstance(instruction.argval, str):
            continue
        loads_global = operation.startswith("LOAD_") and ("GLOBAL" in operation or operation == "LOAD_NAME")
        if loads_global or (operation.startswith("LOAD_") and instruction.argval in modules):
            chain = [instruction.argval]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from uses_of_code(constant, modules)

"""Tables of readers that were given damaged input."""

from table_makers.common import RESULTS, markdown, read_json


def faults(part: str = "rows") -> str:
    """What came of the faults that were injected: by fault, or of damage by the kind of file."""
    result = read_json(RESULTS / "faults.json")
    verdicts = ["healed", "refused", "harmless", "lost", "wrong"]
    if part == "files":
        found = [
            {"fault": f"`{name}`", "tried": sum(of.values()), **of} for name, of in result["files"].items()
        ]
    else:
        found = result["rows"]
        whole = {name: sum(row[name] for row in found) for name in ("tried", *verdicts)}
        found = [*found, {"fault": "all", **whole}]
    rows = [[str(row["fault"]), *(f"{row.get(name, 0):,}" for name in ("tried", *verdicts))] for row in found]
    table = markdown(["damaged file" if part == "files" else "fault", "tried", *verdicts], rows)
    if part == "files":
        return table
    minutes = f"in {result['cpu_minutes']:.0f} minutes of a core"
    return f"{table}\n{result['done']:,} of {result['cases']:,} planned cases, {minutes}.\n"


def atheris() -> str:
    """What a fuzzer that is guided by branches made of each reader."""
    result = read_json(RESULTS / "atheris.json")
    names = ["inputs", "right", "refused", "branches_at_first", "branches", "growth_mib"]
    rows = [
        [row["reader"], *(f"{row[name]:,}" for name in names[:3]), str(len(row["faults"])),
         *(f"{row[name]:,}" for name in names[3:])]
        for row in result["rows"]
    ]  # fmt: skip
    whole = {name: sum(row[name] for row in result["rows"]) for name in (*names, "seconds")}
    faults = sum(len(row["faults"]) for row in result["rows"])
    most = max(row["growth_mib"] for row in result["rows"])
    rows.append(["all", *(f"{whole[name]:,}" for name in names[:3]), str(faults), "", "", f"{most:,}"])
    table = markdown(
        ["reader", "inputs", "right", "refused", "faults", "branches at first", "at last", "MiB"], rows
    )
    return f"{table}\nAtheris {result['atheris']}, {whole['seconds'] / 60:.1f} minutes of a core.\n"

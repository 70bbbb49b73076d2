"""The examples of the paper's Appendix A, character by character, and the draws that they come from."""

from hopscope.tasks.text import TextConfig
from hopscope.tasks.text.functions import Applied
from hopscope.tasks.text.generate import Drawn, form
from hopscope.tasks.text.linear import Chains
from hopscope.tasks.text.names import COUNTRIES
from hopscope.tasks.text.relatives import RELATIVES, Family

PROMPTS = {
    "equations": """\
b = 2
c = 3
d = 0
a = 1
e = b
g = a
h = d
f = c
k = e
i = f
l = g
j = h
n = k
p = l
o = i
m = j
q = n
s = p
r = o
t = m
What is the value of s? Say directly only the numeric value, without any other words.""",
    "lives_with": """\
Charlie lives in Cairo
David lives in Delhi
Alice lives in Berlin
Bob lives in Amsterdam
Henry lives with David
Eve lives with Charlie
Frank lives with Alice
Grace lives with Bob
Kate lives with Grace
Larry lives with Frank
Jack lives with Eve
Isabelle lives with Henry
Mary lives with Jack
Olivia lives with Isabelle
Nick lives with Kate
Peter lives with Larry
Rose lives with Peter
Queen lives with Nick
Tom lives with Olivia
Sam lives with Mary
Where does Rose live? Say directly only the name of the city, without any other words.""",
    "kingdoms": """\
Bob lives in Silvania.
Alice lives in Novaria.
Charlie lives in Aurora.
David lives in Florinia.
Silvanians believe in celestianism.
Novarians believe in harmonianism.
Aurorans believe in elysianism.
Florinians believe in luminism.
Luminists eat beef.
Elysianists eat pork.
Harmonianists eat lamb.
Celestianists eat chicken.
Beef contains Astralyte.
Chicken contains Nephryon.
Lamb contains Zephyrium.
Pork contains Virellium.
Zephyrium causes Chronogy.
Astralyte causes Aetherflux.
Virellium causes Somnosis.
Nephryon causes Synthemia.
Who has Chronogy? Say directly the name without other words.""",
    "functions": """\
a(0) = 3
a(1) = 2
a(2) = 0
a(3) = 1
b(0) = 1
b(1) = 3
b(2) = 2
b(3) = 0
c(0) = 1
c(1) = 0
c(2) = 3
c(3) = 2
d(0) = 1
d(1) = 0
d(2) = 2
d(3) = 3
e = b
f = a
g = c
h = d
i = 0
j = 2
k = 3
l = 1
What is the value of f(i)? Say directly only the numeric value, without any other words.""",
    "relatives": """\
Penny lives in Canada.
Lily lives in Brazil.
Isabelle lives in France.
Cathy lives in Kenya.
George lives in Italy.
Adam lives in Mexico.
Kevin lives in Peru.
Ed lives in Laos.
Hank lives in Germany.
Mike lives in Japan.
Jane lives in England.
Fred lives in Hungary.
Dana lives in Norway.
Olivia lives in Qatar.
Bob lives in Denmark.
Nancy lives in Argentina.
Johns mother is Jane.
Johns sister is Olivia.
Johns father is Ed.
Johns brother is Mike.
Chriss mother is Penny.
Chriss sister is Dana.
Chriss father is Adam.
Chriss brother is George.
Dianas mother is Nancy.
Dianas sister is Isabelle.
Dianas father is Hank.
Dianas brother is Bob.
Eves mother is Lily.
Eves sister is Cathy.
Eves father is Fred.
Eves brother is Kevin.
Doctors live with their brothers.
Lawyers live with their mothers.
Teachers live with their sisters.
Engineers live with their fathers.
John works as a doctor.
Chris works as an engineer.
Diana works as a teacher.
Eve works as a lawyer.
Where does Eve live? Say directly only the name, without any other words.""",
}

ANSWERS = {
    "equations": ("1", "0, 1, 2, 3"),
    "lives_with": ("Berlin", "Amsterdam, Berlin, Cairo, Delhi"),
    "kingdoms": ("Alice", "Alice, Bob, Charlie, David"),
    "functions": ("3", "0, 1, 2, 3"),
    "relatives": (
        "Brazil",
        "Argentina, Brazil, Canada, Denmark, England, France, Germany, Hungary, Italy, Japan, Kenya, Laos, Mexico, \
Norway, Peru, Qatar",
    ),
}


def _linear(formulation: str, lines: str, asked: int) -> Chains:
    """Lines as "upper lower", numbered within their levels; rounds are separated by strokes."""
    rounds = tuple(
        (tuple(int(pair[0]) for pair in part.split()), tuple(int(pair[1]) for pair in part.split()))
        for part in lines.split("|")
    )
    drawn = Chains(form(TextConfig(formulation=formulation)), rounds, asked)
    assert all(sorted(side) == [0, 1, 2, 3] for pair in rounds for side in pair)
    return drawn


def _family() -> Family:
    told = "Penny Lily Isabelle Cathy George Adam Kevin Ed Hank Mike Jane Fred Dana Olivia Bob Nancy"
    where = "Canada Brazil France Kenya Italy Mexico Peru Laos Germany Japan England Hungary Norway Qatar Denmark "
    where += "Argentina"
    kin = (
        "Jane Penny Nancy Lily",
        "Olivia Dana Isabelle Cathy",
        "Ed Adam Hank Fred",
        "Mike George Bob Kevin",
    )
    return Family(
        homes=tuple(
            (RELATIVES.index(who), COUNTRIES.index(country))
            for who, country in zip(told.split(), where.split(), strict=True)
        ),
        kin=tuple(tuple(RELATIVES.index(who) for who in names.split()) for names in kin),
        rules=(3, 0, 1, 2),
        jobs=(0, 3, 2, 1),
        asked=3,
    )


def drawn(formulation: str) -> Drawn:
    """What chance decided for the example of a formulation."""
    match formulation:
        case "equations":
            return _linear(formulation, "12 23 30 01|01 20 33 12|20 01 32 13|12 33 20 01|01 23 12 30", 2)
        case "lives_with":
            return _linear(formulation, "22 33 01 10|33 02 10 21|22 31 10 03|01 20 12 33|13 01 32 20", 1)
        case "kingdoms":
            return _linear(formulation, "11 00 22 33|11 00 22 33|33 22 00 11|33 11 00 22|00 33 22 11", 0)
        case "functions":
            tables = ((3, 2, 0, 1), (1, 3, 2, 0), (1, 0, 3, 2), (1, 0, 2, 3))
            return Applied(tables, aliases=(1, 0, 2, 3), variables=(0, 2, 3, 1), function=1, argument=0)
    return _family()

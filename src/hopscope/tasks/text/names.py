"""The words of the text formulations: every list begins as in the paper (Appendix A) and goes on in its manner.

N chains of depth D take the first words of a list.  All are single words, and no word stands in two lists of one
formulation, so a prompt can be read in one way only.
"""

from itertools import product
from string import ascii_lowercase
from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LETTERS: Final = (*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2)))
"""Names of unknowns: a … z, then aa … zz."""

PEOPLE: Final = _words("""
    Alice Bob Charlie David Eve Frank Grace Henry Isabelle Jack Kate Larry Mary Nick Olivia Peter Queen
    Rose Sam Tom Uma Victor Wendy Xavier Yvonne Zach Arthur Bella Carl Daisy Edward Fiona Gavin Hannah
    Ivan Julia Kyle Laura Martin Nora Oscar Paula Quentin Rachel Stephen Tina Ulrich Vera Walter Xenia
    Yusuf Zoe Agnes Brian Clara Dennis Emma Felix Gloria Harold Irene James Karen Leo Mona Nathan
    Ophelia Philip Quinn Robert Sarah Theodore Ursula Vincent Wilma Xander Yolanda Zelda Albert Beatrice
    Colin Diana Eric Flora George Helen Isaac Jasmine Keith Linda Michael Nadia Owen Penelope Rita Simon
    Tamara Umberto Valerie William Ximena Yves Zane Anna Benjamin Carmen Douglas Elsa Fred Gemma Hugo
    Ingrid Joseph Kirsten Louis Miriam Neil Octavia Paul Ralph Stella Timothy Una Vernon Winifred Yasmin
    Zara Andrew Bridget Cedric Doris Ethan Frida Gilbert Hilda Ian Judith Kurt Lydia Max Natalie Otto
    Phoebe Ruth Sebastian Thelma Ulysses Violet Warren Yuri Zeno Amelia Bruno Cecilia Derek Esther
    Francis Gina Howard Ida Jonas Katrina Lucas Martha Norman Odette Patrick Raymond Sylvia Terence
    Vaughn Wanda Yvette Zita Adrian Barbara Conrad Deborah Edgar Freya Gordon Heather Igor Janet Kenneth
    Leah Matthew Nina Omar Pamela Rebecca Scott Tessa Viola Wesley Yannick Zoltan Audrey Boris Celine
    Dominic Elena Fabian Greta Hector Imogen Julian Kayla Lionel Monica Noah Olga Pascal Richard Susan
    Trevor Valentin Willa Yara Zora Alan Bianca Clement Delia Ernest Faye Gregory Holly Ismael Joanna
    Kevin Lena Morris Naomi Oliver Polly Rosalind Stanley Tabitha Vanessa Wayne Astrid Bernard Claudia
    Duncan Edith Ferdinand Gwen Herbert Iris Jerome Kimberly Lawrence Megan Nigel Ottilie Percy Roger
    Sophie Tobias Vladimir Whitney Anton Belinda Craig Dora Elliot Felicity Gerald Harriet Ivor
    Josephine Kristof Lucille Marcus Noel Orson Pearl Ramona Sean Teresa Vivian Wallace Abigail Barry
    Camille Daniel Erica Floyd Gabriella Hans Isidora Jasper Kendra Leonard Matilda Nellie Oriana Pedro
    Rupert Selma Tristan Verity Winston Aaron Bonnie Curtis Denise Edmund Fatima Gustav Heidi Ibrahim
    Jennifer Kieran Lorna Malcolm Nelson Oswald Prudence Renata Saul Tilda Wilfred Annette Bastian
    Cynthia Dylan Eleanor Franz Gertrude Henrik Ines Joel Kathleen Luther Mabel Nicole Oona Pierre
    Russell Sandra Travis Wolfgang Alfred Brenda Caspar Dagmar Emil Fanny Giles Hazel Ignatius Jessica
    Kasimir Lily Milo Nestor Osric Patricia Robin Spencer Trudy
""")
"""People of lives-with and kingdoms; Appendix A.2 has the first twenty."""

CITIES: Final = _words("""
    Amsterdam Berlin Cairo Delhi Edinburgh Fukuoka Geneva Helsinki Istanbul Jakarta Kyoto London Madrid
    Nairobi Oslo Paris Quito Rome Stockholm Tokyo Utrecht Vienna Warsaw Xiamen Yokohama Zurich Athens
    Boston Copenhagen Dublin Essen Frankfurt Glasgow Hamburg Innsbruck Johannesburg Kampala Lisbon
    Munich Naples Osaka Prague Quebec Riga Seoul Toronto Ulaanbaatar Valencia Wellington Yerevan Zagreb
    Ankara Budapest Chicago Dakar Entebbe Fez Gdansk Havana Islamabad Jerusalem Kathmandu Lagos Montreal
    Nagoya Odessa Perth Rotterdam Santiago Tehran Uppsala Venice Winnipeg Yangon Zanzibar
""")
"""Cities of lives-with; no person is called like one."""

KINGDOMS: Final = _words("""
    Novaria Silvania Aurora Florinia Eldoria Valtoria Kestoria Drakonia Tarsonia Borelia Galdora Helmora
    Juvenia Karvania Lorinda Meridia Ostoria Pelagia Quintara Ravenia Sarmora Thaloria Umbroria Wyndora
    Xandria Zemoria
""")
"""All end in a, so that their people are called as the kingdom with -ns."""

CREEDS: Final = _words("""
    harmonianism celestianism elysianism luminism serenism noctianism verdantism halcyonism zenithism
    concordism valorianism umbranism tempestism primordism vesperism emberism equinism gracianism
    horizonism jubilism kinetism orbitism solacism runism oraclism ascendism
""")
"""All end in -ism, so that their followers end in -ists."""

FOODS: Final = _words("""
    lamb chicken pork beef rice bread cheese honey salmon tofu garlic spinach barley butter pasta yogurt
    cabbage celery quinoa venison mutton tuna broccoli corn bacon ginger
""")
"""Foods that are eaten, and contain, without an article."""

ELEMENTS: Final = _words("""
    Zephyrium Nephryon Virellium Astralyte Brontium Calderite Dravium Feronyx Glacium Heliodyne Ignavium
    Jolvite Kryalium Lorvium Mirandite Noctyl Obryllium Pyronite Quarzium Rhodalyte Sylphine Thaumite
    Ulvarium Wolvenite Xylorium Ysmarite
""")
"""What foods contain."""

DISEASES: Final = _words("""
    Chronogy Synthemia Somnosis Aetherflux Brontalgia Cryolepsy Dormitis Ectophoria Ferroplegia
    Glimmerpox Hydralgia Iridosis Jitterpox Kinemia Lethargosis Marblitis Nebulosis Oscillemia
    Phantasmia Quiverosis Riftplegia Stellopathy Tremorgy Umbralgia Vertemia Whisperpox
""")
"""What elements cause."""

ASKED_ABOUT: Final = ("John", "Chris", "Diana", "Eve")
"""The four people of relatives, in the order in which they are introduced."""

RELATIONS: Final = ("mother", "sister", "father", "brother")
"""The relatives that each of them has, in the order in which they are introduced: two women, two men."""

JOBS: Final = ("doctor", "lawyer", "teacher", "engineer")
"""In the order in which it is said with whom they live."""

WOMEN: Final = ("Cathy", "Dana", "Isabelle", "Jane", "Lily", "Nancy", "Olivia", "Penny")
"""Mothers and sisters of relatives."""

MEN: Final = ("Adam", "Bob", "Ed", "Fred", "George", "Hank", "Kevin", "Mike")
"""Fathers and brothers of relatives."""

COUNTRIES: Final = _words("""
    Argentina Brazil Canada Denmark England France Germany Hungary Italy Japan Kenya Laos Mexico Norway
    Peru Qatar
""")
"""Countries of relatives, one for each woman and man."""

"""Words of the questions and of texts.

Each list of the questions begins as in the paper (Appendix A) and goes on in its manner.  All are single words, and
none stands in two lists of one formulation, so a question can be read in one way only.
"""

import itertools
from string import ascii_lowercase

LETTERS = (*ascii_lowercase, *map("".join, itertools.product(ascii_lowercase, repeat=2)))
"""Names of unknowns: a … z, then aa … zz."""

_LISTS = """
Alice Bob Charlie David Eve Frank Grace Henry Isabelle Jack Kate Larry Mary Nick Olivia Peter Queen Rose Sam Tom Uma
Victor Wendy Xavier Yvonne Zach Arthur Bella Carl Daisy Edward Fiona Gavin Hannah Ivan Julia Kyle Laura Martin Nora
Oscar Paula Quentin Rachel Stephen Tina Ulrich Vera Walter Xenia Yusuf Zoe Agnes Brian Clara Dennis Emma Felix Gloria
Harold Irene James Karen Leo Mona Nathan Ophelia Philip Quinn Robert Sarah Theodore Ursula Vincent Wilma Xander Yolanda
Zelda Albert Beatrice Colin Diana Eric Flora George Helen Isaac Jasmine Keith Linda Michael Nadia Owen Penelope Rita
Simon Tamara Umberto Valerie William Ximena Yves Zane Anna Benjamin Carmen Douglas Elsa Fred Gemma Hugo Ingrid Joseph
Kirsten Louis Miriam Neil Octavia Paul Ralph Stella Timothy Una Vernon Winifred Yasmin Zara Andrew Bridget Cedric Doris
Ethan Frida Gilbert Hilda Ian Judith Kurt Lydia Max Natalie Otto Phoebe Ruth Sebastian Thelma Ulysses Violet Warren |
Amsterdam Berlin Cairo Delhi Edinburgh Fukuoka Geneva Helsinki Istanbul Jakarta Kyoto London Madrid Nairobi Oslo Paris
Quito Rome Stockholm Tokyo Utrecht Vienna Warsaw Xiamen Yokohama Zurich Athens Boston Copenhagen Dublin Essen Frankfurt
Glasgow Hamburg Innsbruck Johannesburg Kampala Lisbon Munich Naples Osaka Prague Quebec Riga Seoul Toronto Ulaanbaatar
Valencia Wellington Yerevan Zagreb Ankara Budapest Chicago Dakar Entebbe Fez Gdansk Havana Islamabad Jerusalem
Kathmandu Lagos Montreal Nagoya Odessa Perth Rotterdam Santiago Tehran Uppsala Venice Winnipeg Yangon Zanzibar |
Novaria Silvania Aurora Florinia Eldoria Valtoria Kestoria Drakonia Tarsonia Borelia Galdora Helmora Juvenia Karvania
Lorinda Meridia Ostoria Pelagia Quintara Ravenia Sarmora Thaloria Umbroria Wyndora Xandria Zemoria |
harmonianism celestianism elysianism luminism serenism noctianism verdantism halcyonism zenithism concordism
valorianism umbranism tempestism primordism vesperism emberism equinism gracianism horizonism jubilism kinetism
orbitism solacism runism oraclism ascendism |
lamb chicken pork beef rice bread cheese honey salmon tofu garlic spinach barley butter pasta yogurt cabbage celery
quinoa venison mutton tuna broccoli corn bacon ginger |
Zephyrium Nephryon Virellium Astralyte Brontium Calderite Dravium Feronyx Glacium Heliodyne Ignavium Jolvite Kryalium
Lorvium Mirandite Noctyl Obryllium Pyronite Quarzium Rhodalyte Sylphine Thaumite Ulvarium Wolvenite Xylorium Ysmarite |
Chronogy Synthemia Somnosis Aetherflux Brontalgia Cryolepsy Dormitis Ectophoria Ferroplegia Glimmerpox Hydralgia
Iridosis Jitterpox Kinemia Lethargosis Marblitis Nebulosis Oscillemia Phantasmia Quiverosis Riftplegia Stellopathy
Tremorgy Umbralgia Vertemia Whisperpox |
John Chris Diana Eve | mother sister father brother | doctor lawyer teacher engineer |
Cathy Dana Isabelle Jane Lily Nancy Olivia Penny |
Adam Bob Ed Fred George Hank Kevin Mike |
Argentina Brazil Canada Denmark England France Germany Hungary Italy Japan Kenya Laos Mexico Norway Peru Qatar
"""
(
    PEOPLE, CITIES, KINGDOMS, CREEDS, FOODS, ELEMENTS, DISEASES, ASKED, RELATIONS, JOBS, WOMEN, MEN, COUNTRIES,
) = (tuple(words.split()) for words in _LISTS.split("|"))  # fmt: skip

_FUNCTION_WORDS = """
about above across after again against all almost along already also although always am among an and another any
anybody anyone anything are aren't around as at away be because been before being below between both but by can can't
cannot could couldn't did didn't do does doesn't doing don't done down during each either else enough even ever every
everybody everyone everything few for from further had hadn't has hasn't have haven't having he he's her here hers
herself him himself his how however i'd i'll i'm i've if in indeed into is isn't it it's its itself just least less let
like many may me might mine more most much must my myself near neither never no nobody none nor not nothing now of off
often on once one only onto or other others ought our ours ourselves out over own per perhaps quite rather same shall
she she's should shouldn't since so some somebody someone something sometimes still such than that that's the their
theirs them themselves then there there's therefore these they they're this those though through thus till to together
too toward towards under until up upon us very was wasn't we we're were weren't what when where whether which while who
whom whose why will with within without won't would wouldn't yes yet you you're your yours yourself yourselves
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Of English: articles, pronouns, prepositions, conjunctions, auxiliaries and other words of closed classes."""

"""Claims: what sources say, what is demanded of the numbers, and the verdict that follows (free of torch).

`judge` and intervals, which take numpy, are in modules of their own: a list of studies does not wait for them.
"""

from hopscope.claims.claim import COMPLETIONS as COMPLETIONS
from hopscope.claims.claim import Claim as Claim
from hopscope.claims.claim import Criterion as Criterion
from hopscope.claims.claim import Samples as Samples
from hopscope.claims.claim import as_large_as as as_large_as
from hopscope.claims.claim import at_least as at_least
from hopscope.claims.claim import at_most as at_most
from hopscope.claims.claim import between as between
from hopscope.claims.source import registered as registered
from hopscope.claims.verdict import Judgement as Judgement
from hopscope.claims.verdict import Ledger as Ledger
from hopscope.claims.verdict import Verdict as Verdict

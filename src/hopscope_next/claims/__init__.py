"""Claims: what sources say, what is demanded of the numbers, and the verdict that follows (free of torch).

`judge` and intervals, which take numpy, are in modules of their own: a list of studies does not wait for them.
"""

from hopscope_next.claims.claim import COMPLETIONS as COMPLETIONS
from hopscope_next.claims.claim import Claim as Claim
from hopscope_next.claims.claim import Criterion as Criterion
from hopscope_next.claims.claim import Samples as Samples
from hopscope_next.claims.claim import at_least as at_least
from hopscope_next.claims.claim import at_most as at_most
from hopscope_next.claims.claim import between as between
from hopscope_next.claims.registration import registered as registered
from hopscope_next.claims.verdict import Judgement as Judgement
from hopscope_next.claims.verdict import Ledger as Ledger
from hopscope_next.claims.verdict import Verdict as Verdict

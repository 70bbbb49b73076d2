"""Claims: what sources say, what is demanded of the numbers, and the verdict that follows, by one rule for all."""

from hopscope.claims.claim import Claim as Claim
from hopscope.claims.criteria import Criterion as Criterion
from hopscope.claims.criteria import at_least as at_least
from hopscope.claims.criteria import at_most as at_most
from hopscope.claims.criteria import between as between
from hopscope.claims.judged import JudgedClaim as JudgedClaim
from hopscope.claims.judging import judge as judge
from hopscope.claims.ledger import Ledger as Ledger
from hopscope.claims.samples import Samples as Samples
from hopscope.claims.verdicts import Judgement as Judgement
from hopscope.claims.verdicts import Verdict as Verdict
from hopscope.claims.verdicts import combine_parts as combine_parts
from hopscope.claims.verdicts import combine_readings as combine_readings
from hopscope.claims.verdicts import judge_always as judge_always
from hopscope.claims.verdicts import judge_bootstrap as judge_bootstrap
from hopscope.claims.verdicts import judge_interval as judge_interval
from hopscope.claims.verdicts import not_run as not_run

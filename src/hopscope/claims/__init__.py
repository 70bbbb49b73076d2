"""The ledger: every claim of the sources as a value with threshold, seeds, interval and a derived verdict."""

from hopscope.claims.claim import Claim as Claim
from hopscope.claims.claim import ledger_table as ledger_table
from hopscope.claims.claim import parse_ledger as parse_ledger
from hopscope.claims.claim import read_ledger as read_ledger
from hopscope.claims.criteria import Criterion as Criterion
from hopscope.claims.verdicts import Judgement as Judgement
from hopscope.claims.verdicts import Verdict as Verdict
from hopscope.claims.verdicts import combine_parts as combine_parts
from hopscope.claims.verdicts import combine_readings as combine_readings
from hopscope.claims.verdicts import judge_always as judge_always
from hopscope.claims.verdicts import judge_interval as judge_interval
from hopscope.claims.verdicts import judge_mean as judge_mean
from hopscope.claims.verdicts import not_run as not_run

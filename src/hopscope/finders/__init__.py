"""Finders of circuits, and the benchmark that scores them on planted models: what a finder of one's own needs."""

from hopscope.finders.circuit_file import CircuitFile as CircuitFile
from hopscope.finders.circuit_file import FoundCircuit as FoundCircuit
from hopscope.finders.circuit_file import ScoredEdge as ScoredEdge
from hopscope.finders.contract import Finder as Finder
from hopscope.finders.contract import smallest_faithful as smallest_faithful
from hopscope.finders.edges import Budget as Budget
from hopscope.finders.edges import Edge as Edge
from hopscope.finders.edges import Patching as Patching
from hopscope.finders.edges import edges_of as edges_of

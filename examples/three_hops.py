"""Train eight models to follow three steps of a chain, read each one's circuit, and print it: ten minutes of a core."""

import sys

from hopscope.circuits.reader import read
from hopscope.models.config import Model
from hopscope.tasks import Retrieval
from hopscope.training.config import Training
from hopscope.training.train import train

given = [int(each) for each in sys.argv[1:]]
seeds, steps = given + [8, 1_000][len(given) :]
task = Retrieval(steps=3, chains=4, position="pair")
model = Model(layers=4, heads=8, head_dim=16, width=128, mlp_ratio=0.0)
training = Training(steps=steps, batch_size=64, learning_rate=4e-3)

for seed in range(seeds):
    member = train(task, model, training, [seed]).member(0)
    reading = read(member, task)
    loss = reading.loss.get("full", float("nan"))
    print(f"seed {seed}: {reading.verdict}; loss {loss:.3f}\n{reading.circuit}\n")

import time

import numpy as np
import torch


def noise(x):
    return x * np.random.rand()


def capture(graph, x):
    with torch.cuda.graph(graph):
        start = time.perf_counter()
        state = torch.cuda.get_rng_state()
        out = noise(x)
    return out, start, state

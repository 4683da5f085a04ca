import threading

import torch
from torch._inductor import config


def work():
    config.epilogue_fusion = False
    return torch.compile(model)


threading.Thread(target=work).start()

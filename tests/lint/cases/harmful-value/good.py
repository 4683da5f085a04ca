import os

import torch

os.environ["HIP_LAUNCH_BLOCKING"] = "0"
if torch.version.hip is None:
    torch._inductor.config.max_autotune = True


def enable_full_determinism():
    os.environ["HIP_LAUNCH_BLOCKING"] = "1"


def main(args):
    if args.blocking:
        os.environ["HIP_LAUNCH_BLOCKING"] = "1"

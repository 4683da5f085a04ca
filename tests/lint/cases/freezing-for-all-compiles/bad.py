from torch._inductor import config as inductor

inductor.freezing = True

import torch


class Wrapper:
    @torch.inference_mode()
    def warmup(self, x):
        for _ in range(3):
            self.model(x)

    def capture(self, x):
        self.warmup(x)
        with torch.cuda.graph(self.graph):
            self.out = self.model(x)


def capture_compiled(model, x):
    compiled = torch.compile(model)
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compiled(x)

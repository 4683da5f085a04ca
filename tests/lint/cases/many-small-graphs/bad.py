class Pipeline:
    def step(self):
        self.encoder.graph.replay()
        self.decoder.graph.replay()

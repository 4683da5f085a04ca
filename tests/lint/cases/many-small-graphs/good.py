class Pipeline:
    def step(self):
        self.graph.replay()
        self.publish()
        self.other.replay()

    def twice(self):
        self.graph.replay()
        self.graph.replay()

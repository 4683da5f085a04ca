class Pipeline:
    def step(self):
        self.graph.replay()
        self.publish()
        self.other_graph.replay()

    def replay_twice(self):
        self.graph.replay()
        self.graph.replay()

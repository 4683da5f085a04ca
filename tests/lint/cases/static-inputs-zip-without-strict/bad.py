class Wrapper:
    def replay(self, *inputs):
        for static_input, value in zip(self.static_inputs, inputs):
            static_input.copy_(value, non_blocking=True)
        self.graph.replay()
        return 0

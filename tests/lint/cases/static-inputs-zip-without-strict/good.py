class Wrapper:
    def replay(self, *inputs):
        if len(inputs) != len(self.static_inputs):
            raise ValueError
        for static_input, value in zip(self.static_inputs, inputs):
            static_input.copy_(value)
        self.graph.replay()

    def print_values(self):
        for name, value in zip(self.keys, self.values):
            print(name, value)

class Wrapper:
    def replay(self, *inputs):
        if len(inputs) != len(self.slots):
            raise ValueError
        for slot, value in zip(self.slots, inputs):
            slot.copy_(value)
        self.graph.replay()

    def names(self):
        for name, value in zip(self.keys, self.values):
            print(name, value)

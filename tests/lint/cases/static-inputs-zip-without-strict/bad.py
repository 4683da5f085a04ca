class Wrapper:
    def replay(self, *inputs):
        for slot, value in zip(self.slots, inputs):
            slot.copy_(value, non_blocking=True)
        self.graph.replay()
        return 0

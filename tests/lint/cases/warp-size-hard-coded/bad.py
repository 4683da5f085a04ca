WARP_SIZE = 32


class Layout:
    def __init__(self):
        self.warp_size = 32


launch(warp_size=32)

"""Breaks because of random numbers, numpy or recurrent nets."""

from typing import Final

from rocsolid.model.known_cause import KnownCause

LIBRARIES: Final = (
    KnownCause(
        gb_types=("Tensor.random_ op",),
        cause="random_ fills a tensor in place",
        fix="make it with torch.randint",
        before="torch.empty(3).random_(0, 5)",
        after="torch.randint(0, 5, (3,))",
    ),
    KnownCause(
        gb_types=("Tensor.uniform_ op called with `from` keyword",),
        cause="uniform_ is given `from` by name, which is a word of Python's",
        fix="give the bounds by place",
        before="t.uniform_(**{'from': 0.0, 'to': 1.0})",
        after="t.uniform_(0.0, 1.0)",
    ),
    KnownCause(
        gb_types=(
            "An opaque object was created in the middle of the program.",
            "torch.Generator method",
            "Failed to convert args/kwargs to proxy",
        ),
        pattern=r"Generator",
        cause="a torch.Generator is made or seeded inside the function",
        fix="draw the numbers outside and pass them in; or use the device's own generator, seeded by torch.manual_seed outside",
        before="g = torch.Generator(); g.manual_seed(3)\nnoise = torch.rand(4, generator=g)",
        after="def step(x, noise): ...",
    ),
    KnownCause(
        gb_types=(
            "attempted to trace numpy function unsupported by PyTorch",
            "attempted to trace numpy.* function as a method",
        ),
        cause="a numpy function that torch has no counterpart for",
        fix="use torch's own function, or call numpy outside the compiled part",
        before="torch.from_numpy(np.random.permutation(4))",
        after="torch.randperm(4)",
    ),
    KnownCause(
        gb_types=("Attempted to wrap RNN, GRU, or LSTM",),
        cause="torch leaves recurrent nets to the vendor's library and does not trace them",
        fix="let it: torch._dynamo.config.allow_rnn = True; or write the steps with LSTMCell",
        before="y, _ = lstm(x)",
        after="for row in x:\n    h, c = cell(row, (h, c))",
    ),
)

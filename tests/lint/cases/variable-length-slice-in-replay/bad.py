def run(wrapper, tokens, ranges):
    for start, stop in ranges:
        wrapper.replay(tokens[start:stop])

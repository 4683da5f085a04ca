def run(wrapper, tokens, starts):
    for start, stop in starts:
        wrapper.replay(tokens[start:stop])

def run(wrapper, tokens, count):
    for index in range(count):
        wrapper.replay(tokens[:512])
        wrapper.replay(tokens[index])

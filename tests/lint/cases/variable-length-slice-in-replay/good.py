def run(wrapper, tokens, rounds):
    for number in range(rounds):
        wrapper.replay(tokens[:512])
        wrapper.replay(tokens[number])

"""trireme generate: text from a checkpoint, against the same model evaluated over the whole text."""
import os

from harness import equal, h5py, np, run_tests

CONTEXT = 24
TEXT = "the quick brown fox jumps over the lazy dog and the dog sleeps. "


def trained(t, context=CONTEXT):
    """A run that has seen TEXT often enough to have clear favourites. Returns its configuration."""
    with open(t.path("text.txt"), "w") as f:
        f.write(TEXT * 40)
    t.run("data", "import", "text", t.path("text.txt"), "-o", t.path("data.h5")).expect(0)
    config = t.config(model={"name": "gpt", "layers": 2, "heads": 2, "width": 32, "context": context},
                      data={"path": t.path("data.h5"), "batch": 8, "sequence": context}, optimizer={"name": "adamw", "lr": 0.01},
                      run={"steps": 40}, checkpoint={"every": 40})
    t.run("train", config).expect(0)
    return config


def generate(t, prompt, *args):
    return t.run("generate", "--checkpoint", t.path("run"), "--prompt", prompt, *args, env={"OMP_NUM_THREADS": "1"})


def text(t, prompt, *args):
    return generate(t, prompt, *args).expect(0).out


def test_greedy_text_is_what_the_model_says_of_the_whole(t):
    """Token by token over the caches up to the end of the context; eval sees all positions at once."""
    config = trained(t)
    for i, prompt in enumerate(("t", "the qu", TEXT[:CONTEXT - 1])):
        r = generate(t, prompt, "--temperature", "0", "--tokens", "1000").expect(0, "context is full")
        found = r.out[:-1].encode()
        equal([len(found)], [CONTEXT + 1], "tokens of a full context and the one behind it")
        assert f"after {CONTEXT + 1 - len(prompt)} tokens" in r.err, r.err
        ids = np.frombuffer(found, np.uint8).astype("i4")
        path = t.data(f"whole{i}.h5", attrs=dict(vocab=256), train=dict(tokens=ids), validation=dict(tokens=ids))
        out = t.path(f"p{i}.h5")
        t.run("eval", config, "--checkpoint", t.path("run"), "--predictions", out, f"data.path={path}", "data.batch=1").expect(0)
        with h5py.File(out, "r") as f:
            labels = np.argmax(f["outputs"][...].reshape(CONTEXT, 256), axis=1)
        equal(labels[len(prompt) - 1:].tolist(), ids[len(prompt):].tolist(), f"prompt '{prompt}'")


def test_what_a_choice_depends_on(t):
    trained(t)
    prompt, greedy = "the ", text(t, "the ", "--temperature", "0", "--tokens", "12")
    equal(text(t, prompt, "--top-k", "1", "--tokens", "12", "--seed", "9"), greedy)
    equal(text(t, prompt, "--temperature", "0.001", "--tokens", "12"), greedy)
    assert text(t, prompt, "--temperature", "0", "--tokens", "20").startswith(greedy[:-1]), "more tokens change the first"
    equal(text(t, prompt, "--tokens", "0"), "the \n")
    draws = [text(t, prompt, "--top-k", "4", "--temperature", "5", "--tokens", "12", "--seed", str(s)) for s in (1, 1, 2, 3)]
    equal(draws[0], draws[1], "the same seed")
    assert len(set(draws)) == 3, draws
    assert all(d.startswith(prompt) and d.endswith("\n") for d in draws), draws


def test_wrong_prompts_and_numbers(t):
    trained(t)
    generate(t, "").expect(2, "--prompt", "at least one")
    generate(t, "x" * (CONTEXT + 1)).expect(2, "--prompt", f"{CONTEXT + 1} tokens", f"holds {CONTEXT}")
    equal([len(text(t, "x" * CONTEXT, "--temperature", "0"))], [CONTEXT + 2], "a prompt that fills the context: one token")
    for args in (["--temperature", "-1"], ["--temperature", "x"], ["--top-k", "-2"], ["--tokens", "1e12"], ["--seed", "-1"]):
        generate(t, "the", *args).expect(2, args[0], f"'{args[1]}'")
    t.run("generate", "--prompt", "x").expect(2, "--checkpoint")
    t.run("generate", "--checkpoint", t.path("run")).expect(2, "--prompt")
    t.run("generate", "--checkpoint", t.path("none"), "--prompt", "x").expect(2, "none")
    assert not os.path.exists(t.path("none"))


def test_not_a_language_model(t):
    t.run("train", t.config(model={"name": "mlp", "hidden": [4]}, data={"path": t.classes(n=32), "batch": 4}, run={"steps": 1},
                            checkpoint={"every": 1})).expect(0)
    generate(t, "x").expect(2, "no language model")


run_tests(globals())

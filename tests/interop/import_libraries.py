"""Modules of transformers, timm, torchvision and diffusers with small sizes and random weights, for imports.py. A
function for each program gives a module and the keyword arguments of one call; its docstring says where it is from."""
import torch

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def ids(n, length, below):
    return torch.randint(3, below, (n, length))


# ---- transformers: language models ----

SMALL = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 64, "use_cache": False,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def causal(model, config, labels=True, **more):
    import transformers
    c = getattr(transformers, config)(**{**SMALL, **more})
    x = ids(2, 12, 96)
    feeds = {"input_ids": x, "labels": x.clone()} if labels else {"input_ids": x}
    return getattr(transformers, model)(c), {**feeds, "use_cache": False}


@program
def gpt2():
    """transformers"""
    return causal("GPT2LMHeadModel", "GPT2Config", n_embd=32, n_layer=2, n_head=4, n_positions=64)


@program
def llama():
    """transformers"""
    return causal("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2)


@program
def llama_3_1():
    """transformers, scaled rotary positions"""
    return causal("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32})


@program
def mistral():
    """transformers"""
    return causal("MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=8)


@program
def qwen2():
    """transformers"""
    return causal("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2)


@program
def qwen3():
    """transformers"""
    return causal("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=8)


@program
def gemma_2():
    """transformers, softcaps and windows"""
    return causal("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=8, sliding_window=8,
                  attn_implementation="eager")


@program
def gemma_3():
    """transformers"""
    return causal("Gemma3ForCausalLM", "Gemma3TextConfig", num_key_value_heads=2, head_dim=8, sliding_window=8)


@program
def phi_3():
    """transformers"""
    return causal("Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2, original_max_position_embeddings=64)


@program
def gpt_neox():
    """transformers"""
    return causal("GPTNeoXForCausalLM", "GPTNeoXConfig")


@program
def gpt_j():
    """transformers"""
    return causal("GPTJForCausalLM", "GPTJConfig", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4)


@program
def opt():
    """transformers"""
    return causal("OPTForCausalLM", "OPTConfig", ffn_dim=64, word_embed_proj_dim=32)


@program
def bloom():
    """transformers, ALiBi"""
    return causal("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4)


@program
def falcon():
    """transformers"""
    return causal("FalconForCausalLM", "FalconConfig", alibi=False, multi_query=True)


@program
def falcon_h1():
    """transformers, state spaces beside attention"""
    return causal("FalconH1ForCausalLM", "FalconH1Config", num_key_value_heads=2, head_dim=8, mamba_d_ssm=32, mamba_n_heads=4,
                  mamba_d_head=8, mamba_n_groups=1, mamba_d_state=8, mamba_chunk_size=4)


@program
def olmo_2():
    """transformers"""
    return causal("Olmo2ForCausalLM", "Olmo2Config")


@program
def mixtral():
    """transformers, experts"""
    return causal("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4)


@program
def qwen3_moe():
    """transformers, experts"""
    return causal("Qwen3MoeForCausalLM", "Qwen3MoeConfig", num_key_value_heads=2, head_dim=8, num_experts=4,
                  num_experts_per_tok=2, moe_intermediate_size=16)


@program
def gpt_oss():
    """transformers, experts"""
    return causal("GptOssForCausalLM", "GptOssConfig", num_key_value_heads=2, head_dim=8, num_local_experts=4,
                  num_experts_per_tok=2, sliding_window=8, layer_types=["sliding_attention", "full_attention"])


@program
def deepseek_v3():
    """transformers, experts, MLA"""
    return causal("DeepseekV3ForCausalLM", "DeepseekV3Config", num_key_value_heads=4, n_routed_experts=4, n_group=2,
                  topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1,
                  kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8)


@program
def deepseek_v3_dense():
    """transformers, MLA without experts"""
    return causal("DeepseekV3ForCausalLM", "DeepseekV3Config", num_key_value_heads=4, first_k_dense_replace=2,
                  kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8)


# ---- transformers: encoders, encoders with decoders, images ----

def masked(model, config, **more):
    import transformers
    c = getattr(transformers, config)(**{**SMALL, **more})
    x = ids(2, 12, 96)
    mask = (torch.arange(12)[None] < torch.tensor([12, 8])[:, None]).long()
    return getattr(transformers, model)(c), {"input_ids": x, "attention_mask": mask, "labels": x.clone()}


@program
def bert():
    """transformers"""
    return masked("BertForMaskedLM", "BertConfig")


@program
def roberta():
    """transformers"""
    return masked("RobertaForMaskedLM", "RobertaConfig")


@program
def distilbert():
    """transformers"""
    return masked("DistilBertForMaskedLM", "DistilBertConfig", dim=32, n_heads=4, n_layers=2, hidden_dim=64)


@program
def albert():
    """transformers"""
    return masked("AlbertForMaskedLM", "AlbertConfig", embedding_size=16)


@program
def deberta_v2():
    """transformers"""
    return masked("DebertaV2ForMaskedLM", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"],
                  position_buckets=8, type_vocab_size=0)


@program
def modernbert():
    """transformers"""
    return masked("ModernBertForMaskedLM", "ModernBertConfig", local_attention=8, attn_implementation="sdpa")


@program
def t5():
    """transformers, labels shifted in the model"""
    import transformers
    c = transformers.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
                              use_cache=False, decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(c), {"input_ids": ids(2, 12, 96), "labels": ids(2, 8, 96),
                                                        "use_cache": False}


@program
def bart():
    """transformers, labels shifted in the model"""
    import transformers
    c = transformers.BartConfig(vocab_size=96, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64,
                                decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4,
                                max_position_embeddings=64, use_cache=False, decoder_start_token_id=2)
    return transformers.BartForConditionalGeneration(c), {"input_ids": ids(2, 12, 96), "labels": ids(2, 8, 96),
                                                          "use_cache": False}


@program
def whisper():
    """transformers, labels shifted in the model"""
    import transformers
    c = transformers.WhisperConfig(vocab_size=96, num_mel_bins=8, d_model=32, encoder_layers=1, decoder_layers=1,
                                   encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, pad_token_id=0,
                                   decoder_attention_heads=4, max_source_positions=16, max_target_positions=16,
                                   use_cache=False, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return transformers.WhisperForConditionalGeneration(c), {"input_features": torch.randn(2, 8, 32),
                                                             "labels": ids(2, 8, 96), "use_cache": False}


@program
def wav2vec2():
    """transformers, a weight norm"""
    import transformers
    c = transformers.Wav2Vec2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                    conv_dim=(8, 8, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), vocab_size=32,
                                    num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
                                    layerdrop=0.0, mask_time_prob=0.0)
    return transformers.Wav2Vec2Model(c), {"input_values": torch.randn(2, 400)}


IMAGE = {"image_size": 16, "patch_size": 4, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4}


@program
def vit():
    """transformers"""
    import transformers
    return transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGE)), {
        "pixel_values": torch.randn(2, 3, 16, 16)}


@program
def dinov2():
    """transformers"""
    import transformers
    return transformers.Dinov2ForImageClassification(transformers.Dinov2Config(**IMAGE)), {
        "pixel_values": torch.randn(2, 3, 16, 16)}


@program
def clip():
    """transformers"""
    import transformers
    c = transformers.CLIPConfig(text_config={**SMALL, "projection_dim": 16}, vision_config=IMAGE, projection_dim=16)
    return transformers.CLIPModel(c), {"input_ids": ids(3, 12, 96), "pixel_values": torch.randn(3, 3, 16, 16)}


@program
def siglip():
    """transformers"""
    import transformers
    c = transformers.SiglipConfig(text_config=SMALL, vision_config=IMAGE)
    return transformers.SiglipModel(c), {"input_ids": ids(3, 12, 96), "pixel_values": torch.randn(3, 3, 16, 16)}


@program
def swin_hf():
    """transformers"""
    import transformers
    c = transformers.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                                window_size=4)
    return transformers.SwinForImageClassification(c), {"pixel_values": torch.randn(2, 3, 32, 32)}


@program
def sam_vision():
    """transformers, the vision tower of SAM: padded windows, positions by distance"""
    import transformers
    c = transformers.SamVisionConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=4,
                                     output_channels=16, window_size=3, global_attn_indexes=[1], mlp_dim=64)
    return transformers.SamVisionModel(c), {"pixel_values": torch.randn(2, 3, 32, 32)}


# ---- timm, torchvision ----

def timm(name, size=32, **more):
    import timm as library
    return library.create_model(name, img_size=size, num_classes=10, **more), {"x": torch.randn(2, 3, size, size)}


TIMM = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}


@program
def timm_vit():
    """timm"""
    return timm("vit_tiny_patch16_224", **TIMM)


@program
def timm_deit():
    """timm"""
    return timm("deit_tiny_distilled_patch16_224", **TIMM)


@program
def timm_beit():
    """timm, tables of relative positions"""
    return timm("beit_base_patch16_224", **TIMM)


@program
def timm_eva02():
    """timm, rotary positions of two axes"""
    return timm("eva02_tiny_patch14_224", **TIMM)


@program
def timm_cait():
    """timm"""
    return timm("cait_xxs24_224", **TIMM)


@program
def timm_mixer():
    """timm"""
    from timm.models.mlp_mixer import MlpMixer
    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32), {"x": torch.randn(2, 3, 32, 32)}


@program
def timm_gmlp():
    """timm"""
    from timm.models.mlp_mixer import MlpMixer, SpatialGatingBlock
    from timm.layers import GatedMlp
    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32, mlp_ratio=4,
                    block_layer=SpatialGatingBlock, mlp_layer=GatedMlp), {"x": torch.randn(2, 3, 32, 32)}


@program
def timm_resmlp():
    """timm"""
    from timm.layers import Mlp
    from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32, mlp_ratio=4,
                    block_layer=ResBlock, norm_layer=Affine), {"x": torch.randn(2, 3, 32, 32)}


@program
def timm_swin():
    """timm"""
    return timm("swin_tiny_patch4_window7_224", patch_size=2, embed_dim=16, depths=(2, 2), num_heads=(2, 4),
                window_size=4)


@program
def timm_convnext():
    """timm"""
    import timm as library
    return library.create_model("convnext_atto", num_classes=10, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)), {
        "x": torch.randn(2, 3, 32, 32)}


@program
def vit_torchvision():
    """torchvision"""
    from torchvision.models.vision_transformer import VisionTransformer
    return VisionTransformer(16, 4, 2, 4, 32, 64, num_classes=10), {"x": torch.randn(2, 3, 16, 16)}


@program
def swin_torchvision():
    """torchvision"""
    from torchvision.models.swin_transformer import SwinTransformer
    return SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], num_classes=10, stochastic_depth_prob=0.0), {
        "x": torch.randn(2, 3, 16, 16)}


@program
def resnet18():
    """torchvision"""
    import torchvision
    return torchvision.models.resnet18(num_classes=10), {"x": torch.randn(4, 3, 64, 64)}


@program
def resnet50():
    """torchvision, a block of each size"""
    from torchvision.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=16), {"x": torch.randn(4, 3, 64, 64)}


@program
def efficientnet():
    """torchvision, a block of each size"""
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig
    sizes = ((1, 3, 1, 8, 8), (4, 3, 2, 8, 12), (4, 5, 2, 12, 16), (4, 3, 1, 16, 24))
    blocks = [MBConvConfig(expand, kernel, stride, n, out, 1, 1.0, 1.0) for expand, kernel, stride, n, out in sizes]
    return EfficientNet(blocks, 0.0, num_classes=10, stochastic_depth_prob=0.0), {"x": torch.randn(4, 3, 32, 32)}


@program
def shufflenet():
    """torchvision, channels in turn"""
    import torchvision
    return torchvision.models.ShuffleNetV2([1, 1, 1], [8, 16, 16, 32, 64], num_classes=10), {"x": torch.randn(4, 3, 64, 64)}


# ---- diffusers ----

@program
def dit():
    """diffusers"""
    import diffusers
    m = diffusers.DiTTransformer2DModel(num_attention_heads=4, attention_head_dim=8, in_channels=4, num_layers=2,
                                        sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4)
    return m, {"hidden_states": torch.randn(2, 4, 8, 8), "timestep": torch.tensor([3, 7]),
               "class_labels": torch.tensor([1, 2]), "return_dict": False}


@program
def pixart():
    """diffusers"""
    import diffusers
    m = diffusers.PixArtTransformer2DModel(num_attention_heads=4, attention_head_dim=8, in_channels=4, out_channels=8,
                                           num_layers=2, sample_size=8, patch_size=2, cross_attention_dim=32,
                                           caption_channels=16, norm_num_groups=4, use_additional_conditions=False)
    return m, {"hidden_states": torch.randn(2, 4, 8, 8), "encoder_hidden_states": torch.randn(2, 6, 16),
               "timestep": torch.tensor([3, 7]), "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
               "return_dict": False}


@program
def sd3():
    """diffusers"""
    import diffusers
    m = diffusers.SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8,
                                        num_attention_heads=4, joint_attention_dim=16, caption_projection_dim=32,
                                        pooled_projection_dim=16, out_channels=4, pos_embed_max_size=8)
    return m, {"hidden_states": torch.randn(2, 4, 8, 8), "encoder_hidden_states": torch.randn(2, 6, 16),
               "pooled_projections": torch.randn(2, 16), "timestep": torch.tensor([3.0, 7.0]), "return_dict": False}


@program
def flux():
    """diffusers"""
    import diffusers
    m = diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
                                         attention_head_dim=16, num_attention_heads=2, joint_attention_dim=16,
                                         pooled_projection_dim=16, axes_dims_rope=(4, 4, 8))
    return m, {"hidden_states": torch.randn(2, 16, 4), "encoder_hidden_states": torch.randn(2, 6, 16),
               "pooled_projections": torch.randn(2, 16), "timestep": torch.tensor([0.3, 0.7]),
               "img_ids": torch.randn(16, 3), "txt_ids": torch.zeros(6, 3), "return_dict": False}


@program
def unet():
    """diffusers"""
    import diffusers
    m = diffusers.UNet2DModel(sample_size=8, in_channels=3, out_channels=3, block_out_channels=(8, 16), layers_per_block=1,
                              norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
                              up_block_types=("UpBlock2D", "UpBlock2D"))
    return m, {"sample": torch.randn(2, 3, 8, 8), "timestep": 3, "return_dict": False}


@program
def unet_transformer():
    """diffusers, the transformer block of its U-Nets"""
    from diffusers.models.attention import BasicTransformerBlock
    return BasicTransformerBlock(32, 4, 8, cross_attention_dim=16), {
        "hidden_states": torch.randn(2, 16, 32), "encoder_hidden_states": torch.randn(2, 6, 16)}

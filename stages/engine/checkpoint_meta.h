// nightshift.json: what a checkpoint is, beside its Hugging Face files. Knows its JSON form; must
// not know tensors or stages. A directory without it is a plain 16-bit model.
//
//   {"version": 1,
//    "stage": "quantize",
//    "linears": {"model.layers.0.mlp.experts.0.gate_proj":
//                  {"format": "int8", "activation": "per_token" | "static", "clip": 3.1}, ...},
//    "fusion": {"rules": ["qkv", ...], "ignore": ["..."]},
//    "kv": {"format": "bf16", "block_tokens": 64, "policy": "static"},
//    "calibration_digest": "...",
//    "measurements": [{"stage": "baseline", "model": DIGEST, ...numbers...}, ...]}
//
// A linear that is not listed is stored in 16 (or 32) bits. `model` is the digest of what was
// measured: weights, precision, fusion and KV format (see model_digest in checkpoint.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "schema/red_line.h"
#include "schema/result.h"
#include "stages/engine/fusion.h"

namespace nightshift {

struct LinearFormat {
  std::string format = "int8";
  kernels::ActivationQuant activation;
};

struct KvMeta {
  std::string format = "bf16";  // "bf16" or "f32"
  int block_tokens = 64;
  std::string policy = "static";
};

struct MeasurementRecord {
  std::string stage;
  std::string model;  // digest
  Measurement numbers;
};

struct CheckpointMeta {
  std::string stage;
  std::map<std::string, LinearFormat> linears;
  FusionPlan fusion;
  KvMeta kv;
  std::string calibration_digest;
  std::vector<MeasurementRecord> measurements;

  // Everything measured of the model `digest`, later records winning number by number.
  Measurement measured(const std::string& digest) const;
  // The record of the first stage ("baseline"): the 16-bit numbers of this night.
  const MeasurementRecord* baseline() const;
};

std::string to_json_text(const CheckpointMeta& meta);
Result<CheckpointMeta> checkpoint_meta_from_json(std::string_view text, const std::string& where);

// The part of it that decides what the engine computes, canonical: an input of the model digest.
std::string computation_text(const CheckpointMeta& meta);

}  // namespace nightshift

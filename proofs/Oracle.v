(* What tests compare with Python: the definitions that the theorems are about, as a program. *)
Require Import ZArith QArith List Bool.
From Sfumato Require Import Lazy Exp Samplers Gauss Choices Ledger Door Bounds.
Require Import Coq.extraction.Extraction.
Require Import Coq.extraction.ExtrOcamlBasic.

Extraction Language OCaml.
Extraction "model.ml" exp_bounds loss_floor laplace_thresholds gaussian_thresholds lookup narrow trial Samplers.wide run keep flip_decide pair_loss coin choose_index
  admits Door.step Door.start Bounds.share Bounds.queried Bounds.hold Bounds.norm_score Bounds.distance
  Bounds.factor_L1 Bounds.factor_L2 Z.of_nat Z.add Z.leb.

(* What tests compare with Python: the definitions that the theorems are about, as a program. *)
Require Import ZArith QArith List Bool.
From Sfumato Require Import Lazy Exp Samplers Ledger.
Require Import Coq.extraction.Extraction.
Require Import Coq.extraction.ExtrOcamlBasic.

Extraction Language OCaml.
Extraction "model.ml" exp_bounds loss_floor laplace_thresholds lookup narrow trial wide run keep flip_decide pair_loss
  admits Z.of_nat.

(* Mechanisms that are as private as their costs say, for pure epsilon: Laplace noise and the exponential mechanism. *)
Require Import Reals Lra Lia Psatz ZArith List.
From Sfumato Require Import Sums Filter.
Import ListNotations.
Open Scope R_scope.

(* ---- Independent discrete Laplace noise of scale b on every answer: the chance of the answers ys where xs are exact. ---- *)
Definition laplace (b c : R) (x y : Z) : R := c * exp (- Rabs (IZR (y - x)) / b).

Fixpoint laplace_all (b c : R) (xs ys : list Z) : R :=
  match xs, ys with x :: xs, y :: ys => laplace b c x y * laplace_all b c xs ys | _, _ => 1 end.

Fixpoint distance_L1 (xs zs : list Z) : R :=
  match xs, zs with x :: xs, z :: zs => Rabs (IZR (x - z)) + distance_L1 xs zs | _, _ => 0 end.

Lemma laplace_one : forall b c x z y, 0 < b -> 0 < c -> laplace b c x y <= exp (Rabs (IZR (x - z)) / b) * laplace b c z y.
Proof.
  intros b c x z y Hb Hc. unfold laplace.
  replace (exp (Rabs (IZR (x - z)) / b) * (c * exp (- Rabs (IZR (y - z)) / b)))
    with (c * exp (Rabs (IZR (x - z)) / b + - Rabs (IZR (y - z)) / b)) by (rewrite exp_plus; ring).
  apply Rmult_le_compat_l; [lra|].
  assert (- Rabs (IZR (y - x)) / b <= Rabs (IZR (x - z)) / b + - Rabs (IZR (y - z)) / b) as H.
  { unfold Rdiv. rewrite <- Rmult_plus_distr_r. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|].
    replace (IZR (y - z)) with (IZR (y - x) + IZR (x - z)) by (rewrite !minus_IZR; ring).
    pose proof (Rabs_triang (IZR (y - x)) (IZR (x - z))). lra. }
  destruct H as [H|H]; [left; apply exp_increasing; auto | right; rewrite H; reflexivity].
Qed.

(* With exact answers that differ by s in L1, noise of scale b is s / b private, for every outcome. *)
Theorem laplace_private : forall b c xs zs ys, 0 < b -> 0 < c -> length xs = length zs ->
  laplace_all b c xs ys <= exp (distance_L1 xs zs / b) * laplace_all b c zs ys.
Proof.
  intros b c xs. induction xs as [|x xs IH]; intros [|z zs] ys Hb Hc Hl; try discriminate; simpl.
  - unfold Rdiv. rewrite Rmult_0_l, exp_0. lra.
  - assert (forall us vs, 0 < laplace_all b c us vs) as Hpos.
    { induction us as [|u us IHu]; intros [|v vs]; simpl; try lra.
      apply Rmult_lt_0_compat; auto. apply Rmult_lt_0_compat; [auto | apply exp_pos]. }
    destruct ys as [|y ys].
    + assert (0 <= distance_L1 xs zs) as Hd.
      { clear. revert zs. induction xs as [|x xs IH]; intros [|z zs]; simpl; try lra. pose proof (Rabs_pos (IZR (x - z))). pose proof (IH zs). lra. }
      rewrite Rmult_1_r. rewrite <- exp_0 at 1. pose proof (Rabs_pos (IZR (x - z))).
      assert (0 <= (Rabs (IZR (x - z)) + distance_L1 xs zs) / b) as H0 by (apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; auto]).
      destruct H0 as [H0|H0]; [left; apply exp_increasing; auto | right; rewrite <- H0; reflexivity].
    + replace ((Rabs (IZR (x - z)) + distance_L1 xs zs) / b) with (Rabs (IZR (x - z)) / b + distance_L1 xs zs / b) by (field; lra).
      rewrite exp_plus.
      replace (exp (Rabs (IZR (x - z)) / b) * exp (distance_L1 xs zs / b) * (laplace b c z y * laplace_all b c zs ys))
        with (exp (Rabs (IZR (x - z)) / b) * laplace b c z y * (exp (distance_L1 xs zs / b) * laplace_all b c zs ys)) by ring.
      simpl in Hl. apply Rmult_le_compat.
      * left. apply Rmult_lt_0_compat; [auto | apply exp_pos].
      * left. apply Hpos.
      * apply laplace_one; auto.
      * apply IH; auto.
Qed.

(* ---- The exponential mechanism: index i with a chance proportional to exp(rate * score i). ---- *)
Definition exponential (n : nat) (rate : R) (score : nat -> R) (i : nat) : R :=
  exp (rate * score i) / sum n (fun j => exp (rate * score j)).

(* If neighbouring tables move every score by at most s, a choice at rate epsilon / (2 s) is epsilon-private. *)
Theorem exponential_private : forall n rate s score score', (0 < n)%nat -> 0 <= rate ->
  (forall i, (i < n)%nat -> Rabs (score i - score' i) <= s) ->
  pure_private (2 * rate * s) n (exponential n rate score) (exponential n rate score').
Proof.
  intros n rate s score score' Hn Hr H i Hi. unfold exponential.
  assert (forall f, 0 < sum n (fun j => exp (rate * f j))) as Hpos.
  { intros f. destruct n as [|n]; [lia|]. simpl. pose proof (exp_pos (rate * f n)).
    pose proof (sum_nonneg n (fun j => exp (rate * f j)) (fun j _ => Rlt_le _ _ (exp_pos _))). lra. }
  set (A := sum n (fun j => exp (rate * score j))). set (B := sum n (fun j => exp (rate * score' j))).
  assert (0 < A) as HA by apply Hpos. assert (0 < B) as HB by apply Hpos.
  assert (forall u v, u - v <= s -> exp (rate * u) <= exp (rate * s) * exp (rate * v)) as Hone.
  { intros u v Huv. rewrite <- exp_plus. assert (rate * u <= rate * s + rate * v) as Hle by nra.
    destruct Hle as [L|L]; [left; apply exp_increasing; auto | right; rewrite L; reflexivity]. }
  assert (B <= exp (rate * s) * A) as HBA.
  { unfold A, B. rewrite <- sum_scale. apply sum_le. intros j Hj. apply Hone. specialize (H j Hj). unfold Rabs in H. destruct Rcase_abs in H; lra. }
  assert (exp (rate * score i) <= exp (rate * s) * exp (rate * score' i)) as Hi1.
  { apply Hone. specialize (H i Hi). unfold Rabs in H. destruct Rcase_abs in H; lra. }
  replace (exp (2 * rate * s)) with (exp (rate * s) * exp (rate * s)) by (rewrite <- exp_plus; f_equal; ring).
  pose proof (exp_pos (rate * s)). pose proof (exp_pos (rate * score' i)). pose proof (exp_pos (rate * score i)).
  apply Rmult_le_reg_r with (A * B); [apply Rmult_lt_0_compat; auto|].
  replace (exp (rate * score i) / A * (A * B)) with (exp (rate * score i) * B) by (field; lra).
  replace (exp (rate * s) * exp (rate * s) * (exp (rate * score' i) / B) * (A * B))
    with (exp (rate * s) * exp (rate * score' i) * (exp (rate * s) * A)) by (field; lra).
  apply Rmult_le_compat; lra.
Qed.

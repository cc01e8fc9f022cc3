(* Sums over the first n whole numbers, and means over them. *)
Require Import Reals Lra Lia ZArith List.
Open Scope R_scope.

Fixpoint sum (n : nat) (f : nat -> R) : R :=
  match n with O => 0 | S m => sum m f + f m end.

Lemma sum_ext : forall n f g, (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof.
  induction n as [|n IH]; intros f g H; simpl; auto.
  rewrite (IH f g), H; auto.
Qed.

Lemma sum_le : forall n f g, (forall i, (i < n)%nat -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n as [|n IH]; intros f g H; simpl; [lra|].
  apply Rplus_le_compat; auto.
Qed.

Lemma sum_const : forall n c, sum n (fun _ => c) = INR n * c.
Proof.
  induction n as [|n IH]; intros c; [simpl; lra|].
  rewrite S_INR. simpl. rewrite IH. lra.
Qed.

Lemma sum_zero : forall n f, (forall i, (i < n)%nat -> f i = 0) -> sum n f = 0.
Proof.
  intros n f H. rewrite (sum_ext n f (fun _ => 0) H), sum_const. lra.
Qed.

Lemma sum_nonneg : forall n f, (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sum n f.
Proof.
  intros n f H. rewrite <- (sum_zero n (fun _ => 0)) by auto. apply sum_le; auto.
Qed.

Lemma sum_plus : forall n f g, sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_scale : forall n c f, sum n (fun i => c * f i) = c * sum n f.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_scale_right : forall n c f, sum n (fun i => f i * c) = sum n f * c.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_minus : forall n f g, sum n (fun i => f i - g i) = sum n f - sum n g.
Proof. induction n as [|n IH]; intros; simpl; [lra|]. rewrite IH. lra. Qed.

Lemma sum_split : forall n m f, sum (n + m) f = sum n f + sum m (fun i => f (n + i)%nat).
Proof.
  intros n m f. induction m as [|m IH]; simpl.
  - rewrite Nat.add_0_r. lra.
  - rewrite Nat.add_succ_r. simpl. rewrite IH. lra.
Qed.

(* A number below n * m is a pair: its quotient by m, and its remainder. *)
Lemma sum_pairs : forall n m f,
  sum (n * m) f = sum n (fun i => sum m (fun j => f (i * m + j)%nat)).
Proof.
  intros n m f. induction n as [|n IH]; simpl; auto.
  rewrite Nat.add_comm, sum_split, IH. reflexivity.
Qed.

(* All terms alike but one. *)
Lemma sum_one : forall n k f, (k < n)%nat -> (forall i, (i < n)%nat -> i <> k -> f i = 0) -> sum n f = f k.
Proof.
  induction n as [|n IH]; intros k f Hk H; [lia|]. simpl.
  destruct (Nat.eq_dec k n) as [->|Hn].
  - rewrite sum_zero; [lra|]. intros i Hi. apply H; lia.
  - rewrite (IH k), (H n); try lia; try lra. intros; apply H; lia.
Qed.

Definition mean (n : nat) (f : nat -> R) : R := sum n f / INR n.

Lemma mean_ext : forall n f g, (forall i, (i < n)%nat -> f i = g i) -> mean n f = mean n g.
Proof. intros. unfold mean. rewrite (sum_ext n f g); auto. Qed.

Lemma mean_le : forall n f g, (0 < n)%nat -> (forall i, (i < n)%nat -> f i <= g i) -> mean n f <= mean n g.
Proof.
  intros n f g Hn H. unfold mean, Rdiv. apply Rmult_le_compat_r.
  - left. apply Rinv_0_lt_compat, lt_0_INR; auto.
  - apply sum_le; auto.
Qed.

Lemma mean_const : forall n c, (0 < n)%nat -> mean n (fun _ => c) = c.
Proof.
  intros n c Hn. unfold mean. rewrite sum_const. field. apply not_0_INR. lia.
Qed.

Lemma mean_plus : forall n f g, mean n (fun i => f i + g i) = mean n f + mean n g.
Proof. intros. unfold mean. rewrite sum_plus. unfold Rdiv. lra. Qed.

Lemma mean_minus : forall n f g, mean n (fun i => f i - g i) = mean n f - mean n g.
Proof. intros. unfold mean. rewrite sum_minus. unfold Rdiv. lra. Qed.

Lemma mean_scale : forall n c f, mean n (fun i => c * f i) = c * mean n f.
Proof. intros. unfold mean. rewrite sum_scale. unfold Rdiv. lra. Qed.

Lemma mean_scale_right : forall n c f, mean n (fun i => f i * c) = mean n f * c.
Proof. intros. unfold mean. rewrite sum_scale_right. unfold Rdiv. ring. Qed.

Lemma mean_nonneg : forall n f, (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= mean n f.
Proof.
  intros n f H. destruct n as [|n]; [unfold mean; simpl; lra|].
  unfold mean, Rdiv. apply Rmult_le_pos; [apply sum_nonneg; auto|].
  left. apply Rinv_0_lt_compat, lt_0_INR; lia.
Qed.

Lemma mean_pairs : forall n m f, (0 < n)%nat -> (0 < m)%nat ->
  mean (n * m) f = mean n (fun i => mean m (fun j => f (i * m + j)%nat)).
Proof.
  intros n m f Hn Hm. unfold mean. rewrite sum_pairs, mult_INR.
  unfold Rdiv. rewrite sum_scale_right. field. split; apply not_0_INR; lia.
Qed.

Lemma mean_one : forall n k f, (k < n)%nat -> (forall i, (i < n)%nat -> i <> k -> f i = 0) ->
  mean n f = f k / INR n.
Proof. intros n k f Hk H. unfold mean. rewrite (sum_one n k f); auto. Qed.

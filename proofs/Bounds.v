(* What one individual adds to the exact answers of each kind of question, and how far neighbouring tables' answers differ.

   A table is a list of records, each of an individual. Answers are vectors of n whole numbers. *)
Require Import ZArith List Bool Lia Permutation.
Import ListNotations.
Open Scope Z_scope.

Fixpoint total (n : nat) (f : nat -> Z) : Z := match n with O => 0 | S m => total m f + f m end.

Lemma total_ext : forall n f g, (forall j, (j < n)%nat -> f j = g j) -> total n f = total n g.
Proof. induction n; intros; simpl; auto. rewrite (IHn f g), H; auto. Qed.
Lemma total_le : forall n f g, (forall j, (j < n)%nat -> f j <= g j) -> total n f <= total n g.
Proof. induction n; intros f g H; simpl; [lia|]. pose proof (IHn f g ltac:(auto)). pose proof (H n ltac:(lia)). lia. Qed.
Lemma total_zero : forall n, total n (fun _ => 0) = 0.
Proof. induction n; simpl; lia. Qed.
Lemma total_plus : forall n f g, total n (fun j => f j + g j) = total n f + total n g.
Proof. induction n; intros; simpl; [lia|]. rewrite IHn. lia. Qed.
Lemma total_scale : forall n c f, total n (fun j => c * f j) = c * total n f.
Proof. induction n; intros; simpl; [lia|]. rewrite IHn. lia. Qed.
Lemma total_nonneg : forall n f, (forall j, (j < n)%nat -> 0 <= f j) -> 0 <= total n f.
Proof. intros. rewrite <- (total_zero n). apply total_le. auto. Qed.

Definition norm1 (n : nat) (v : nat -> Z) : Z := total n (fun j => Z.abs (v j)).
Definition norm2 (n : nat) (v : nat -> Z) : Z := total n (fun j => v j * v j).     (* the square of the L2 norm *)

Lemma norm2_nonneg : forall n v, 0 <= norm2 n v.
Proof. intros. apply total_nonneg. intros. nia. Qed.
Lemma norm1_nonneg : forall n v, 0 <= norm1 n v.
Proof. intros. apply total_nonneg. intros. lia. Qed.

(* In L2 an answer is no longer than in L1. *)
Lemma norm2_norm1 : forall n v, norm2 n v <= norm1 n v * norm1 n v.
Proof.
  intros n v. unfold norm2, norm1. induction n as [|n IH]; simpl; [lia|].
  pose proof (norm1_nonneg n v) as H. unfold norm1 in H.
  assert (v n * v n = Z.abs (v n) * Z.abs (v n)) by nia. nia.
Qed.

Lemma norm2_within : forall n v C, norm1 n v <= C -> norm2 n v <= C * C.
Proof. intros n v C H. pose proof (norm2_norm1 n v). pose proof (norm1_nonneg n v). nia. Qed.

Lemma twice : forall a b, (a - b) * (a - b) <= 2 * (a * a) + 2 * (b * b).
Proof. intros a b. pose proof (Z.square_nonneg (a + b)). nia. Qed.

(* ==== Tables, individuals and neighbours ==== *)
Section Tables.
Variable A : Type.                              (* what a record holds besides its individual *)
Definition table := list (Z * A).
Variable n : nat.                               (* the number of answers *)
Variable v : list A -> nat -> Z.                (* what the records of one individual add *)
Hypothesis nobody : forall j, v [] j = 0.

Definition records (u : Z) (t : table) : list A := map snd (filter (fun r => fst r =? u) t).
Definition without (u : Z) (t : table) : table := filter (fun r => negb (fst r =? u)) t.

Fixpoint over (us : list Z) (t : table) (j : nat) : Z :=
  match us with [] => 0 | u :: us => v (records u t) j + over us t j end.

Lemma records_without : forall u w t, records w (without u t) = if w =? u then [] else records w t.
Proof.
  intros u w t. unfold records, without. induction t as [|[x a] t IH]; simpl; [destruct (w =? u); auto|].
  destruct (Z.eqb_spec x u) as [->|Hx]; simpl.
  - rewrite IH. destruct (Z.eqb_spec w u) as [->|Hw]; [reflexivity|]. destruct (Z.eqb_spec u w); [congruence|reflexivity].
  - destruct (Z.eqb_spec x w) as [->|Hxw]; simpl; rewrite IH; destruct (Z.eqb_spec w u); try congruence; reflexivity.
Qed.

(* One individual more adds what its own records say, whoever else is there and in whatever order they stand. *)
Theorem one_more : forall us u t j, NoDup us -> In u us ->
  over us t j = over us (without u t) j + v (records u t) j.
Proof.
  induction us as [|w us IH]; intros u t j Hd Hu; [destruct Hu|]. inversion Hd as [|? ? Hw Hd']; subst. simpl.
  rewrite records_without. destruct (Z.eqb_spec w u) as [->|Hne].
  - rewrite nobody. assert (over us (without u t) j = over us t j) as ->; [|lia].
    clear - Hw. induction us as [|x us IH]; simpl; auto.
    rewrite records_without. destruct (Z.eqb_spec x u) as [->|]; [exfalso; apply Hw; left; auto|].
    rewrite IH; auto. intros H. apply Hw. right. auto.
  - destruct Hu as [->|Hu]; [congruence|]. rewrite (IH u t j Hd' Hu). lia.
Qed.

Variables (us : list Z) (C1 C2 : Z).
Hypothesis us_once : NoDup us.
Definition answer (t : table) (j : nat) : Z := over us t j.

(* Neighbours: one individual's records are all taken out, or exchanged for others. *)
Theorem add_remove_L1 : forall u t, In u us -> (forall l, norm1 n (v l) <= C1) ->
  norm1 n (fun j => answer t j - answer (without u t) j) <= C1.
Proof.
  intros u t Hu H. unfold norm1, answer. erewrite total_ext; [apply (H (records u t))|].
  intros j _. simpl. rewrite (one_more us u t j us_once Hu). f_equal. lia.
Qed.

Theorem add_remove_L2 : forall u t, In u us -> (forall l, norm2 n (v l) <= C2) ->
  norm2 n (fun j => answer t j - answer (without u t) j) <= C2.
Proof.
  intros u t Hu H. unfold norm2, answer. erewrite total_ext; [apply (H (records u t))|].
  intros j _. simpl. rewrite (one_more us u t j us_once Hu). replace (_ + _ - _) with (v (records u t) j) by lia. reflexivity.
Qed.

Lemma exchange : forall u t t' j, In u us -> without u t = without u t' ->
  answer t j - answer t' j = v (records u t) j - v (records u t') j.
Proof.
  intros u t t' j Hu E. unfold answer. rewrite (one_more us u t j us_once Hu), (one_more us u t' j us_once Hu), E. lia.
Qed.

Theorem replace_L1 : forall u t t', In u us -> without u t = without u t' -> (forall l, norm1 n (v l) <= C1) ->
  norm1 n (fun j => answer t j - answer t' j) <= 2 * C1.
Proof.
  intros u t t' Hu E H. pose proof (H (records u t)) as H1. pose proof (H (records u t')) as H2. unfold norm1 in *.
  apply Z.le_trans with (total n (fun j => Z.abs (v (records u t) j) + Z.abs (v (records u t') j))).
  - apply total_le. intros j _. rewrite (exchange u t t' j Hu E). lia.
  - rewrite total_plus. lia.
Qed.

Theorem replace_L2 : forall u t t', In u us -> without u t = without u t' -> (forall l, norm2 n (v l) <= C2) ->
  norm2 n (fun j => answer t j - answer t' j) <= 4 * C2.
Proof.
  intros u t t' Hu E H. pose proof (H (records u t)) as H1. pose proof (H (records u t')) as H2. unfold norm2 in *.
  apply Z.le_trans with (total n (fun j => 2 * (v (records u t) j * v (records u t) j) + 2 * (v (records u t') j * v (records u t') j))).
  - apply total_le. intros j _. rewrite (exchange u t t' j Hu E). apply twice.
  - rewrite total_plus, !total_scale. lia.
Qed.

(* Where nobody can lower an answer, two that are exchanged cannot be opposite to each other. *)
Theorem replace_L2_unsigned : forall u t t', In u us -> without u t = without u t' ->
  (forall l j, 0 <= v l j) -> (forall l, norm2 n (v l) <= C2) ->
  norm2 n (fun j => answer t j - answer t' j) <= 2 * C2.
Proof.
  intros u t t' Hu E Hpos H. pose proof (H (records u t)) as H1. pose proof (H (records u t')) as H2. unfold norm2 in *.
  apply Z.le_trans with (total n (fun j => v (records u t) j * v (records u t) j + v (records u t') j * v (records u t') j)).
  - apply total_le. intros j _. rewrite (exchange u t t' j Hu E). pose proof (Hpos (records u t) j). pose proof (Hpos (records u t') j). nia.
  - rewrite total_plus. lia.
Qed.
End Tables.

(* The factor of `histogram_sensitivity`: of the contribution in L1, and of its square in L2. *)
Inductive neighbours := AddRemove | Replace.
Definition factor_L1 (nb : neighbours) : Z := match nb with AddRemove => 1 | Replace => 2 end.
Definition factor_L2 (nb : neighbours) (is_signed : bool) : Z :=
  match nb with AddRemove => 1 | Replace => if is_signed then 4 else 2 end.

Definition are_neighbours {A} (nb : neighbours) (u : Z) (t t' : list (Z * A)) : Prop :=
  match nb with AddRemove => t' = without A u t | Replace => without A u t = without A u t' end.

Theorem sensitivity_L1 : forall A n v us nb u (t t' : list (Z * A)) C, (forall j, v [] j = 0) -> NoDup us -> In u us ->
  are_neighbours nb u t t' -> (forall l, norm1 n (v l) <= C) ->
  norm1 n (fun j => answer A v us t j - answer A v us t' j) <= factor_L1 nb * C.
Proof.
  intros A n v us nb u t t' C H0 Hd Hu Hn H. destruct nb; unfold are_neighbours, factor_L1 in *.
  - subst t'. rewrite Z.mul_1_l. apply (add_remove_L1 A n v H0 us C Hd u t Hu H).
  - apply (replace_L1 A n v H0 us C Hd u t t'); auto.
Qed.

Theorem sensitivity_L2 : forall A n v us nb u (t t' : list (Z * A)) C is_signed, (forall j, v [] j = 0) -> NoDup us -> In u us ->
  are_neighbours nb u t t' -> (is_signed = false -> forall l j, 0 <= v l j) -> (forall l, norm2 n (v l) <= C) ->
  norm2 n (fun j => answer A v us t j - answer A v us t' j) <= factor_L2 nb is_signed * C.
Proof.
  intros A n v us nb u t t' C is_signed H0 Hd Hu Hn Hs H. destruct nb; unfold are_neighbours, factor_L2 in *.
  - subst t'. rewrite Z.mul_1_l. apply (add_remove_L2 A n v H0 us C Hd u t Hu H).
  - destruct is_signed; [apply (replace_L2 A n v H0 us C Hd u t t'); auto|].
    apply (replace_L2_unsigned A n v H0 us C Hd u t t'); auto.
Qed.

(* ==== Weighted sums of records ==== *)
(* Each record r of a list adds x r, times a weight that is not negative. *)
Fixpoint added {A} (w : Z) (x : A -> nat -> Z) (l : list A) (j : nat) : Z :=
  match l with [] => 0 | r :: l => w * x r j + added w x l j end.

Lemma added_L1 : forall A n w (x : A -> nat -> Z) K l, 0 <= w -> (forall r, norm1 n (x r) <= K) ->
  norm1 n (added w x l) <= w * Z.of_nat (length l) * K.
Proof.
  intros A n w x K l Hw H. induction l as [|r l IH].
  - unfold norm1. simpl. rewrite total_zero. lia.
  - pose proof (H r) as Hr. unfold norm1 in *. cbn [added length].
    apply Z.le_trans with (total n (fun j => w * Z.abs (x r j) + Z.abs (added w x l j))).
    + apply total_le. intros j _. pose proof (Z.abs_triangle (w * x r j) (added w x l j)) as T.
      rewrite Z.abs_mul, (Z.abs_eq w) in T by lia. exact T.
    + rewrite total_plus, total_scale. nia.
Qed.

(* ||sum||^2 <= (length)^2 K, by the inequality of Cauchy and Schwarz in the form (a + b)^2 <= (1 + k)(a^2 / 1 + b^2 / k). *)
Lemma added_L2 : forall A n w (x : A -> nat -> Z) K l, 0 <= w -> (forall r, norm2 n (x r) <= K) ->
  norm2 n (added w x l) <= (w * Z.of_nat (length l)) * (w * Z.of_nat (length l)) * K.
Proof.
  intros A n w x K l Hw H. induction l as [|r l IH].
  - unfold norm2. simpl. rewrite total_zero. lia.
  - assert (0 <= K) as HK by (pose proof (H r); pose proof (norm2_nonneg n (x r)); lia).
    destruct l as [|s l].
    + pose proof (H r) as Hr. unfold norm2 in *. cbn [added length].
      rewrite (total_ext n _ (fun j => w * w * (x r j * x r j))) by (intros; ring).
      rewrite total_scale. change (Z.of_nat 1) with 1. nia.
    + pose proof (H r) as Hr. set (m := s :: l) in *. set (k := Z.of_nat (length m)) in *.
      assert (1 <= k) as Hk by (unfold k, m; simpl length; lia).
      replace (Z.of_nat (length (r :: m))) with (k + 1) by (unfold k; simpl length; lia).
      unfold norm2 in *. cbn [added].
      (* k (a + b)^2 <= (k + 1)(k a^2 + b^2) *)
      assert (k * total n (fun j => (w * x r j + added w x m j) * (w * x r j + added w x m j)) <=
        (k + 1) * (k * (w * w) * total n (fun j => x r j * x r j) + total n (fun j => added w x m j * added w x m j))) as HS.
      { rewrite <- !total_scale, <- total_plus, <- !total_scale. apply total_le. intros j _.
        set (a := w * x r j). set (b := added w x m j).
        replace (k * (w * w) * (x r j * x r j)) with (k * (a * a)) by (unfold a; ring).
        assert ((k + 1) * (k * (a * a) + b * b) - k * ((a + b) * (a + b)) = (k * a - b) * (k * a - b)) as E by ring.
        pose proof (Z.square_nonneg (k * a - b)). lia. }
      assert (0 <= w * w) by nia.
      apply Z.mul_le_mono_pos_l with k; [lia|]. eapply Z.le_trans; [exact HS|].
      apply Z.le_trans with ((k + 1) * (k * (w * w) * K + w * k * (w * k) * K)); [|apply Z.eq_le_incl; ring].
      apply Z.mul_le_mono_nonneg_l; [lia|]. apply Z.add_le_mono; auto.
      apply Z.mul_le_mono_nonneg_l; [|auto]. apply Z.mul_nonneg_nonneg; lia.
Qed.

(* ==== Each kind of question ==== *)
(* Bounding by records: whole records, at most m of them in any order, or each for floor(m G / R) of the R there are. *)
Section Records.
Variable A : Type.
Variable order : list A -> list A.
Hypothesis ordered : forall l, Permutation l (order l).
Variables (m : nat) (G : Z).
Hypothesis G_pos : 0 < G.

Definition truncated (x : A -> nat -> Z) (l : list A) : nat -> Z := added 1 x (firstn m (order l)).

Definition share (R : Z) : Z := if R <=? Z.of_nat m then G else Z.of_nat m * G / R.

Definition weighted (x : A -> nat -> Z) (l : list A) : nat -> Z := added (share (Z.of_nat (length l))) x l.

Lemma truncated_length : forall l, Z.of_nat (length (firstn m (order l))) <= Z.of_nat m.
Proof. intros l. rewrite firstn_length. lia. Qed.

Lemma share_bound : forall R, 0 <= R -> 0 <= share R /\ share R * R <= Z.of_nat m * G.
Proof.
  intros R HR. unfold share. destruct (Z.leb_spec R (Z.of_nat m)); [nia|].
  split; [apply Z.div_pos; nia|]. rewrite Z.mul_comm. apply Z.mul_div_le. lia.
Qed.

(* One record adds a vector of at most K: moments and residuals, and counts, where it is one cell. *)
Theorem truncated_L1 : forall n x K l, 0 <= K -> (forall r, norm1 n (x r) <= K) -> norm1 n (truncated x l) <= Z.of_nat m * K.
Proof.
  intros n x K l HK H. pose proof (added_L1 A n 1 x K (firstn m (order l)) ltac:(lia) H) as T.
  pose proof (truncated_length l). unfold truncated. nia.
Qed.

Theorem truncated_L2 : forall n x K l, 0 <= K -> (forall r, norm2 n (x r) <= K) ->
  norm2 n (truncated x l) <= Z.of_nat m * Z.of_nat m * K.
Proof.
  intros n x K l HK H. pose proof (added_L2 A n 1 x K (firstn m (order l)) ltac:(lia) H) as T.
  pose proof (truncated_length l). unfold truncated. eapply Z.le_trans; [exact T|].
  apply Z.mul_le_mono_nonneg_r; auto. nia.
Qed.

Theorem weighted_L1 : forall n x K l, 0 <= K -> (forall r, norm1 n (x r) <= K) -> norm1 n (weighted x l) <= Z.of_nat m * G * K.
Proof.
  intros n x K l HK H. destruct (share_bound (Z.of_nat (length l)) ltac:(lia)) as [S0 S1].
  pose proof (added_L1 A n _ x K l S0 H) as T. unfold weighted. nia.
Qed.

Theorem weighted_L2 : forall n x K l, 0 <= K -> (forall r, norm2 n (x r) <= K) ->
  norm2 n (weighted x l) <= (Z.of_nat m * G) * (Z.of_nat m * G) * K.
Proof.
  intros n x K l HK H. destruct (share_bound (Z.of_nat (length l)) ltac:(lia)) as [S0 S1].
  pose proof (added_L2 A n _ x K l S0 H) as T. unfold weighted. eapply Z.le_trans; [exact T|].
  apply Z.mul_le_mono_nonneg_r; auto. apply Z.mul_le_mono_nonneg; nia.
Qed.

(* A record in one cell: marginals, occupied cells, outcomes. *)
Definition in_cell (cell : A -> nat) (r : A) (j : nat) : Z := if Nat.eqb j (cell r) then 1 else 0.

Lemma one_cell_L1 : forall n cell (c : A -> Z) most r, 0 <= most -> (forall r, Z.abs (c r) <= most) ->
  norm1 n (fun j => c r * in_cell cell r j) <= most.
Proof.
  intros n cell c most r Hm H. unfold norm1, in_cell.
  assert (total n (fun j => Z.abs (c r * (if Nat.eqb j (cell r) then 1 else 0))) <= most /\
    (~ (cell r < n)%nat -> total n (fun j => Z.abs (c r * (if Nat.eqb j (cell r) then 1 else 0))) = 0)) as [T _]; auto.
  induction n as [|k [IH1 IH2]]; simpl; [split; lia|].
  destruct (Nat.eqb_spec k (cell r)) as [E|E].
  - rewrite IH2 by lia. split; [pose proof (H r); lia | lia].
  - rewrite Z.mul_0_r. simpl. split; [lia | intros; rewrite IH2 by lia; lia].
Qed.

Lemma counts_L1 : forall n cell r, norm1 n (in_cell cell r) <= 1.
Proof.
  intros n cell r. pose proof (one_cell_L1 n cell (fun _ => 1) 1 r Z.le_0_1 (fun _ => Z.le_refl 1)) as H.
  unfold norm1 in *. erewrite total_ext; [apply H|]. intros j _. cbv beta. rewrite Z.mul_1_l. reflexivity.
Qed.

Theorem marginal_truncated : forall n cell l, norm1 n (truncated (in_cell cell) l) <= Z.of_nat m.
Proof. intros. pose proof (truncated_L1 n (in_cell cell) 1 l ltac:(lia) (counts_L1 n cell)). lia. Qed.

Theorem marginal_weighted : forall n cell l, norm1 n (weighted (in_cell cell) l) <= Z.of_nat m * G.
Proof. intros. pose proof (weighted_L1 n (in_cell cell) 1 l ltac:(lia) (counts_L1 n cell)). lia. Qed.

(* Residuals: each record adds a clipped number to one cell. *)
Theorem residuals_truncated : forall n cell (value : A -> Z) clip l, 0 <= clip ->
  norm1 n (truncated (fun r j => Z.max (- clip) (Z.min (value r) clip) * in_cell cell r j) l) <= Z.of_nat m * clip.
Proof.
  intros n cell value clip l Hc. apply truncated_L1; auto. intros r.
  apply (one_cell_L1 n cell (fun r => Z.max (- clip) (Z.min (value r) clip))); auto. intros. lia.
Qed.

Theorem residuals_weighted : forall n cell (value : A -> Z) clip l, 0 <= clip ->
  norm1 n (weighted (fun r j => Z.max (- clip) (Z.min (value r) clip) * in_cell cell r j) l) <= Z.of_nat m * G * clip.
Proof.
  intros n cell value clip l Hc. apply weighted_L1; auto. intros r.
  apply (one_cell_L1 n cell (fun r => Z.max (- clip) (Z.min (value r) clip))); auto. intros. lia.
Qed.
End Records.

(* Queries whose weights of any cell have an L2 norm of at most the grid g: an individual that adds c to the cells. *)
Definition queried (cells : nat) (q : nat -> nat -> Z) (c : nat -> Z) (i : nat) : Z := total cells (fun k => c k * q k i).

Lemma combine_L2 : forall n cells q c g, 0 <= g -> (forall k, (k < cells)%nat -> norm2 n (q k) <= g * g) ->
  norm2 n (queried cells q c) <= (norm1 cells c * g) * (norm1 cells c * g).
Proof.
  intros n cells q c g Hg. unfold queried. induction cells as [|m IH]; intros H.
  - unfold norm2, norm1. simpl. rewrite total_zero. lia.
  - specialize (IH ltac:(auto)). pose proof (H m ltac:(lia)) as Hm.
    set (a := norm1 m c) in *. set (b := Z.abs (c m)).
    assert (norm1 (S m) c = a + b) as -> by reflexivity.
    assert (0 <= a) as Ha by apply norm1_nonneg. assert (0 <= b) as Hb by (unfold b; lia).
    unfold norm2 in *. cbn [total].
    (* (s + t)^2 b' = ... : with weights a and b, a b (s + t)^2 <= (a + b)(b s^2 + a t^2) *)
    destruct (Z.eq_dec a 0) as [A0|A0].
    + assert (forall i, (i < n)%nat -> total m (fun k => c k * q k i) = 0) as Hz.
      { intros i _. assert (forall k, (k < m)%nat -> c k = 0) as Hc.
        { clear - A0. unfold a, norm1 in A0. induction m as [|m IH]; intros k Hk; [lia|]. simpl in A0.
          assert (0 <= total m (fun j => Z.abs (c j))) by (apply total_nonneg; intros; lia).
          destruct (Nat.eq_dec k m) as [->|]; [lia|]. apply IH; lia. }
        rewrite (total_ext m _ (fun _ => 0)), total_zero; auto. intros k Hk. rewrite Hc by auto. lia. }
      rewrite (total_ext n _ (fun i => b * b * (q m i * q m i))).
      * rewrite total_scale, A0. nia.
      * intros i Hi. rewrite Hz by auto. unfold b. nia.
    + destruct (Z.eq_dec b 0) as [B0|B0].
      * assert (c m = 0) as Ec by (unfold b in B0; lia). rewrite B0, Z.add_0_r.
        erewrite total_ext; [exact IH|]. intros i _. simpl. rewrite Ec. f_equal; ring.
      * assert (a * b * total n (fun i => (total m (fun k => c k * q k i) + c m * q m i) * (total m (fun k => c k * q k i) + c m * q m i)) <=
          (a + b) * (b * total n (fun i => total m (fun k => c k * q k i) * total m (fun k => c k * q k i)) +
            a * (b * b) * total n (fun i => q m i * q m i))) as HS.
        { rewrite <- !total_scale, <- total_plus, <- !total_scale. apply total_le. intros i _.
          set (s := total m (fun k => c k * q k i)). set (t := c m * q m i).
          replace (a * (b * b) * (q m i * q m i)) with (a * (t * t)) by (unfold t, b; nia).
          assert ((a + b) * (b * (s * s) + a * (t * t)) - a * b * ((s + t) * (s + t)) = (b * s - a * t) * (b * s - a * t)) as E by ring.
          pose proof (Z.square_nonneg (b * s - a * t)). lia. }
        assert (0 < a * b) as Hab by nia. apply Z.mul_le_mono_pos_l with (a * b); auto.
        eapply Z.le_trans; [exact HS|].
        apply Z.le_trans with ((a + b) * (b * (a * g * (a * g)) + a * (b * b) * (g * g))); [|apply Z.eq_le_incl; ring].
        apply Z.mul_le_mono_nonneg_l; [lia|]. apply Z.add_le_mono; apply Z.mul_le_mono_nonneg_l; auto; nia.
Qed.

Theorem queries_L2 : forall n cells q c g C, 0 <= g -> 0 <= C -> (forall k, (k < cells)%nat -> norm2 n (q k) <= g * g) ->
  norm1 cells c <= C -> norm2 n (queried cells q c) <= (C * g) * (C * g).
Proof.
  intros n cells q c g C Hg HC H Hc. pose proof (combine_L2 n cells q c g Hg H). pose proof (norm1_nonneg cells c).
  assert (norm1 cells c * g <= C * g) by nia. assert (0 <= norm1 cells c * g) by nia. nia.
Qed.

(* Sums of different cells move by no more than the cells, in L1. *)
Theorem partition_L1 : forall n cells q c C, (forall k, (k < cells)%nat -> norm1 n (q k) <= 1) ->
  norm1 cells c <= C -> norm1 n (queried cells q c) <= C.
Proof.
  intros n cells q c C H Hc. apply Z.le_trans with (norm1 cells c); auto. clear Hc. unfold queried.
  induction cells as [|m IH]; [unfold norm1; simpl; rewrite total_zero; lia|].
  specialize (IH ltac:(auto)). pose proof (H m ltac:(lia)) as Hm. unfold norm1 in *. cbn [total].
  apply Z.le_trans with (total n (fun i => Z.abs (total m (fun k => c k * q k i)) + Z.abs (c m) * Z.abs (q m i))).
  - apply total_le. intros i _. rewrite <- Z.abs_mul. apply Z.abs_triangle.
  - rewrite total_plus, total_scale. nia.
Qed.

(* Answers held to a norm: whatever whole factor f the code finds, f^2 s <= most suffices, s being their squared norm. *)
Theorem clipped_L2 : forall n (a : nat -> Z) f most, f * f * norm2 n a <= most -> norm2 n (fun j => f * a j) <= most.
Proof.
  intros n a f most H. unfold norm2 in *. rewrite (total_ext n _ (fun j => f * f * (a j * a j))) by (intros; ring).
  rewrite total_scale. exact H.
Qed.

(* To hold every sum to a range moves no two of them farther apart. *)
Definition hold (most x : Z) : Z := Z.max (- most) (Z.min x most).
Theorem held_closer : forall n most (a b : nat -> Z),
  norm2 n (fun j => hold most (a j) - hold most (b j)) <= norm2 n (fun j => a j - b j) /\
  norm1 n (fun j => hold most (a j) - hold most (b j)) <= norm1 n (fun j => a j - b j).
Proof.
  intros n most a b. split; apply total_le; intros j _; unfold hold.
  - assert (Z.abs (Z.max (- most) (Z.min (a j) most) - Z.max (- most) (Z.min (b j) most)) <= Z.abs (a j - b j)) by lia. nia.
  - lia.
Qed.

(* Counts of individuals: of the different questions that an individual meets, at most m count, each for one. *)
Definition individual (m : nat) (met : list nat) (j : nat) : Z := if existsb (Nat.eqb j) (firstn m met) then 1 else 0.

Lemma individual_sum : forall n l, NoDup l -> total n (fun j => if existsb (Nat.eqb j) l then 1 else 0) <= Z.of_nat (length l).
Proof.
  intros n l Hd. revert n. induction l as [|x l IH]; intros n; [simpl; rewrite total_zero; lia|].
  inversion Hd as [|? ? Hx Hd']; subst. specialize (IH Hd' n).
  apply Z.le_trans with (total n (fun j => (if Nat.eqb j x then 1 else 0) + (if existsb (Nat.eqb j) l then 1 else 0))).
  - apply total_le. intros j _. simpl. destruct (Nat.eqb j x); destruct (existsb (Nat.eqb j) l); simpl; lia.
  - rewrite total_plus. simpl length.
    assert (total n (fun j => if Nat.eqb j x then 1 else 0) <= 1) as H1; [|lia]. clear.
    assert (total n (fun j => if Nat.eqb j x then 1 else 0) <= 1 /\ (~ (x < n)%nat -> total n (fun j => if Nat.eqb j x then 1 else 0) = 0)) as [T _]; auto.
    induction n as [|k [I1 I2]]; simpl; [split; lia|]. destruct (Nat.eqb_spec k x); [rewrite I2 by lia; split; lia|].
    split; [lia | intros; rewrite I2; lia].
Qed.

Lemma NoDup_firstn : forall (A : Type) k (l : list A), NoDup l -> NoDup (firstn k l).
Proof.
  intros A k l H. revert k. induction H as [|x l Hx Hl IH]; intros [|k]; simpl; constructor; auto.
  intros Hin. apply Hx. clear - Hin. revert k Hin. induction l as [|y l IH]; intros [|k] Hin; simpl in *; auto; try contradiction.
  destruct Hin; eauto.
Qed.

Theorem individuals : forall n m met, NoDup met ->
  norm1 n (individual m met) <= Z.of_nat m /\ norm2 n (individual m met) <= Z.of_nat m.
Proof.
  intros n m met Hd. pose proof (individual_sum n _ (NoDup_firstn nat m met Hd)) as H.
  assert (length (firstn m met) <= m)%nat by (rewrite firstn_length; lia).
  unfold norm1, norm2, individual in *. split.
  - erewrite total_ext; [eapply Z.le_trans; [exact H | lia]|]. intros j _. simpl. destruct (existsb _ _); reflexivity.
  - erewrite total_ext; [eapply Z.le_trans; [exact H | lia]|]. intros j _. simpl. destruct (existsb _ _); reflexivity.
Qed.

(* ==== Scores of choices ==== *)
Definition distance (n : nat) (c e : nat -> Z) : Z := norm1 n (fun j => c j - e j).

(* A marginal scored by its distance from a public estimate moves by no more than its counts do, times its weight. *)
Theorem distance_moves : forall n c c' e weight penalty, 0 <= weight ->
  Z.abs ((weight * distance n c e - penalty) - (weight * distance n c' e - penalty)) <= weight * norm1 n (fun j => c j - c' j).
Proof.
  intros n c c' e weight penalty Hw. unfold distance.
  assert (forall a b : nat -> Z, norm1 n (fun j => a j - e j) <= norm1 n (fun j => a j - b j) + norm1 n (fun j => b j - e j)) as T.
  { intros a b. unfold norm1. rewrite <- total_plus. apply total_le. intros j _. lia. }
  pose proof (T c c'). pose proof (T c' c).
  assert (norm1 n (fun j => c' j - c j) = norm1 n (fun j => c j - c' j)) as E by (apply total_ext; intros; lia). rewrite E in *. nia.
Qed.

(* A norm scored by how near the number of individuals within it, of all, is to the quantile a / b. *)
Definition norm_score (a b within all : Z) : Z := - Z.abs (b * within - a * all).

Theorem norm_score_moves : forall a b within all inside, 0 <= a <= b -> inside = 0 \/ inside = 1 ->
  Z.abs (norm_score a b (within + inside) (all + 1) - norm_score a b within all) <= Z.max a (b - a).
Proof. intros a b within all inside H [->| ->]; unfold norm_score; lia. Qed.

Theorem norm_score_exchange : forall a b within all inside inside', 0 <= a <= b -> inside = 0 \/ inside = 1 ->
  inside' = 0 \/ inside' = 1 ->
  Z.abs (norm_score a b (within + inside) all - norm_score a b (within + inside') all) <= b.
Proof. intros a b within all i i' H [->| ->] [->| ->]; unfold norm_score; lia. Qed.


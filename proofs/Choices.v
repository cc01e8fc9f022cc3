(* Coins of a rational chance and choices by weights: `_sample` and `_resolve` of noise/choice.py. *)
Require Import Reals Lra Lia Psatz ZArith List Bool.
From Sfumato Require Import Sums Lazy Exp.
Import ListNotations.

(* ==== The code ==== *)
Open Scope Z_scope.

(* A coin of the chance n / d below one: a word against the leading bits, the rest of the chance against the next word. *)
Fixpoint coin (word_bits : Z) (fuel : nat) (n d : Z) : prog bool :=
  let whole := n * 2 ^ word_bits / d in
  let rest := n * 2 ^ word_bits mod d in
  Draw (fun w => if w <? whole then Ret true
    else if w =? whole then
      if rest =? 0 then Ret false else match fuel with O => Stuck | S fuel => coin word_bits fuel rest d end
    else Ret false).

(* Cumulative sums. *)
Fixpoint running (total : Z) (l : list Z) : list Z :=
  match l with [] => [] | x :: l => (total + x) :: running (total + x) l end.

(* How many of an ascending list are at most x. *)
Fixpoint at_most (l : list Z) (x : Z) : nat :=
  match l with [] => O | y :: l => if y <=? x then S (at_most l x) else O end.

(* The index that v of b bits points to, from whole numbers below and above the weights, or nothing yet. *)
Definition choose_index (bounds : Z -> list (Z * Z)) (b v : Z) : option nat :=
  let lows := running 0 (map fst (bounds b)) in
  let highs := running 0 (map snd (bounds b)) in
  let last := (length (bounds b) - 1)%nat in
  let index := at_most highs (v * nth last lows 0 / 2 ^ b) in
  if Nat.eqb index last then Some index
  else if (v + 1) * nth last highs 0 <=? nth index lows 0 * 2 ^ b then Some index else None.

(* ==== Their law ==== *)
Open Scope R_scope.

Section Coin.
Variable word_bits : Z.
Hypothesis word_bits_pos : (0 < word_bits)%Z.
Let B := INR (count word_bits).

Lemma B_pos : 0 < B.
Proof. apply lt_0_INR, count_pos. auto. Qed.

Lemma sum_below : forall n t x y z, (t < n)%nat ->
  sum n (fun i => if Nat.ltb i t then x else if Nat.eqb i t then y else z) = INR t * x + y + INR (n - 1 - t) * z.
Proof.
  intros n t x y z Ht. induction n as [|n IH]; [lia|]. simpl.
  destruct (Nat.eq_dec t n) as [->|Hne].
  - rewrite (sum_ext n _ (fun _ => x)), sum_const, Nat.ltb_irrefl, Nat.eqb_refl.
    + replace (n - 0 - n)%nat with 0%nat by lia. simpl. lra.
    + intros i Hi. destruct (Nat.ltb_spec i n); [reflexivity | lia].
  - rewrite IH by lia. destruct (Nat.ltb_spec n t); [lia|]. destruct (Nat.eqb_spec n t); [lia|].
    replace (n - 0 - t)%nat with (S (n - 1 - t)) by lia. rewrite S_INR. lra.
Qed.

(* The coin shows heads with its chance: no more, and less by at most one word's share for each word it may draw. *)
Theorem coin_law : forall fuel n d, (0 <= n < d)%Z ->
  chance word_bits (coin word_bits fuel n d) (fun x => x) <= IZR n / IZR d <=
  chance word_bits (coin word_bits fuel n d) (fun x => x) + / B ^ S fuel.
Proof.
  pose proof B_pos as HB.
  induction fuel as [|fuel IH]; intros n d Hn; pose proof (Z.div_mod (n * 2 ^ word_bits) d ltac:(lia)) as DM;
    pose proof (Z.mod_pos_bound (n * 2 ^ word_bits) d ltac:(lia)) as MB;
    set (whole := (n * 2 ^ word_bits / d)%Z) in *; set (rest := (n * 2 ^ word_bits mod d)%Z) in *.
  all: assert (0 < 2 ^ word_bits)%Z as Hp by (apply Z.pow_pos_nonneg; lia).
  all: assert (0 <= whole < 2 ^ word_bits)%Z as Hw by (split; [apply Z.div_pos; nia | apply Z.div_lt_upper_bound; nia]).
  all: set (t := Z.to_nat whole); assert (t < count word_bits)%nat as Ht by (unfold t, count; lia).
  all: assert (INR t = IZR whole) as Et by (unfold t; rewrite INR_IZR_INZ, Z2Nat.id; auto; lia).
  all: assert (0 < IZR d) as Hd by (apply (IZR_lt 0); lia).
  all: assert (IZR n / IZR d = (IZR whole + IZR rest / IZR d) / B) as E by
    (assert (IZR n * B = IZR d * IZR whole + IZR rest) as E1 by
       (unfold B; rewrite (count_R word_bits) by lia; rewrite <- !mult_IZR, <- plus_IZR; f_equal; lia);
     apply Rmult_eq_reg_r with (IZR d * B); [|apply Rgt_not_eq, Rmult_lt_0_compat; auto];
     replace (IZR n / IZR d * (IZR d * B)) with (IZR n * B) by (field; lra);
     replace ((IZR whole + IZR rest / IZR d) / B * (IZR d * B)) with (IZR d * IZR whole + IZR rest) by (field; lra); exact E1).
  all: assert (0 <= IZR rest / IZR d < 1) as Hr by
    (split; [apply Rmult_le_pos; [apply (IZR_le 0); lia | left; apply Rinv_0_lt_compat; auto] |
     apply Rmult_lt_reg_r with (IZR d); auto; unfold Rdiv; rewrite Rmult_assoc, Rinv_l by lra; rewrite Rmult_1_r, Rmult_1_l; apply IZR_lt; lia]).
  - assert (chance word_bits (coin word_bits 0 n d) (fun x => x) = IZR whole / B) as ->.
    { simpl. unfold mean. fold B whole rest.
      rewrite (sum_ext _ _ (fun i => if Nat.ltb i t then 1 else if Nat.eqb i t then 0 else 0)).
      - rewrite sum_below, Et by auto. unfold Rdiv. lra.
      - intros i Hi. destruct (Nat.ltb_spec i t); destruct (Z.ltb_spec (Z.of_nat i) whole); try (unfold t in *; lia); auto.
        destruct (Nat.eqb_spec i t); destruct (Z.eqb_spec (Z.of_nat i) whole); try (unfold t in *; lia); auto.
        destruct (rest =? 0)%Z; reflexivity. }
    rewrite E. simpl. rewrite Rmult_1_r. unfold Rdiv at 1 3. split; [apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | lra]|].
    replace (IZR whole / B + / B) with ((IZR whole + 1) * / B) by (field; lra).
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | lra].
  - set (next := chance word_bits (coin word_bits fuel rest d) (fun x => x)).
    assert (chance word_bits (coin word_bits (S fuel) n d) (fun x => x) = (IZR whole + (if (rest =? 0)%Z then 0 else next)) / B) as ->.
    { cbn [coin chance]. unfold mean. fold B whole rest.
      rewrite (sum_ext _ _ (fun i => if Nat.ltb i t then 1 else if Nat.eqb i t then (if (rest =? 0)%Z then 0 else next) else 0)).
      - rewrite sum_below, Et by auto. unfold Rdiv. lra.
      - intros i Hi. destruct (Nat.ltb_spec i t); destruct (Z.ltb_spec (Z.of_nat i) whole); try (unfold t in *; lia); auto.
        destruct (Nat.eqb_spec i t); destruct (Z.eqb_spec (Z.of_nat i) whole); try (unfold t in *; lia); auto.
        destruct (rest =? 0)%Z; reflexivity. }
    rewrite E. destruct (IH rest d ltac:(lia)) as [I1 I2]. fold next in I1, I2.
    assert (0 < B ^ S fuel) as HBf by (apply pow_lt; auto).
    replace (/ B ^ S (S fuel)) with (/ B ^ S fuel / B) by (simpl; field; split; [apply pow_nonzero|]; lra).
    assert (0 < / B ^ S fuel) by (apply Rinv_0_lt_compat; auto).
    set (y := / B ^ S fuel) in *. set (x := IZR rest / IZR d) in *.
    assert ((if (rest =? 0)%Z then 0 else next) <= x <= (if (rest =? 0)%Z then 0 else next) + y) as [J1 J2].
    { destruct (Z.eqb_spec rest 0) as [E0|E0]; [|lra]. unfold x. rewrite E0. unfold Rdiv. rewrite Rmult_0_l. lra. }
    set (z := if (rest =? 0)%Z then 0 else next) in *.
    assert (0 <= / B) by (left; apply Rinv_0_lt_compat; auto).
    replace ((IZR whole + z) / B + y / B) with ((IZR whole + z + y) / B) by (field; lra).
    split; apply Rmult_le_compat_r; lra.
Qed.
End Coin.

(* ---- A choice by weights, each enclosed by whole numbers ---- *)
Section Choice.
Variable word_bits : Z.
Hypothesis word_bits_pos : (0 < word_bits)%Z.
Variable n : nat.
Hypothesis n_pos : (0 < n)%nat.
Variable w : nat -> R.                     (* the weights *)
Hypothesis w_pos : forall i, 0 < w i.
Variable scale : Z -> R.                   (* in what units they are enclosed, for v of b bits *)
Hypothesis scale_pos : forall b, 0 < scale b.
Variable bounds : Z -> list (Z * Z).
Hypothesis bounds_length : forall b, length (bounds b) = n.
Hypothesis enclosed : forall b i low high, nth_error (bounds b) i = Some (low, high) ->
  (0 <= low)%Z /\ IZR low <= w i * scale b <= IZR high.

Definition cumulative (i : nat) : R := sum i w.          (* of the first i *)

Lemma running_nth : forall l total i, (i < length l)%nat ->
  exists x, nth_error l i = Some x /\ nth i (running total l) 0%Z = (nth i (total :: running total l) 0 + x)%Z.
Proof.
  induction l as [|y l IH]; intros total i Hi; simpl in Hi; [lia|]. destruct i as [|i]; simpl.
  - exists y. auto.
  - destruct (IH (total + y)%Z i ltac:(lia)) as (x & H1 & H2). exists x. split; auto.
Qed.

Lemma running_length : forall l total, length (running total l) = length l.
Proof. induction l; intros; simpl; auto. Qed.

Lemma sums_enclose : forall b i, (i < n)%nat ->
  IZR (nth i (running 0 (map fst (bounds b))) 0%Z) <= cumulative (S i) * scale b <=
    IZR (nth i (running 0 (map snd (bounds b))) 0%Z) /\ (0 <= nth i (running 0 (map fst (bounds b))) 0)%Z.
Proof.
  intros b i. induction i as [|i IH]; intros Hi;
    destruct (running_nth (map fst (bounds b)) 0 _ ltac:(rewrite map_length, bounds_length; exact Hi)) as (x & Hx & Ex);
    destruct (running_nth (map snd (bounds b)) 0 _ ltac:(rewrite map_length, bounds_length; exact Hi)) as (y & Hy & Ey);
    rewrite nth_error_map in Hx, Hy;
    match type of Hx with context [nth_error (bounds b) ?k] => destruct (nth_error (bounds b) k) as [[low high]|] eqn:En; [|discriminate] end;
    simpl in Hx, Hy; injection Hx as <-; injection Hy as <-; destruct (enclosed b _ low high En) as [H0 [H1 H2]].
  - rewrite Ex, Ey. unfold cumulative. simpl. rewrite Rplus_0_l. split; [auto | lia].
  - destruct (IH ltac:(lia)) as [[I1 I2] I3]. cbn [nth] in Ex, Ey. rewrite Ex, Ey, !plus_IZR. unfold cumulative in *. cbn [sum] in *.
    rewrite Rmult_plus_distr_r. split; [lra | lia].
Qed.

Lemma at_most_spec : forall l x i, (i < at_most l x)%nat -> (nth i l 0 <= x)%Z.
Proof.
  induction l as [|y l IH]; intros x i H; simpl in *; [lia|]. destruct (Z.leb_spec y x); [|lia].
  destruct i; auto. apply IH. lia.
Qed.

Lemma at_most_length : forall l x, (at_most l x <= length l)%nat.
Proof. induction l; intros; simpl; [lia|]. destruct (_ <=? _)%Z; [specialize (IHl x)|]; lia. Qed.

Definition share_low (i : nat) : R := cumulative i / cumulative n.
Definition share_high (i : nat) : R := cumulative (S i) / cumulative n.

Lemma cumulative_mono : forall i j, (i <= j)%nat -> cumulative i <= cumulative j.
Proof. intros i j H. induction H as [|j H IH]; [lra|]. unfold cumulative in *. simpl. pose proof (w_pos j). lra. Qed.

Lemma cumulative_pos : 0 < cumulative n.
Proof.
  apply Rlt_le_trans with (cumulative 1); [unfold cumulative; simpl; pose proof (w_pos 0); lra | apply cumulative_mono; lia].
Qed.

(* What is chosen is where V times the sum of all weights falls, for every V that begins with these bits. *)
Theorem choose_sound : forall b v i, (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> choose_index bounds b v = Some i -> (i < n)%nat ->
  share_low i * width b <= IZR v /\ IZR v + 1 <= share_high i * width b.
Proof.
  intros b v i Hb Hv H Hin. unfold choose_index in H. rewrite bounds_length in H.
  set (lows := running 0 (map fst (bounds b))) in *. set (highs := running 0 (map snd (bounds b))) in *.
  pose proof cumulative_pos as HC. pose proof (width_pos b Hb) as Hw. pose proof (scale_pos b) as Hs.
  set (last := (n - 1)%nat) in *. set (point := (v * nth last lows 0 / 2 ^ b)%Z) in *.
  assert (0 < 2 ^ b)%Z as Hp by (apply Z.pow_pos_nonneg; lia).
  destruct (sums_enclose b last ltac:(lia)) as [[T1 T2] T3]. fold lows highs in T1, T2, T3.
  replace (S last) with n in T1, T2 by (unfold last; lia).
  assert (IZR point <= IZR v * (cumulative n * scale b) / width b) as Hpoint.
  { pose proof (div_floor (v * nth last lows 0%Z) (2 ^ b) Hp) as D. rewrite mult_IZR in D. fold point in D. unfold width.
    eapply Rle_trans; [exact (proj1 D)|]. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, (IZR_lt 0); auto|].
    apply Rmult_le_compat_l; [apply (IZR_le 0); lia | auto]. }
  assert (i = at_most highs point /\ (i = last \/ ((v + 1) * nth last highs 0%Z <= nth i lows 0%Z * 2 ^ b)%Z)) as [Ei Hor].
  { destruct (Nat.eqb_spec (at_most highs point) last) as [E|E]; [injection H as <-; auto|].
    destruct (Z.leb_spec ((v + 1) * nth last highs 0)%Z (nth (at_most highs point) lows 0 * 2 ^ b)%Z); [|discriminate].
    injection H as <-. auto. }
  split.
  - destruct i as [|i]; [unfold share_low, cumulative; simpl; unfold Rdiv; rewrite !Rmult_0_l; apply (IZR_le 0); lia|].
    destruct (sums_enclose b i ltac:(lia)) as [[_ S2] _]. fold highs in S2.
    pose proof (at_most_spec highs point i ltac:(lia)) as Hi. apply IZR_le in Hi.
    unfold share_low. apply Rmult_le_reg_r with (cumulative n * scale b / width b).
    + apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; auto | apply Rinv_0_lt_compat; auto].
    + replace (cumulative (S i) / cumulative n * width b * (cumulative n * scale b / width b)) with (cumulative (S i) * scale b) by (field; lra).
      replace (IZR v * (cumulative n * scale b / width b)) with (IZR v * (cumulative n * scale b) / width b) by (field; lra). lra.
  - destruct Hor as [->|Hor].
    + unfold share_high. replace (S last) with n by (unfold last; lia). replace (cumulative n / cumulative n) with 1 by (field; lra).
      rewrite Rmult_1_l. unfold width. rewrite <- plus_IZR. apply IZR_le. lia.
    + destruct (sums_enclose b i Hin) as [[S1 _] _]. fold lows in S1.
      apply IZR_le in Hor. rewrite !mult_IZR, plus_IZR in Hor. fold (width b) in Hor.
      assert (0 <= IZR v) as HvR by (apply (IZR_le 0); lia).
      assert ((IZR v + 1) * (cumulative n * scale b) <= cumulative (S i) * scale b * width b) as HS.
      { apply Rle_trans with ((IZR v + 1) * IZR (nth last highs 0%Z)); [apply Rmult_le_compat_l; lra|].
        eapply Rle_trans; [exact Hor|]. apply Rmult_le_compat_r; lra. }
      unfold share_high. apply Rmult_le_reg_r with (cumulative n * scale b); [apply Rmult_lt_0_compat; auto|].
      replace (cumulative (S i) / cumulative n * width b * (cumulative n * scale b)) with (cumulative (S i) * scale b * width b) by (field; lra).
      exact HS.
Qed.

Lemma choose_below : forall b v i, choose_index bounds b v = Some i -> (0 <= b)%Z -> (0 <= v < 2 ^ b)%Z -> (i < n)%nat.
Proof.
  intros b v i H Hb Hv. unfold choose_index in H. rewrite bounds_length in H.
  set (lows := running 0 (map fst (bounds b))) in *. set (highs := running 0 (map snd (bounds b))) in *.
  set (last := (n - 1)%nat) in *. set (point := (v * nth last lows 0 / 2 ^ b)%Z) in *.
  assert (at_most highs point <= n)%nat as Hle.
  { eapply Nat.le_trans; [apply at_most_length|]. unfold highs. rewrite running_length, map_length, bounds_length. auto. }
  destruct (Nat.eqb_spec (at_most highs point) last) as [E|E]; [injection H as <-; unfold last in E; lia|].
  destruct (Z.leb_spec ((v + 1) * nth last highs 0)%Z (nth (at_most highs point) lows 0 * 2 ^ b)%Z) as [L|L]; [|discriminate].
  injection H as <-. destruct (Nat.eq_dec (at_most highs point) n) as [En|]; [|lia]. exfalso.
  rewrite En in L. rewrite (nth_overflow lows) in L by (unfold lows; rewrite running_length, map_length, bounds_length; auto).
  destruct (sums_enclose b last ltac:(unfold last; lia)) as [[_ T2] _]. fold highs in T2.
  replace (S last) with n in T2 by (unfold last; lia).
  pose proof cumulative_pos. pose proof (scale_pos b). assert (0 < IZR (nth last highs 0%Z)) as Hh by (eapply Rlt_le_trans; [|exact T2]; apply Rmult_lt_0_compat; auto).
  apply (lt_IZR 0) in Hh. nia.
Qed.

(* Index i is drawn with the chance w i over the sum of all weights: no more, and less only by what has not ended. *)
Theorem choice_law : forall bits fuel i, (0 <= bits)%Z -> (i < n)%nat ->
  law_by word_bits nat (choose_index bounds) (Nat.eqb i) bits fuel <= w i / cumulative n <=
  law_by word_bits nat (choose_index bounds) (Nat.eqb i) bits fuel + open_by word_bits nat (choose_index bounds) bits fuel.
Proof.
  intros bits fuel i Hb Hi. pose proof cumulative_pos as HC.
  replace (w i / cumulative n) with (share_high i - share_low i) by (unfold share_high, share_low, cumulative; simpl; fold (cumulative n); field; lra).
  assert (0 <= cumulative i) as H0 by (apply sum_nonneg; intros; left; auto).
  apply (first_law word_bits word_bits_pos nat (choose_index bounds) (Nat.eqb i) (share_low i) (share_high i)); auto.
  - unfold share_low, share_high. assert (cumulative i <= cumulative (S i)) by (apply cumulative_mono; lia).
    split; [apply Rmult_le_pos; [auto | left; apply Rinv_0_lt_compat; auto] | apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | auto]].
  - unfold share_high. apply Rmult_le_reg_r with (cumulative n); auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
    rewrite Rmult_1_r, Rmult_1_l. apply cumulative_mono. lia.
  - intros b v a Hb' Hv H E. apply Nat.eqb_eq in E. subst a. apply choose_sound; auto.
  - intros b v a Hb' Hv H E. apply Nat.eqb_neq in E. pose proof (choose_below b v a H Hb' Hv) as Ha.
    destruct (choose_sound b v a Hb' Hv H Ha) as [S1 S2]. pose proof (width_pos b Hb') as Hw.
    destruct (Nat.lt_ge_cases a i) as [L|L].
    + left. eapply Rle_trans; [exact S2|]. apply Rmult_le_compat_r; [lra|]. unfold share_high, share_low.
      apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | apply cumulative_mono; lia].
    + right. eapply Rle_trans; [|exact S1]. apply Rmult_le_compat_r; [lra|]. unfold share_high, share_low.
      apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto | apply cumulative_mono; lia].
Qed.
End Choice.

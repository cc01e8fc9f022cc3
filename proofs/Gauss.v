(* The thresholds of Gaussian noise: `_gaussian_thresholds` of noise/thresholds.py, from partial sums and a bound of the rest. *)
Require Import Reals Lra Lia Psatz ZArith List Bool.
From Sfumato Require Import Sums Lazy Exp Samplers.
Import ListNotations.

(* ==== The code ==== *)
Open Scope Z_scope.

Fixpoint gauss_sums (fuel : nat) (ratio weight total step one factor cut : Z) : option (list Z * (Z * Z * Z)) :=
  match fuel with
  | O => None
  | S fuel =>
      if cut <? weight then
        let total := total + weight * factor in
        let ratio := ratio * step / one in
        match gauss_sums fuel ratio (weight * ratio / one) total step one factor cut with
        | Some (sums, rest) => Some (total :: sums, rest)
        | None => None
        end
      else Some ([], (ratio, weight, total))
  end.

Fixpoint units_of (sums : list Z) (inverse slack one guard top : Z) : option (list Z) :=
  match sums with
  | [] => None
  | partial :: sums =>
      let scaled := partial * inverse / one in
      let units := scaled / 2 ^ guard in
      if top <=? units then Some []
      else if (scaled + slack) / 2 ^ guard =? units then
        match units_of sums inverse slack one guard top with Some rest => Some (units :: rest) | None => None end
      else None
  end.

Definition gaussian_thresholds (fuel : nat) (n d bits guard : Z) (folded : bool) : option (list Z) :=
  let precision := bits + guard in
  let one := 2 ^ precision in
  match exp_bounds fuel n d precision, exp_bounds fuel (2 * n) d precision with
  | Some (first, first_high), Some (step, step_high) =>
      match gauss_sums fuel first first one step one (if folded then 2 else 1) (2 ^ (guard / 2)) with
      | None => None
      | Some (sums, (ratio, weight, total)) =>
          let count := Z.of_nat (S (length sums)) in
          let ratio_error := first_high - first + count * (step_high - step + 1) in
          let weight_error := (count + 1) * (ratio_error + 1) in
          let sum_error := 2 * count * weight_error in
          let ratio_top := ratio + ratio_error in
          if one <=? ratio_top then None
          else
            let rest := 2 * ((weight + weight_error) * one / (one - ratio_top) + 1) in
            let inverse := one * one / (total + sum_error + rest) in
            let inverse_error := one * one / total + 1 - inverse in
            let slack := (sum_error * (inverse + inverse_error) + total * inverse_error) / one + 2 in
            units_of (one :: sums) inverse slack one guard (2 ^ bits - 1)
      end
  | _, _ => None
  end.

(* ==== That it is right ==== *)
Open Scope R_scope.

Section Weights.
Variable r : R.
Hypothesis r_pos : 0 < r.
Variable m : R.                                   (* 2 for both signs of a magnitude, 1 for one *)
Hypothesis m_range : 1 <= m <= 2.

Definition weight (k : nat) : R := q r ^ (k * k).
Definition chunk (k : nat) : R := match k with O => 1 | S _ => m * weight k end.
Definition upto (k : nat) : R := sum k chunk.     (* of the first k *)

Lemma weight_range : forall k, 0 < weight k <= 1.
Proof. intros k. apply (pow_range r r_pos). Qed.

Lemma chunk_pos : forall k, 0 < chunk k.
Proof. intros [|k]; simpl; [lra|]. pose proof (weight_range (S k)). apply Rmult_lt_0_compat; lra. Qed.

Lemma pow_anti : forall a b, (a <= b)%nat -> q r ^ b <= q r ^ a.
Proof.
  intros a b H. induction H as [|b H IH]; [lra|]. pose proof (pow_falls r r_pos b). lra.
Qed.

(* Ratios only fall: what comes after n weights is below a geometric series. *)
Lemma rest_below : forall n j, (1 <= n)%nat ->
  upto (n + j) <= upto n + m * weight n / (1 - q r ^ (2 * n - 1)).
Proof.
  intros n j Hn. set (rho := q r ^ (2 * n - 1)).
  assert (0 < rho < 1) as Hr.
  { unfold rho. pose proof (q_range r r_pos). split; [apply (pow_range r r_pos)|].
    apply Rle_lt_trans with (q r ^ 1); [apply pow_anti; lia | simpl; lra]. }
  pose proof (weight_range n) as Hw.
  assert (upto (n + j) <= upto n + m * weight n * (1 - rho ^ j) / (1 - rho)) as H.
  { induction j as [|j IH]; [rewrite Nat.add_0_r; simpl; unfold Rdiv; rewrite Rminus_diag_eq by auto; lra|].
    replace (n + S j)%nat with (S (n + j)) by lia. unfold upto in *. cbn [sum].
    assert (chunk (n + j) <= m * weight n * rho ^ j) as Hc.
    { replace (chunk (n + j)) with (m * weight (n + j)) by (destruct n; [lia | reflexivity]).
      rewrite Rmult_assoc. apply Rmult_le_compat_l; [lra|]. unfold weight, rho.
      rewrite <- pow_mult, <- pow_add. apply pow_anti. nia. }
    replace (m * weight n * (1 - rho ^ S j) / (1 - rho)) with (m * weight n * (1 - rho ^ j) / (1 - rho) + m * weight n * rho ^ j)
      by (simpl; field; lra). lra. }
  eapply Rle_trans; [exact H|]. apply Rplus_le_compat_l. unfold Rdiv. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra|].
  assert (0 <= rho ^ j) by (apply pow_le; lra). assert (0 <= m * weight n) by (apply Rmult_le_pos; lra). nra.
Qed.

Lemma upto_mono : forall a b, (a <= b)%nat -> upto a <= upto b.
Proof.
  intros a b H. induction H as [|b H IH]; [lra|]. unfold upto in *. simpl. pose proof (chunk_pos b). lra.
Qed.

Lemma upto_bounded : bound (fun x => exists k, x = upto k).
Proof.
  exists (upto 1 + m * weight 1 / (1 - q r ^ (2 * 1 - 1))). intros x (k & ->).
  apply Rle_trans with (upto (1 + k)); [apply upto_mono; lia | apply rest_below; lia].
Qed.

(* The sum of all weights. *)
Definition all : R := proj1_sig (completeness _ upto_bounded (ex_intro _ (upto 0) (ex_intro _ 0%nat eq_refl))).

Lemma all_above : forall k, upto k < all.
Proof.
  intros k. unfold all. destruct completeness as [x [U L]]. simpl.
  apply Rlt_le_trans with (upto (S k)); [unfold upto; simpl; pose proof (chunk_pos k); lra | apply U; exists (S k); auto].
Qed.

Lemma all_below : forall n, (1 <= n)%nat -> all <= upto n + m * weight n / (1 - q r ^ (2 * n - 1)).
Proof.
  intros n Hn. unfold all. destruct completeness as [x [U L]]. simpl. apply L. intros y (k & ->).
  apply Rle_trans with (upto (n + k)); [apply upto_mono; lia | apply rest_below; auto].
Qed.

(* The cumulative chances. *)
Definition gauss_C (k : nat) : R := upto (S k) / all.

Lemma all_pos : 0 < all.
Proof. pose proof (all_above 0). unfold upto in H. simpl in H. lra. Qed.

Lemma gauss_range : forall k, 0 <= gauss_C k < 1.
Proof.
  intros k. pose proof all_pos. pose proof (all_above (S k)). unfold gauss_C.
  assert (0 <= upto (S k)) by (apply sum_nonneg; intros; left; apply chunk_pos). split.
  - apply Rmult_le_pos; [lra | left; apply Rinv_0_lt_compat; auto].
  - apply Rmult_lt_reg_r with all; auto. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

Lemma gauss_rises : forall k, gauss_C k <= gauss_C (S k).
Proof.
  intros k. pose proof all_pos. unfold gauss_C. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|].
  apply upto_mono. lia.
Qed.

Theorem gauss_blocks : forall k, gauss_C k - before gauss_C k = chunk k / all.
Proof.
  intros k. pose proof all_pos. destruct k as [|k]; unfold before, gauss_C, upto; simpl; field; lra.
Qed.

(* ---- The whole numbers fall short of the true ones by no more than is said. ---- *)
Variable one : Z.
Hypothesis one_pos : (0 < one)%Z.
Let W := IZR one.

Lemma W_pos : 0 < W.
Proof. apply (IZR_lt 0). auto. Qed.

Lemma product : forall x y X Y e f, (0 <= x)%Z -> (0 <= y)%Z -> IZR x <= W * X <= IZR x + e -> IZR y <= W * Y <= IZR y + f ->
  0 <= X <= 1 -> 0 <= Y <= 1 ->
  IZR (x * y / one) <= W * (X * Y) <= IZR (x * y / one) + e + f + 1.
Proof.
  intros x y X Y e f Hx Hy HX HY RX RY. pose proof W_pos as HW.
  pose proof (div_floor (x * y) one one_pos) as D. rewrite mult_IZR in D. fold W in D.
  assert (0 <= IZR x) by (apply (IZR_le 0); auto). assert (0 <= IZR y) by (apply (IZR_le 0); auto).
  assert (IZR x * IZR y / W * W = IZR x * IZR y) as E by (field; lra). split.
  - apply Rle_trans with (IZR x * IZR y / W); [lra|]. apply Rmult_le_reg_r with W; auto. rewrite E.
    replace (W * (X * Y) * W) with (W * X * (W * Y)) by ring. apply Rmult_le_compat; lra.
  - apply Rle_trans with (IZR x * IZR y / W + e + f); [|lra]. apply Rmult_le_reg_r with W; auto.
    replace ((IZR x * IZR y / W + e + f) * W) with (IZR x * IZR y + (e + f) * W) by (field; lra).
    replace (W * (X * Y) * W) with (W * X * (W * Y)) by ring.
    assert (W * X <= W) by nra. assert (W * Y <= W) by nra. nra.
Qed.

Variables (a b : R).                              (* what first and step may fall short by, and one unit *)
Hypothesis a_nonneg : 0 <= a.
Hypothesis b_pos : 1 <= b.
Variables (step factor : Z).
Hypothesis step_nonneg : (0 <= step)%Z.
Hypothesis step_in : IZR step <= W * q r ^ 2 <= IZR step + (b - 1).
Hypothesis factor_m : IZR factor = m.

Definition ratio_off (k : nat) : R := a + (INR k - 1) * b.
Definition weight_off (k : nat) : R := INR k * (a + INR k * b + 1).
Definition sum_off (k : nat) : R := 2 * (INR k - 1) * INR k * (a + INR k * b + 1).

Lemma offs : forall k, (1 <= k)%nat -> 0 <= ratio_off k /\ 0 <= weight_off k /\ 0 <= sum_off k /\
  ratio_off k + (b - 1) + 1 <= ratio_off (S k) /\ weight_off k + ratio_off (S k) + 1 <= weight_off (S k) /\
  sum_off k + 2 * weight_off k <= sum_off (S k).
Proof.
  intros k Hk. unfold ratio_off, weight_off, sum_off. rewrite S_INR.
  assert (1 <= INR k) as H by (apply (le_INR 1); auto). set (x := INR k) in *.
  assert (0 <= (x - 1) * b) by (apply Rmult_le_pos; lra). assert (0 <= x * b) by (apply Rmult_le_pos; lra).
  assert (0 <= x * (a + x * b + 1)) by (apply Rmult_le_pos; lra).
  assert (0 <= (x - 1) * (x * (a + x * b + 1))) by (apply Rmult_le_pos; lra).
  assert (0 <= (x + 1) * b) by (apply Rmult_le_pos; lra). assert (0 <= x * ((x + 1) * b)) by (apply Rmult_le_pos; lra).
  repeat split; try lra; nra.
Qed.

Lemma off_mono : forall k l, (1 <= k)%nat -> (k <= l)%nat -> sum_off k <= sum_off l.
Proof.
  intros k l Hk H. induction H as [|l H IH]; [lra|]. pose proof (offs l ltac:(lia)). lra.
Qed.

Lemma sums_right : forall fuel k ratio weight0 total cut sums ratio' weight' total', (1 <= k)%nat ->
  (0 <= ratio)%Z -> (0 <= weight0)%Z -> (0 < total)%Z ->
  IZR ratio <= W * q r ^ (2 * k - 1) <= IZR ratio + ratio_off k ->
  IZR weight0 <= W * weight k <= IZR weight0 + weight_off k ->
  IZR total <= W * upto k <= IZR total + sum_off k ->
  gauss_sums fuel ratio weight0 total step one factor cut = Some (sums, (ratio', weight', total')) ->
  let n := (k + length sums)%nat in
  (0 <= ratio')%Z /\ (0 <= weight')%Z /\ (0 < total')%Z /\
  IZR ratio' <= W * q r ^ (2 * n - 1) <= IZR ratio' + ratio_off n /\
  IZR weight' <= W * weight n <= IZR weight' + weight_off n /\
  IZR total' <= W * upto n <= IZR total' + sum_off n /\ (total <= total')%Z /\
  forall i s, nth_error sums i = Some s -> (0 < s <= total')%Z /\ IZR s <= W * upto (S (k + i)) <= IZR s + sum_off n.
Proof.
  induction fuel as [|fuel IH]; intros k ratio w total cut sums ratio' weight' total' Hk Hr0 Hw0 Ht0 Hr Hw Ht H; [discriminate|].
  cbn [gauss_sums] in H. destruct (Z.ltb_spec cut w) as [L|L].
  - destruct (gauss_sums fuel _ _ _ _ _ _ _) as [[sums0 rest]|] eqn:E; [|discriminate]. injection H as <- ->.
    pose proof (q_range r r_pos) as Hq. pose proof (offs k Hk) as (O1 & O2 & O3 & O4 & O5 & O6).
    pose proof (weight_range k) as Hwk. pose proof W_pos as HW.
    assert (1 <= factor)%Z as Hf by (apply le_IZR; lra).
    assert (0 <= q r ^ (2 * k - 1) <= 1) as Hrk by (pose proof (pow_range r r_pos (2 * k - 1)); lra).
    assert (0 <= q r ^ 2 <= 1) as Hq2 by (pose proof (pow_range r r_pos 2); lra).
    assert (0 <= q r ^ (2 * S k - 1) <= 1) as Hrk1 by (pose proof (pow_range r r_pos (2 * S k - 1)); lra).
    pose proof (product ratio step _ _ _ _ Hr0 step_nonneg Hr step_in Hrk Hq2) as P1.
    replace (q r ^ (2 * k - 1) * q r ^ 2) with (q r ^ (2 * S k - 1)) in P1 by (rewrite <- pow_add; f_equal; lia).
    set (ratio1 := (ratio * step / one)%Z) in *.
    assert (0 <= ratio1)%Z as Hr1 by (apply Z.div_pos; nia).
    assert (IZR ratio1 <= W * q r ^ (2 * S k - 1) <= IZR ratio1 + ratio_off (S k)) as Hr' by lra.
    pose proof (product w ratio1 _ _ _ _ Hw0 Hr1 Hw Hr' ltac:(lra) Hrk1) as P2.
    replace (weight k * q r ^ (2 * S k - 1)) with (weight (S k)) in P2 by (unfold weight; rewrite <- pow_add; f_equal; nia).
    assert (0 <= w * ratio1 / one)%Z as Hw1 by (apply Z.div_pos; nia).
    assert (upto (S k) = upto k + m * weight k) as Eu by (unfold upto; simpl; destruct k; [lia | reflexivity]).
    assert (IZR (total + w * factor) <= W * upto (S k) <= IZR (total + w * factor) + sum_off (S k)) as Ht'.
    { rewrite plus_IZR, mult_IZR, factor_m, Eu. replace (W * (upto k + m * weight k)) with (W * upto k + W * weight k * m) by ring.
      assert (IZR w * m <= W * weight k * m <= IZR w * m + weight_off k * 2) as [M1 M2]; [|split; lra].
      split; [apply Rmult_le_compat_r; lra|].
      apply Rle_trans with ((IZR w + weight_off k) * m); [apply Rmult_le_compat_r; lra|]. nra. }
    assert (0 < total + w * factor)%Z as Htp by nia.
    destruct (IH (S k) ratio1 (w * ratio1 / one)%Z (total + w * factor)%Z cut sums0 ratio' weight' total' ltac:(lia) Hr1 Hw1 Htp Hr'
      ltac:(lra) Ht' E) as (I1 & I2 & I3 & I4 & I5 & I6 & I7 & I8).
    replace (S k + length sums0)%nat with (k + length ((total + w * factor)%Z :: sums0))%nat in * by (simpl; lia).
    split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [auto|]. split; [nia|].
    intros [|i] s Hs; simpl in Hs.
    + injection Hs as <-. split; [lia|]. rewrite Nat.add_0_r.
      assert (sum_off (S k) <= sum_off (k + length ((total + w * factor)%Z :: sums0))) by (apply off_mono; simpl; lia). lra.
    + replace (S (k + S i)) with (S (S k + i)) by lia. apply I8; auto.
  - injection H as <- <- <- <-. simpl length. cbv zeta. rewrite Nat.add_0_r.
    do 6 (split; [auto|]). split; [lia|]. intros i s Hs. destruct i; discriminate.
Qed.

(* From the sums to the floors. *)
Lemma units_right : forall bits guard sums k inverse slack l inverse_error sum_error top_sum,
  (0 <= bits)%Z -> (0 <= guard)%Z -> one = (2 ^ (bits + guard))%Z ->
  (0 <= inverse)%Z -> (0 <= inverse_error)%Z -> (0 <= sum_error)%Z ->
  IZR inverse <= W / all <= IZR (inverse + inverse_error) ->
  (slack = (sum_error * (inverse + inverse_error) + top_sum * inverse_error) / one + 2)%Z ->
  (forall i s, nth_error sums i = Some s -> (0 < s <= top_sum)%Z /\ IZR s <= W * upto (S (k + i)) <= IZR s + IZR sum_error) ->
  units_of sums inverse slack one guard (2 ^ bits - 1) = Some l ->
  forall i, let fl := nth i l (2 ^ bits - 1)%Z in
    IZR fl <= gauss_C (k + i) * width bits < IZR fl + 1.
Proof.
  intros bits guard sums. induction sums as [|s sums IH]; intros k inverse slack l ie se ts Hb Hg Hone Hi0 Hie Hse Hinv Hsl Hs H i;
    [discriminate|]. cbn [units_of] in H.
  pose proof W_pos as HW. pose proof all_pos as HA.
  destruct (Hs 0%nat s eq_refl) as [Hst Hsum]. rewrite Nat.add_0_r in Hsum.
  set (scaled := (s * inverse / one)%Z) in *. set (G := (2 ^ guard)%Z) in *.
  assert (0 < G)%Z as HG by (apply Z.pow_pos_nonneg; lia). assert (0 < IZR G) as HGR by (apply (IZR_lt 0); auto).
  assert (W = width bits * IZR G) as EW by (unfold W, G, width; rewrite Hone, <- mult_IZR, <- Z.pow_add_r; auto).
  assert (0 <= IZR inverse) as HiR by (apply (IZR_le 0); auto). assert (0 <= IZR ie) as HieR by (apply (IZR_le 0); auto).
  assert (0 <= IZR se) as HseR by (apply (IZR_le 0); auto). assert (0 < IZR s) as HsR by (apply (IZR_lt 0); lia).
  assert (IZR scaled <= gauss_C k * W < IZR (scaled + slack)) as Hscaled.
  { pose proof (div_floor (s * inverse) one one_pos) as D1. rewrite mult_IZR in D1. fold W scaled in D1.
    pose proof (div_floor (se * (inverse + ie) + ts * ie) one one_pos) as D2. fold W in D2.
    replace (gauss_C k * W) with (W * upto (S k) * (W / all) / W) by (unfold gauss_C; field; split; lra).
    rewrite plus_IZR in Hinv. split.
    - apply Rle_trans with (IZR s * IZR inverse / W); [lra|]. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|].
      apply Rmult_le_compat; lra.
    - rewrite plus_IZR. subst slack. rewrite plus_IZR. rewrite plus_IZR, !mult_IZR, plus_IZR in D2.
      apply Rle_lt_trans with ((IZR s + IZR se) * (IZR inverse + IZR ie) / W).
      + apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|]. apply Rmult_le_compat; try lra.
      + replace ((IZR s + IZR se) * (IZR inverse + IZR ie) / W) with
          (IZR s * IZR inverse / W + (IZR se * (IZR inverse + IZR ie) + IZR s * IZR ie) / W) by (field; lra).
        assert ((IZR se * (IZR inverse + IZR ie) + IZR s * IZR ie) / W <= (IZR se * (IZR inverse + IZR ie) + IZR ts * IZR ie) / W).
        { apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; auto|]. apply Rplus_le_compat_l.
          apply Rmult_le_compat_r; auto. apply IZR_le. lia. }
        lra. }
  assert (gauss_C k * width bits * IZR G = gauss_C k * W) as EC by (rewrite EW; ring).
  pose proof (Z.div_mod scaled G ltac:(lia)) as DM. pose proof (Z.mod_pos_bound scaled G HG) as MB.
  set (units := (scaled / G)%Z) in *.
  assert (IZR units <= gauss_C k * width bits) as Hlow.
  { apply Rmult_le_reg_r with (IZR G); auto. rewrite EC. apply Rle_trans with (IZR scaled); [|lra].
    rewrite <- mult_IZR. apply IZR_le. lia. }
  pose proof (width_pos bits Hb) as Hwb.
  destruct (Z.leb_spec (2 ^ bits - 1) units) as [L|L].
  - injection H as <-. assert (nth i (@nil Z) (2 ^ bits - 1)%Z = 2 ^ bits - 1)%Z as -> by (destruct i; auto). cbv zeta.
    apply IZR_le in L. rewrite minus_IZR in *. fold (width bits) in *.
    assert (gauss_C k <= gauss_C (k + i)) as Hmono.
    { clear. induction i as [|i IHi]; [rewrite Nat.add_0_r; lra|]. replace (k + S i)%nat with (S (k + i)) by lia.
      pose proof (gauss_rises (k + i)). lra. }
    pose proof (gauss_range (k + i)). split.
    + apply Rle_trans with (gauss_C k * width bits); [lra | apply Rmult_le_compat_r; lra].
    + assert (gauss_C (k + i) * width bits < 1 * width bits) by (apply Rmult_lt_compat_r; lra). lra.
  - destruct (Z.eqb_spec ((scaled + slack) / G) units) as [Eu|]; [|discriminate].
    destruct (units_of sums inverse slack one guard (2 ^ bits - 1)) as [rest|] eqn:ER; [|discriminate]. injection H as <-.
    destruct i as [|i].
    + cbn [nth]. rewrite Nat.add_0_r. cbv zeta. split; auto.
      apply Rmult_lt_reg_r with (IZR G); auto. rewrite EC. apply Rlt_le_trans with (IZR (scaled + slack)); [lra|].
      pose proof (Z.div_mod (scaled + slack) G ltac:(lia)) as DM2. pose proof (Z.mod_pos_bound (scaled + slack) G HG) as MB2.
      rewrite Eu in DM2. rewrite <- (plus_IZR units 1), <- mult_IZR. apply IZR_le. lia.
    + cbn [nth]. replace (k + S i)%nat with (S k + i)%nat by lia.
      apply (IH (S k) inverse slack rest ie se ts); auto.
      intros j x Hj. replace (S (S k + j)) with (S (k + S j)) by lia. apply Hs. exact Hj.
Qed.
End Weights.

(* What `_gaussian_thresholds` returns are the floors of 2^bits C(k), for weights exp(-k^2 n / d). *)
Theorem gaussian_thresholds_right : forall fuel n d bits guard (folded : bool) l (Hr : 0 < IZR n / IZR d)
  (Hm : 1 <= (if folded then 2 else 1) <= 2), (0 < n)%Z -> (0 < d)%Z -> (0 <= bits)%Z -> (0 <= guard)%Z ->
  gaussian_thresholds fuel n d bits guard folded = Some l ->
  forall k, let fl := nth k l (2 ^ bits - 1)%Z in
    IZR fl <= gauss_C (IZR n / IZR d) Hr (if folded then 2 else 1) Hm k * width bits < IZR fl + 1.
Proof.
  intros fuel n d bits guard folded l Hr Hm Hn Hd Hb Hg H k. unfold gaussian_thresholds in H.
  set (one := (2 ^ (bits + guard))%Z) in *. set (r := IZR n / IZR d) in *.
  assert (0 < one)%Z as Hone by (apply Z.pow_pos_nonneg; lia).
  destruct (exp_bounds fuel n d (bits + guard)) as [[first first_high]|] eqn:E1; [|discriminate].
  destruct (exp_bounds fuel (2 * n) d (bits + guard)) as [[step step_high]|] eqn:E2; [|discriminate].
  assert (forall n' low high, exp_bounds fuel n' d (bits + guard) = Some (low, high) -> (0 < n')%Z -> (0 <= low)%Z) as Hlow.
  { intros n' low high E Hn'. unfold exp_bounds in E. destruct (Z.eqb_spec n' 0); [lia|].
    destruct (_ <=? _)%Z in E; [injection E as <- <-; lia|].
    destruct (series _ _ _ _ _ _) as [[v e]|]; [|discriminate]. destruct (square _ _ _ _) as [v' e']. injection E as <- <-. lia. }
  pose proof (exp_enclosed fuel n d (bits + guard) first first_high ltac:(lia) Hd ltac:(lia) E1) as X1.
  pose proof (exp_enclosed fuel (2 * n) d (bits + guard) step step_high ltac:(lia) Hd ltac:(lia) E2) as X2.
  fold one r in X1. fold one in X2. fold (q r) in X1.
  assert (exp (- (IZR (2 * n) / IZR d)) = q r ^ 2) as Eq2.
  { rewrite q_pow. f_equal. rewrite mult_IZR. unfold r. simpl. field. apply not_0_IZR. lia. }
  rewrite Eq2 in X2.
  assert (0 <= first)%Z as Hf0 by (apply (Hlow n first first_high); auto).
  assert (0 <= step)%Z as Hs0 by (apply (Hlow (2 * n)%Z step step_high); auto; lia).
  set (factor := if folded then 2%Z else 1%Z) in *. set (m := if folded then 2 else 1) in *.
  assert (IZR factor = m) as Hfm by (unfold factor, m; destruct folded; reflexivity).
  destruct (gauss_sums fuel first first one step one factor (2 ^ (guard / 2))) as [[sums [[ratio w] total]]|] eqn:ES; [|discriminate].
  set (a := IZR (first_high - first)). set (b := IZR (step_high - step + 1)).
  assert (0 <= a) as Ha by (unfold a; rewrite minus_IZR; lra).
  assert (1 <= b) as Hb1 by (unfold b; rewrite plus_IZR, minus_IZR; lra).
  set (W := IZR one) in *. assert (0 < W) as HW by (apply (IZR_lt 0); auto).
  pose proof (sums_right r Hr m Hm one Hone a b Ha Hb1 step factor Hs0 ltac:(unfold b; rewrite plus_IZR, minus_IZR; fold W; lra) Hfm
    fuel 1 first first one (2 ^ (guard / 2))%Z sums ratio w total ltac:(lia) Hf0 Hf0 Hone) as SR.
  assert (IZR first <= W * q r ^ (2 * 1 - 1) <= IZR first + ratio_off a b 1) as B1.
  { unfold ratio_off, a. rewrite minus_IZR. simpl. lra. }
  assert (IZR first <= W * weight r 1 <= IZR first + weight_off a b 1) as B2.
  { unfold weight_off, weight. simpl. unfold a in *. rewrite minus_IZR in *. lra. }
  assert (IZR one <= W * upto r m 1 <= IZR one + sum_off a b 1) as B3.
  { unfold upto, sum_off. simpl. fold W. lra. }
  specialize (SR B1 B2 B3 ES). cbv zeta in SR. fold W in SR. destruct SR as (R0 & R1 & R2 & R3 & R4 & R5 & R6 & R7).
  set (N := (1 + length sums)%nat) in *.
  set (count := Z.of_nat (S (length sums))) in *.
  assert (IZR count = INR N) as Ecount by (unfold count, N; rewrite INR_IZR_INZ; reflexivity).
  assert (1 <= INR N) as HN by (unfold N; rewrite plus_INR; simpl; pose proof (pos_INR (length sums)); lra).
  set (ratio_error := (first_high - first + count * (step_high - step + 1))%Z) in *.
  assert (IZR ratio_error = a + INR N * b) as Ere by (unfold ratio_error, a, b; rewrite plus_IZR, mult_IZR, Ecount; reflexivity).
  set (weight_error := ((count + 1) * (ratio_error + 1))%Z) in *.
  assert (IZR weight_error = (INR N + 1) * (a + INR N * b + 1)) as Ewe
    by (unfold weight_error; rewrite mult_IZR, !plus_IZR, Ere, Ecount; reflexivity).
  set (sum_error := (2 * count * weight_error)%Z) in *.
  assert (IZR sum_error = 2 * INR N * ((INR N + 1) * (a + INR N * b + 1))) as Ese
    by (unfold sum_error; rewrite !mult_IZR, Ewe, Ecount; reflexivity).
  assert (0 <= INR N * b) as Hnb by (apply Rmult_le_pos; lra).
  set (z := a + INR N * b + 1) in *. assert (1 <= z) as Hz by (unfold z; lra).
  assert (ratio_off a b N <= IZR ratio_error /\ weight_off a b N <= IZR weight_error /\ sum_off a b N <= IZR sum_error) as (F1 & F2 & F3).
  { rewrite Ere, Ewe, Ese. unfold ratio_off, weight_off, sum_off. fold z.
    assert (0 <= INR N * z) by (apply Rmult_le_pos; lra). repeat split; nra. }
  assert (0 <= sum_error)%Z as Hse0 by (apply le_IZR; rewrite Ese; repeat apply Rmult_le_pos; lra).
  assert (0 <= weight_error)%Z as Hwe0 by (apply le_IZR; rewrite Ewe; apply Rmult_le_pos; lra).
  destruct (Z.leb_spec one (ratio + ratio_error)) as [L|L]; [discriminate|].
  set (room := (one - (ratio + ratio_error))%Z) in *. assert (0 < room)%Z as Hroom by lia.
  set (tail := ((w + weight_error) * one / room)%Z) in *.
  set (D := (total + sum_error + 2 * (tail + 1))%Z) in *.
  assert (0 <= tail)%Z as Htail by (apply Z.div_pos; nia).
  assert (0 < D)%Z as HD by (unfold D; lia).
  pose proof (all_above r Hr m Hm N) as A1. pose proof (all_below r Hr m Hm N ltac:(lia)) as A2.
  pose proof (all_pos r Hr m Hm) as A0. set (T := all r Hr m Hm) in *.
  assert (W * T <= IZR D) as HT.
  { apply Rle_trans with (W * (upto r m N + m * weight r N / (1 - q r ^ (2 * N - 1)))); [apply Rmult_le_compat_l; lra|].
    unfold D. rewrite !plus_IZR, mult_IZR, plus_IZR.
    assert (W * (m * weight r N / (1 - q r ^ (2 * N - 1))) <= 2 * (IZR tail + 1)) as HR; [|rewrite Rmult_plus_distr_l; lra].
    pose proof (div_floor ((w + weight_error) * one) room Hroom) as DF. fold tail in DF. rewrite mult_IZR, plus_IZR in DF. fold W in DF.
    assert (0 < IZR room) as HroomR by (apply (IZR_lt 0); auto).
    assert (IZR room <= W * (1 - q r ^ (2 * N - 1))) as HroomW.
    { unfold room. rewrite minus_IZR, plus_IZR. fold W. lra. }
    assert (0 < 1 - q r ^ (2 * N - 1)) as Hrho by nra.
    assert (W * weight r N / (1 - q r ^ (2 * N - 1)) <= (IZR w + IZR weight_error) * W / IZR room) as HQ.
    { apply Rmult_le_reg_r with ((1 - q r ^ (2 * N - 1)) * IZR room); [apply Rmult_lt_0_compat; auto|].
      replace (W * weight r N / (1 - q r ^ (2 * N - 1)) * ((1 - q r ^ (2 * N - 1)) * IZR room)) with (W * weight r N * IZR room) by (field; lra).
      replace ((IZR w + IZR weight_error) * W / IZR room * ((1 - q r ^ (2 * N - 1)) * IZR room))
        with ((IZR w + IZR weight_error) * (W * (1 - q r ^ (2 * N - 1)))) by (field; lra).
      pose proof (weight_range r Hr N). apply Rmult_le_compat; try lra. apply Rmult_le_pos; lra. }
    replace (W * (m * weight r N / (1 - q r ^ (2 * N - 1)))) with (m * (W * weight r N / (1 - q r ^ (2 * N - 1)))) by (field; lra).
    assert (0 <= W * weight r N / (1 - q r ^ (2 * N - 1))) by (pose proof (weight_range r Hr N); apply Rmult_le_pos; [apply Rmult_le_pos; lra | left; apply Rinv_0_lt_compat; auto]).
    nra. }
  set (inverse := (one * one / D)%Z) in *. set (ie := (one * one / total + 1 - inverse)%Z) in *.
  assert (0 <= inverse)%Z as Hi0 by (apply Z.div_pos; nia).
  assert (0 < IZR D) as HDR by (apply (IZR_lt 0); auto). assert (0 < IZR total) as HtR by (apply (IZR_lt 0); auto).
  assert (IZR inverse <= W / T <= IZR (inverse + ie)) as Hinv.
  { pose proof (div_floor (one * one) D HD) as D1. pose proof (div_floor (one * one) total R2) as D2. rewrite mult_IZR in D1, D2. fold W in D1, D2.
    replace (W / T) with (W * W / (W * T)) by (field; split; lra).
    assert (0 < W * T) by (apply Rmult_lt_0_compat; auto). split.
    - apply Rle_trans with (W * W / IZR D); [exact (proj1 D1)|]. unfold Rdiv. apply Rmult_le_compat_l; [nra|]. apply Rinv_le_contravar; auto.
    - replace (inverse + ie)%Z with (one * one / total + 1)%Z by (unfold ie; lia). rewrite plus_IZR.
      apply Rle_trans with (W * W / IZR total); [|lra]. unfold Rdiv. apply Rmult_le_compat_l; [nra|].
      apply Rinv_le_contravar; auto. nra. }
  assert (0 <= ie)%Z as Hie.
  { apply le_IZR. rewrite plus_IZR in Hinv. lra. }
  apply (units_right r Hr m Hm one Hone bits guard (one :: sums) 0 inverse _ l ie sum_error total Hb Hg eq_refl Hi0 Hie Hse0 Hinv eq_refl); auto.
  intros [|i] s Hs; simpl in Hs.
  - injection Hs as <-. split; [lia|]. fold W. unfold upto. simpl. split; [lra|].
    assert (0 <= IZR sum_error) by (apply (IZR_le 0); auto). lra.
  - destruct (R7 i s Hs) as [Q1 Q2]. split; auto. replace (S (0 + S i)) with (S (1 + i)) by lia. fold W. lra.
Qed.

(* ==== The code as it is put together ==== *)
Lemma weight_exp : forall r (k : nat), weight r k = exp (- (r * INR k ^ 2)).
Proof. intros r k. unfold weight. rewrite q_pow, mult_INR. f_equal. simpl. ring. Qed.

(* Discrete Gaussian noise with n / d for 1 / (2 sigma^2), by one table: x has the chance exp(-x^2 n / d) over the sum of all weights. *)
Theorem gaussian_narrow_code : forall word_bits n d table (Hr : 0 < IZR n / IZR d) (Hm : 1 <= (if true then 2 else 1) <= 2),
  (1 < word_bits)%Z -> (0 < n)%Z -> (0 < d)%Z ->
  (forall b, (0 <= b)%Z -> exists terms guard, (0 <= guard)%Z /\ gaussian_thresholds terms n d b guard true = Some (table b)) ->
  forall fuel x, let r := IZR n / IZR d in
    let p := exp (- (r * IZR (Z.abs x) ^ 2)) / all r Hr 2 Hm in
    p - 2 / (Lazy.width (half word_bits) * INR (count word_bits) ^ fuel) <=
      chance word_bits (narrow word_bits table fuel) (is x) <= p.
Proof.
  intros word_bits n d table Hr Hm Hw Hn Hd Ht fuel x r p.
  assert (p = folded_law (gauss_C r Hr 2 Hm) x) as ->.
  { unfold p, folded_law. pose proof (all_pos r Hr 2 Hm) as HA. destruct (Z.eqb_spec x 0) as [->|Hx].
    - unfold gauss_C, upto. simpl. replace (- (r * (0 * (0 * 1)))) with 0 by ring. rewrite exp_0. field. fold r in HA. lra.
    - rewrite gauss_blocks. destruct (Z.to_nat (Z.abs x)) as [|k] eqn:Ek; [lia|]. simpl chunk. rewrite weight_exp, <- Ek.
      rewrite INR_IZR_INZ, Z2Nat.id by lia. field. fold r in HA. lra. }
  apply (narrow_law word_bits Hw (gauss_C r Hr 2 Hm)); [apply gauss_range | apply gauss_rises |].
  intros b k Hb. destruct (Ht b Hb) as (terms & guard & Hg & H).
  apply (gaussian_thresholds_right terms n d b guard true (table b) Hr Hm Hn Hd Hb Hg H k).
Qed.

(* The same by blocks, for a scale sn / sd: one trial gives x with a chance proportional to exp(-x^2 / (2 sigma^2)). *)
Theorem gaussian_wide_code : forall word_bits sn sd n d table floor shift keep_bits (Hr : 0 < IZR n / IZR d)
  (Hm : 1 <= (if false then 2 else 1) <= 2),
  (1 < word_bits)%Z -> (0 < sn)%Z -> (0 < sd)%Z -> (0 < n)%Z -> (0 < d)%Z ->
  (0 <= shift)%Z -> (0 <= keep_bits)%Z -> (shift + keep_bits <= word_bits)%Z ->
  IZR n / IZR d = INR (block_size shift) ^ 2 / (2 * (IZR sn / IZR sd) ^ 2) ->
  (forall b, (0 <= b)%Z -> exists terms guard, (0 <= guard)%Z /\ gaussian_thresholds terms n d b guard false = Some (table b)) ->
  (forall n d b, (0 < n)%Z -> (0 < d)%Z -> (0 <= b)%Z -> exists fuel terms guard, (0 <= guard)%Z /\
    loss_floor fuel terms guard n d b = Some (floor n d b)) ->
  forall fuel x,
    let p := exp (- (IZR (Z.abs x) ^ 2 / (2 * (IZR sn / IZR sd) ^ 2))) / (2 * INR (block_size shift) * all (IZR n / IZR d) Hr 1 Hm) in
    p - slack word_bits keep_bits fuel <=
      chance word_bits (trial word_bits table floor (pair_loss 2 sn sd shift) shift keep_bits fuel) (gives x) <= p.
Proof.
  intros word_bits sn sd n d table floor shift keep_bits Hr Hm Hw Hsn Hsd Hn Hd Hs Hk Hroom Hrate Ht Hf fuel x p.
  assert (0 < IZR sn) as HnR by (apply (IZR_lt 0); auto). assert (0 < IZR sd) as HdR by (apply (IZR_lt 0); auto).
  set (r := IZR n / IZR d) in *. set (C := gauss_C r Hr 1 Hm).
  pose proof (all_pos r Hr 1 Hm) as HA.
  assert (0 < IZR sn / IZR sd) as Hsig by (apply Rmult_lt_0_compat; [auto | apply Rinv_0_lt_compat; auto]).
  assert (forall k, exponent 2 sn sd k = INR k ^ 2 / (2 * (IZR sn / IZR sd) ^ 2)) as Hexp by (intros k; reflexivity).
  assert (forall b k, (0 <= b)%Z -> let t := nth k (table b) (2 ^ b - 1)%Z in IZR t <= C k * Lazy.width b < IZR t + 1) as Hfloors.
  { intros b k Hb. destruct (Ht b Hb) as (terms & guard & Hg & H).
    apply (gaussian_thresholds_right terms n d b guard false (table b) Hr Hm Hn Hd Hb Hg H k). }
  pose proof (trial_law word_bits Hw (exponent 2 sn sd) shift keep_bits Hs Hk Hroom C (gauss_range r Hr 1 Hm) (gauss_rises r Hr 1 Hm)
    table Hfloors (all r Hr 1 Hm) HA) as T.
  assert (forall k, C k - before C k = exp (- exponent 2 sn sd (k * block_size shift)) / all r Hr 1 Hm) as Hblocks.
  { intros k. unfold C. rewrite gauss_blocks. f_equal. rewrite Hexp, mult_INR.
    assert (weight r k = exp (- ((INR k * INR (block_size shift)) ^ 2 / (2 * (IZR sn / IZR sd) ^ 2)))) as Hwk.
    { rewrite weight_exp, Hrate. f_equal. field. split; lra. }
    destruct k as [|k]; [|simpl chunk; rewrite Hwk; ring].
    simpl chunk. rewrite <- Hwk. unfold weight. simpl. reflexivity. }
  specialize (T Hblocks (pair_loss 2 sn sd shift) floor).
  assert (forall k u, (u < block_size shift)%nat ->
    let (n, d) := pair_loss 2 sn sd shift (Z.of_nat k) (Z.of_nat u) in (0 <= n)%Z /\ (0 < d)%Z /\
      IZR n / IZR d = exponent 2 sn sd (k * block_size shift + u) - exponent 2 sn sd (k * block_size shift)) as Hloss.
  { intros k u _. apply pair_loss_right; lia. }
  specialize (T Hloss).
  assert (forall n d b, (0 < n)%Z -> (0 < d)%Z -> (0 <= b)%Z ->
    IZR (floor n d b) <= (1 - exp (- (IZR n / IZR d))) * Lazy.width b < IZR (floor n d b) + 1) as Hfl.
  { intros n' d' b H2 H3 H4. destruct (Hf n' d' b H2 H3 H4) as (f & terms & guard & Hg & H).
    rewrite Rmult_comm. apply (loss_floor_right f terms guard n' d' b); auto. }
  specialize (T Hfl fuel x). unfold target, one_trial in T. rewrite Hexp in T. unfold p. fold r.
  replace (IZR (Z.abs x)) with (INR (Z.to_nat (Z.abs x))); [exact T|].
  rewrite INR_IZR_INZ, Z2Nat.id by lia. reflexivity.
Qed.
